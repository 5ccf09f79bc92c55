// look_up_leaves: planes of leaf numbers -> the number or the values of the exit leaf of every (document, tree).
//
//   parallel_thread foreach (document, tree):
//       number <- the document's bit of each of the tree's planes
//       out[document][tree] <- table[number]
#include "common.cuh"

// Launch: at least one thread per (document, tree), for n_trees trees from first_tree on, out of the forest's all_trees.
template <class Entry>
__global__ void look_up_leaves(const u32* planes, int n_planes, i64 n_documents, int first_tree, int n_trees, const int* offsets,
                               int words, const Entry* table, int width, int all_trees, Entry* out) {
    const i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
    const i64 document = i / n_trees, word = document / WARP;
    const int tree = i % n_trees;
    if (document >= n_documents) return;
    const u32* plane = planes + (word / words * n_trees + tree) * n_planes * words + word % words;
    i64 leaf = offsets[tree];
#pragma unroll 1
    for (int k = 0; k < n_planes; ++k) leaf += static_cast<i64>(plane[static_cast<i64>(k) * words] >> document % WARP & 1) << k;
#pragma unroll 1
    for (int v = 0; v < width; ++v) out[(document * all_trees + first_tree + tree) * width + v] = table[leaf * width + v];
}
