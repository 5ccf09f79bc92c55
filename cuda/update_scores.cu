// update_scores: pivots -> the partial score of every (tree block, document).
//
//   parallel_block foreach (tree block, document or few):
//       leafindexes[] <- ones; barrier
//       parallel_warp foreach column; parallel_lane foreach test up to the pivot: leafindexes[slot] &= mask (atomic)
//       barrier
//       parallel_thread foreach tree: sum += leafvalues[leftmost bit set in the tree's leafindexes]
//       partial[tree block][document] <- block reduction of sum
#include "block_reduce.cuh"
#include "leaf_indexes.cuh"

// Launch: a multiple of 32 threads, blocks (document groups, tree blocks); dynamic shared memory for
// DOCUMENTS sums a warp, then DOCUMENTS x the largest tree block's words.
template <class Word, bool MANY, class Pivot, class Leaf, class Sum, int DOCUMENTS>
__global__ void update_scores(const Pivot* pivots, int n_documents, int n_columns, const int* test_offsets, const u16* test_slot,
                              const Word* test_mask, const int* missing_offsets, const u16* missing_slot, const Word* missing_mask,
                              const int* blocks, const int* slot_offsets, const int* leaf_offsets, const Leaf* leaf_value,
                              Sum* partial) {
    DYNAMIC_SHARED(shared);
    Sum* scratch = reinterpret_cast<Sum*>(shared);
    Word* leafindexes = reinterpret_cast<Word*>(shared + DOCUMENTS * (blockDim.x / WARP) * sizeof(u64));
    const Trees trees = {blocks + blockIdx.y, slot_offsets, leaf_offsets};
    const int first_tree = trees.blocks[0];
    const int end_tree = trees.blocks[1];
    const int first_slot = trees.slot_offsets[first_tree];
    const int n_slots = trees.slot_offsets[end_tree] - first_slot;
    const int first_document = blockIdx.x * DOCUMENTS;
    compute_masks<Word, Pivot, DOCUMENTS>(pivots, n_documents, first_document, n_columns,
                                          Tests<Word>{test_offsets, test_slot, test_mask},
                                          Tests<Word>{missing_offsets, missing_slot, missing_mask}, n_slots, leafindexes);

    Sum sum[DOCUMENTS] = {};
#pragma unroll 1
    for (int tree = first_tree + threadIdx.x; tree < end_tree; tree += blockDim.x) {
        const Word* words = leafindexes + (MANY ? trees.slot_offsets[tree] - first_slot : tree - first_tree);
        const Leaf* value = leaf_value + trees.leaf_offsets[tree];
#pragma unroll
        for (int d = 0; d < DOCUMENTS; ++d) sum[d] += value[exit_leaf<Word, MANY>(words + d * n_slots)];
    }
    block_sums(sum, scratch);
    if (threadIdx.x != 0) return;
    for (int d = 0; d < DOCUMENTS; ++d)
        if (first_document + d < n_documents) partial[static_cast<i64>(blockIdx.y) * n_documents + first_document + d] = sum[d];
}
