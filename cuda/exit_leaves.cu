// exit_leaves: pivots -> the number or the values of the exit leaf of every (document, tree).
//
//   parallel_block foreach (tree block, document):
//       leafindexes[] <- ones, masks: see leaf_indexes.cuh
//       parallel_thread foreach tree:
//           leaf <- leftmost bit set in the tree's leafindexes
//           out[document][tree] <- table[leaf]
#include "leaf_indexes.cuh"

// Launch: a multiple of 32 threads, blocks (documents, tree blocks); dynamic shared memory: words_of() the largest
// tree block's slots, then 8 bytes per warp and 8 more.
template <class Word, bool MANY, class Pivot, class Entry, int STRIDE>
__global__ void exit_leaves(const Pivot* pivots, int n_documents, int n_columns, const int* runs, const u16* slot, const Word* mask,
                            const int* blocks, const int* slot_offsets, const int* leaf_offsets, const Entry* table, int width,
                            int n_trees, Entry* out) {
    DYNAMIC_SHARED(shared);
    Word* leafindexes = reinterpret_cast<Word*>(shared);
    const Trees trees = {blocks + blockIdx.y, slot_offsets, leaf_offsets};
    const int first_tree = trees.blocks[0];
    const int end_tree = trees.blocks[1];
    const int first_slot = trees.slot_offsets[first_tree];
    const int n_slots = trees.slot_offsets[end_tree] - first_slot;
    compute_masks<Word, Pivot, 1, STRIDE>(pivots, n_columns, {reinterpret_cast<const Run*>(runs), slot, mask}, n_slots, leafindexes,
                                          leafindexes + words_of<STRIDE>(n_slots));

#pragma unroll 1
    for (int tree = first_tree + threadIdx.x; tree < end_tree; tree += blockDim.x) {
        const int word = MANY ? trees.slot_offsets[tree] - first_slot : tree - first_tree;
        const i64 leaf = trees.leaf_offsets[tree] + exit_leaf<Word, MANY, STRIDE>(leafindexes, word);
#pragma unroll 1
        for (int k = 0; k < width; ++k) out[(static_cast<i64>(blockIdx.x) * n_trees + tree) * width + k] = table[leaf * width + k];
    }
}
