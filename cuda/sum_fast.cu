// sum_fast: planes of leaf numbers -> partial sums of whole numbers of steps, whose order does not matter.
//
//   parallel_block foreach (1,024 documents, 64 trees of the output, output):
//       shared <- the trees' leaf values
//       parallel_warp foreach 2 of the trees; parallel_lane foreach 32 documents:
//           sum[document] += both trees' leaf values
//       partial[64 trees][document][output] <- sums over the warps
#include "leaf_codes.cuh"

enum { TREES = 64, TABLE = 64, WARPS = 8 };

// The values of a tree's leaves, by four times their number: byte b of x.
__device__ __forceinline__ int value_of(const int* table, u32 x, int b) {
    return *reinterpret_cast<const int*>(reinterpret_cast<const char*>(table) + (x >> b * BYTE & 0xff));
}

// Launch: 256 threads, blocks (1,024 documents, groups of trees, outputs); arguments as of sum_exact, trees of up to 64 leaves.
// Values are below 2^23, so that 64 of them fit an int. Dynamic shared memory: 32 KiB.
__global__ void __launch_bounds__(WARPS* WARP, 2)
    sum_fast(const u32* planes, int words, int n_planes, int n_documents, int first_tree, int n_trees, const int* offsets,
             const int* value, int width, int every_tree, const int* output_offsets, const int* output_trees, i64* partial) {
    DYNAMIC_SHARED(shared);
    int* tables = reinterpret_cast<int*>(shared);  // [TREES][TABLE]
    int* sums = tables;                            // [WARPS][document of 32][lane], later
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, output = blockIdx.z, n_outputs = gridDim.z;
    const OutputTrees trees = {first_tree, n_trees, every_tree ? nullptr : output_offsets, output_trees};
    const int first = trees.begin(output) + blockIdx.y * TREES;
    const int n = min(static_cast<int>(TREES), trees.end(output) - first);
#pragma unroll 1
    for (int i = threadIdx.x; i < TREES * TABLE; i += WARPS * WARP) {
        const int t = i / TABLE;  // trees that are not there have zeros
        const i64 leaf = t < n ? offsets[trees.at(first + t)] + i % TABLE : 0;
        tables[i] = t < n ? value[leaf * width + (width > 1 ? output : 0)] : 0;
    }
    __syncthreads();

    const i64 first_word = static_cast<i64>(blockIdx.x) * WARP;
    const u32* tile = planes + first_word / words * n_trees * n_planes * words + first_word % words + lane;
    int sum[WARP] = {};
#pragma unroll 1
    for (int t = warp; t < n; t += 2 * WARPS) {
        u32 x[BYTE], y[BYTE];
        const int other = t + WARPS < n ? t + WARPS : t;
        load_planes(tile + static_cast<i64>(trees.at(first + t)) * n_planes * words, words, 0, n_planes, 2, x);
        load_planes(tile + static_cast<i64>(trees.at(first + other)) * n_planes * words, words, 0, n_planes, 2, y);
        to_bytes(x);
        to_bytes(y);
        const int* table = tables + t * TABLE;
#pragma unroll
        for (int d = 0; d < WARP; ++d)
            sum[d] += value_of(table, x[d % BYTE], d / BYTE) + value_of(table + WARPS * TABLE, y[d % BYTE], d / BYTE);
    }
    __syncthreads();
#pragma unroll
    for (int d = 0; d < WARP; ++d) sums[(warp * WARP + d) * WARP + lane] = sum[d];
    __syncthreads();
#pragma unroll 1
    for (int d = warp; d < WARP; d += WARPS) {
        int total = 0;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) total += sums[(w * WARP + d) * WARP + lane];
        const i64 document = (first_word + lane) * WARP + d;
        if (document < n_documents) partial[(blockIdx.y * static_cast<i64>(n_documents) + document) * n_outputs + output] = total;
    }
}
