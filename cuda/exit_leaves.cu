// exit_leaves: pivots -> what the exit leaf of every (document, tree) holds: its number, or its values.
//
//   parallel_block foreach (tree block, document):
//       leafindexes[] <- ones; barrier; masks as in update_scores; barrier
//       parallel_thread foreach tree:
//           leaf <- leftmost bit set in the tree's leafindexes
//           out[document][tree] <- table[leaf]
#include "leaf_indexes.cuh"

// Launch: a multiple of 32 threads, blocks (documents, tree blocks); dynamic shared memory for the
// largest tree block's words.
template <class Word, bool MANY, class Pivot, class Entry>
__global__ void exit_leaves(const Pivot* pivots, int n_documents, int n_columns, const int* test_offsets, const u16* test_slot,
                            const Word* test_mask, const int* missing_offsets, const u16* missing_slot, const Word* missing_mask,
                            const int* blocks, const int* slot_offsets, const int* leaf_offsets, const Entry* table, int width,
                            int n_trees, Entry* out) {
    DYNAMIC_SHARED(shared);
    Word* leafindexes = reinterpret_cast<Word*>(shared);
    const Trees trees = {blocks + blockIdx.y, slot_offsets, leaf_offsets};
    const int first_tree = trees.blocks[0];
    const int end_tree = trees.blocks[1];
    const int first_slot = trees.slot_offsets[first_tree];
    const int n_slots = trees.slot_offsets[end_tree] - first_slot;
    compute_masks<Word, Pivot, 1>(pivots, n_documents, blockIdx.x, n_columns, Tests<Word>{test_offsets, test_slot, test_mask},
                                  Tests<Word>{missing_offsets, missing_slot, missing_mask}, n_slots, leafindexes);

#pragma unroll 1
    for (int tree = first_tree + threadIdx.x; tree < end_tree; tree += blockDim.x) {
        const Word* words = leafindexes + (MANY ? trees.slot_offsets[tree] - first_slot : tree - first_tree);
        const i64 leaf = trees.leaf_offsets[tree] + exit_leaf<Word, MANY>(words);
#pragma unroll 1
        for (int k = 0; k < width; ++k) out[(static_cast<i64>(blockIdx.x) * n_trees + tree) * width + k] = table[leaf * width + k];
    }
}
