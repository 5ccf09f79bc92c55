// update_scores: pivots -> the partial score of every (tree block, document).
//
//   parallel_block foreach (tree block, one or a few documents):
//       leafindexes[] <- ones, masks: see leaf_indexes.cuh
//       parallel_thread foreach tree: sum += leafvalues[leftmost bit set in the tree's leafindexes]
//       partial[tree block][document] <- block reduction of sum
#include "leaf_indexes.cuh"

// Launch: a multiple of 32 threads, blocks (groups of DOCUMENTS, tree blocks); dynamic shared memory: words_of() the
// largest tree block's slots, then DOCUMENTS sums per warp and 8 bytes.
template <class Word, bool MANY, class Pivot, class Leaf, class Sum, int DOCUMENTS, int STRIDE>
__global__ void update_scores(const Pivot* pivots, int n_documents, int n_columns, const int* runs, const u16* slot, const Word* mask,
                              const int* blocks, const int* slot_offsets, const int* leaf_offsets, const Leaf* leaf_value,
                              Sum* partial) {
    DYNAMIC_SHARED(shared);
    const TreeBlock<Word, MANY, STRIDE> block(shared, blocks, slot_offsets, leaf_offsets);
    compute_masks<DOCUMENTS>(pivots, n_columns, {reinterpret_cast<const Run*>(runs), slot, mask}, block);

    Sum sum[DOCUMENTS] = {};
#pragma unroll 1
    for (int tree = block.first_tree + threadIdx.x; tree < block.end_tree; tree += blockDim.x) {
        const int word = block.word_of(tree);
        const Leaf* value = leaf_value + leaf_offsets[tree];
#pragma unroll
        for (int d = 0; d < DOCUMENTS; ++d) sum[d] += value[block.exit_leaf(word, d)];
    }
    const Sum total = block_sums(sum, static_cast<Sum*>(block.scratch));
    const i64 document = static_cast<i64>(blockIdx.x) * DOCUMENTS + threadIdx.x;
    if (threadIdx.x < DOCUMENTS && document < n_documents) partial[static_cast<i64>(blockIdx.y) * n_documents + document] = total;
}
