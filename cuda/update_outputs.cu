// update_outputs: update_scores for forests with several outputs (classes, vector leaves).
//
//   parallel_block foreach (tree block, document):
//       leafindexes[] <- ones, masks: see leaf_indexes.cuh
//       parallel_warp foreach output:
//           parallel_lane foreach tree of that output: sum += leafvalues[exit leaf]
//           partial[tree block][document][output] <- warp reduction of sum
#include "leaf_indexes.cuh"

// Launch: a multiple of 32 threads, blocks (documents, tree blocks); dynamic shared memory: words_of() the largest
// tree block's slots, then 8 bytes per warp and 8 more. `width`, values per leaf: 1, and the trees of block b for output k are
// output_trees[output_offsets[b][k] ... output_offsets[b][k + 1]]; or n_outputs, and every tree adds to every output.
template <class Word, bool MANY, class Pivot, class Leaf, class Sum>
__global__ void update_outputs(const Pivot* pivots, int n_documents, int n_columns, const int* runs, const u16* slot, const Word* mask,
                               const int* blocks, const int* slot_offsets, const int* leaf_offsets, const Leaf* leaf_value, int width,
                               int n_outputs, const int* output_offsets, const int* output_trees, Sum* partial) {
    DYNAMIC_SHARED(shared);
    const TreeBlock<Word, MANY, 1> block(shared, blocks, slot_offsets, leaf_offsets);
    compute_masks<1>(pivots, n_columns, {reinterpret_cast<const Run*>(runs), slot, mask}, block);

    const bool every_tree = width > 1;
    const int* offsets = output_offsets + static_cast<i64>(blockIdx.y) * (n_outputs + 1);
    for (int output = threadIdx.x / WARP; output < n_outputs; output += blockDim.x / WARP) {
        const int begin = every_tree ? block.first_tree : offsets[output];
        const int end = every_tree ? blocks[blockIdx.y + 1] : offsets[output + 1];  // block.end_tree, but kept in no register
        Sum sum = 0;
#pragma unroll 1
        for (int i = begin + static_cast<int>(threadIdx.x % WARP); i < end; i += WARP) {
            const int tree = every_tree ? i : output_trees[i];
            const i64 leaf = leaf_offsets[tree] + block.exit_leaf(block.word_of(tree));
            sum += leaf_value[leaf * width + (every_tree ? output : 0)];
        }
        sum = warp_sum(sum);
        if (threadIdx.x % WARP == 0) partial[(static_cast<i64>(blockIdx.y) * n_documents + blockIdx.x) * n_outputs + output] = sum;
    }
}
