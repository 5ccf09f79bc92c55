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
    const TreeBlock<Word, MANY, STRIDE> block(shared, blocks, slot_offsets, leaf_offsets);
    compute_masks<1>(pivots, n_columns, {reinterpret_cast<const Run*>(runs), slot, mask}, block);

#pragma unroll 1
    for (int tree = block.first_tree + threadIdx.x; tree < block.end_tree; tree += blockDim.x) {
        const i64 leaf = leaf_offsets[tree] + block.exit_leaf(block.word_of(tree));
#pragma unroll 1
        for (int k = 0; k < width; ++k) out[(static_cast<i64>(blockIdx.x) * n_trees + tree) * width + k] = table[leaf * width + k];
    }
}
