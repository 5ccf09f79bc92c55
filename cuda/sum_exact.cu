// sum_exact: planes of leaf numbers -> sums in tree order, in the source library's type.
//
//   parallel_block foreach (1,024 documents, output):
//       foreach 8 trees of the output, in order:
//           parallel_warp foreach tree: shared <- its leaf values; the documents' leaf numbers, as bytes
//           barrier
//           parallel_thread foreach 4 documents: foreach of the trees, in order: sum += leaf value
//       sums[document][output] <- sum
#include "leaf_codes.cuh"

enum { TREES = 8, TABLE = 64 };

// Launch: 256 threads, blocks (1,024 documents, outputs); n_planes planes of n_trees trees, `words` words of a tile each.
// SMALL: trees have up to 64 leaves, whose values [64][width] lie in shared memory; else two bytes a number, and values where they
// are. offsets: of each tree's values. every_tree: all trees add to each output. Sums begin with what is there, or with `start`.
// Dynamic shared memory: values [8][64] where SMALL, numbers [1 or 2][8][8][32].
template <class Leaf, class Sum, bool SMALL>
__global__ void __launch_bounds__(TREES* WARP, 4)
    sum_exact(const u32* planes, int words, int n_planes, int n_documents, int first_tree, int n_trees, const int* offsets,
              const Leaf* value, int width, int every_tree, const int* output_offsets, const int* output_trees, int started,
              const Sum* start, Sum* sums) {
    DYNAMIC_SHARED(shared);
    enum { SHIFT = SMALL ? 2 : 0, PART = TREES * BYTE * WARP };  // a small tree's number is a multiple of 4, a byte offset
    Leaf* tables = reinterpret_cast<Leaf*>(shared);
    u32* bytes = reinterpret_cast<u32*>(tables + (SMALL ? TREES * TABLE : 0));
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, output = blockIdx.y, n_outputs = gridDim.y;
    const OutputTrees trees = {first_tree, n_trees, every_tree ? nullptr : output_offsets, output_trees};
    const int k = width > 1 ? output : 0;

    const i64 first_word = static_cast<i64>(blockIdx.x) * WARP;
    const u32* tile = planes + first_word / words * n_trees * n_planes * words + first_word % words + lane;
    const i64 first_document = (first_word + lane) * WARP + warp;  // of the thread's four, eight apart
    Sum sum[4];
#pragma unroll
    for (int d = 0; d < 4; ++d) {
        const i64 document = first_document + d * BYTE;
        sum[d] = !started ? start[output] : document < n_documents ? sums[document * n_outputs + output] : Sum(0);
    }
    const int end = trees.end(output);
#pragma unroll 1
    for (int begin = trees.begin(output); begin < end; begin += TREES) {
        if (begin + warp < end) {
            const int tree = trees.at(begin + warp);
            const u32* plane = tile + static_cast<i64>(tree) * n_planes * words;
            u32 x[BYTE];
            load_planes(plane, words, 0, n_planes, SHIFT, x);
            to_bytes(x);
#pragma unroll
            for (int r = 0; r < BYTE; ++r) bytes[(warp * BYTE + r) * WARP + lane] = x[r];
            if (SMALL) {
                const Leaf* leaf = value + static_cast<i64>(offsets[tree]) * width + k;
                for (int i = lane; i < TABLE; i += WARP) tables[warp * TABLE + i] = leaf[static_cast<i64>(i) * width];
            } else {
                load_planes(plane, words, BYTE, n_planes, 0, x);
                to_bytes(x);
#pragma unroll
                for (int r = 0; r < BYTE; ++r) bytes[PART + (warp * BYTE + r) * WARP + lane] = x[r];
            }
        }
        __syncthreads();
        const int n = min(static_cast<int>(TREES), end - begin);
#pragma unroll(SMALL ? 4 : 1)
        for (int t = 0; t < n; ++t) {
            const u32 low = bytes[(t * BYTE + warp) * WARP + lane];
            if (SMALL) {
                const char* table = reinterpret_cast<const char*>(tables + t * TABLE);
#pragma unroll
                for (int d = 0; d < 4; ++d)
                    sum[d] += *reinterpret_cast<const Leaf*>(table + (low >> d * BYTE & 0xff) * (sizeof(Leaf) / 4));
            } else {
                const u32 high = bytes[PART + (t * BYTE + warp) * WARP + lane];
                const i64 first = offsets[trees.at(begin + t)];
#pragma unroll
                for (int d = 0; d < 4; ++d) {
                    const u32 number = (low >> d * BYTE & 0xff) | (high >> d * BYTE & 0xff) << BYTE;
                    sum[d] += value[(first + number) * width + k];
                }
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int d = 0; d < 4; ++d) {
        const i64 document = first_document + d * BYTE;
        if (document < n_documents) sums[document * n_outputs + output] = sum[d];
    }
}
