// walk_leaves: documents as the caller holds them -> the number or the values of the exit leaf of every (document, tree).
//
//   parallel_block foreach (document, trees_each trees):
//       x[] <- the document's columns: see walk.cuh
//       parallel_thread foreach tree:
//           leaf <- walk(tree)
//           out[document][tree] <- table[leaf]
#include "walk.cuh"

// Launch: any number of threads up to 1,024, blocks (documents, shares of trees_each trees). Dynamic shared memory: the columns, if
// `staged`.
template <class Value, class Entry>
__global__ void walk_leaves(const void* documents, int type, i64 document_stride, i64 feature_stride, int n_columns, const int* feature,
                            const u8* routing, const int* set_offsets, const u32* set_words, int staged, const u32* nodes,
                            const int* roots, int n_trees, int trees_each, const Entry* table, int width, Entry* out) {
    DYNAMIC_SHARED(shared);
    const char* base = static_cast<const char*>(documents);
    const AnyDocuments given = {{base, document_stride, feature_stride, feature, routing, set_offsets, set_words}, type};
    const Walks<Value> walks = {given, reinterpret_cast<const uint4*>(nodes), staged ? reinterpret_cast<Value*>(shared) : nullptr};
    walks.read_columns(n_columns);
    const int first = blockIdx.y * trees_each, end = min(first + trees_each, n_trees);
#pragma unroll 1
    for (int tree = first + static_cast<int>(threadIdx.x); tree < end; tree += blockDim.x) {
        const i64 leaf = walks.exit_leaf(reinterpret_cast<const uint2*>(roots)[tree]),
                  at = static_cast<i64>(blockIdx.x) * n_trees + tree;
#pragma unroll 1
        for (int v = 0; v < width; ++v) out[at * width + v] = table[leaf * width + v];
    }
}
