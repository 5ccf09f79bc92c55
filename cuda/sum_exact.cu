// sum_exact: planes of leaf numbers -> sums in tree order, in the source library's type.
//
//   parallel_block foreach (1,024 documents, output):
//       foreach 8 trees of the output, in order:
//           parallel_warp foreach tree: shared <- its leaf values; the documents' leaf numbers, as bytes
//           barrier
//           parallel_thread foreach 4 documents: foreach of the trees, in order: sum += leaf value
//       sums[document][output] <- sum
#include "leaf_codes.cuh"
#include "words.cuh"

enum { TREES = 8 };

// Launch: 256 threads, blocks (1,024 documents, outputs); n_planes planes of n_trees trees, tiles of W words a lane.
// SMALL: trees have up to 64 leaves, whose values [64][width] lie in shared memory; else two bytes a number, and values where they
// are. offsets: of each tree's values. every_tree: all trees add to each output. Sums begin with what is there, or with `start`.
// Dynamic shared memory: values [8][64] where SMALL, numbers [1 or 2][8][8][32].
template <class Leaf, class Sum, bool SMALL, int W>
__global__ void __launch_bounds__(TREES* WARP, 4)
    sum_exact(const u32* planes, int n_planes, int n_documents, int first_tree, int n_trees, const int* offsets, const Leaf* value,
              int width, int every_tree, const int* output_offsets, const int* output_trees, int started, const Sum* start, Sum* sums) {
    DYNAMIC_SHARED(shared);
    // A number of values of four bytes is a multiple of four, their place in bytes.
    enum { SHIFT = SMALL && sizeof(Leaf) == 4 ? 2 : 0, WORDS = WARP * W, PART = TREES * BYTE * WARP };
    Leaf* tables = reinterpret_cast<Leaf*>(shared);
    u32* bytes = reinterpret_cast<u32*>(tables + (SMALL ? TREES * TABLE : 0));
    const int lane = threadIdx.x % WARP, warp = kept(threadIdx.x / WARP), output = blockIdx.y, n_outputs = gridDim.y;
    const OutputTrees trees = {first_tree, n_trees, every_tree ? nullptr : output_offsets, output_trees};
    const int k = width > 1 ? output : 0;

    const i64 first_word = static_cast<i64>(blockIdx.x) * WARP;
    const u32* tile = planes + first_word / WORDS * n_trees * n_planes * WORDS + first_word % WORDS + lane;
    const i64 first_document = (first_word + lane) * WARP + warp;  // of the thread's four, eight apart
    const int tree_words = n_planes * WORDS;
    const Leaf* first_value = value + static_cast<i64>(offsets[0] + lane) * width + k;
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
            const u32* plane = tile + tree * tree_words;
            u32 x[BYTE];
            load_planes<SMALL ? TABLE_PLANES : BYTE, SHIFT, W>(plane, n_planes, x);
            to_bytes(x);
#pragma unroll
            for (int r = 0; r < BYTE; ++r) bytes[(warp * BYTE + r) * WARP + lane] = x[r];
            if (SMALL) {
                copy_values(first_value + tree * (TABLE * width), width, tables + warp * TABLE);
            } else {
                load_planes<BYTE, 0, W>(plane + BYTE * WORDS, n_planes - BYTE, x);
                to_bytes(x);
#pragma unroll
                for (int r = 0; r < BYTE; ++r) bytes[PART + (warp * BYTE + r) * WARP + lane] = x[r];
            }
        }
        __syncthreads();
        const int n = min(static_cast<int>(TREES), end - begin);
        const auto add = [&](int t) {
            const u32 low = bytes[(t * BYTE + warp) * WARP + lane];
            if (SMALL) {
                const char* table = reinterpret_cast<const char*>(tables + t * TABLE);
#pragma unroll
                for (int d = 0; d < 4; ++d) sum[d] += *reinterpret_cast<const Leaf*>(table + byte_of(low, d) * (sizeof(Leaf) >> SHIFT));
            } else {
                const u32 high = bytes[PART + (t * BYTE + warp) * WARP + lane];
                const i64 first = offsets[trees.at(begin + t)];
#pragma unroll
                for (int d = 0; d < 4; ++d) {
                    const u32 number = byte_of(low, d) | byte_of(high, d) << BYTE;
                    sum[d] += value[(first + number) * width + k];
                }
            }
        };
        if (SMALL && n == TREES) {
#pragma unroll
            for (int t = 0; t < TREES; ++t) add(t);
        } else {
#pragma unroll 1
            for (int t = 0; t < n; ++t) add(t);
        }
        __syncthreads();
    }
#pragma unroll
    for (int d = 0; d < 4; ++d) {
        const i64 document = first_document + d * BYTE;
        if (document < n_documents) sums[document * n_outputs + output] = sum[d];
    }
}
