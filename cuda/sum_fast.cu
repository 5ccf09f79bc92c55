// sum_fast: planes of leaf numbers -> partial sums of integers (multiples of a step), whose order does not matter.
//
//   parallel_block foreach (1,024 documents, 64 or 128 trees of the output, output):
//       shared <- the trees' leaf values
//       parallel_warp foreach 2 of the trees; parallel_lane foreach 32 documents:
//           sum[document] += both trees' leaf values
//       partial[trees][document][output] <- sums over the warps
#include "leaf_codes.cuh"

enum { WARPS = 8 };

// Launch: 256 threads, blocks (1,024 documents, groups of trees, outputs); arguments as in sum_exact; trees have up to 64 leaves.
// group: trees per thread block, up to 128. Values are below 2^23, so that the sum of 128 fits an int. Dynamic shared memory: 32 KiB.
template <int W>
__global__ void __launch_bounds__(WARPS* WARP, 2)
    sum_fast(const u32* planes, int n_planes, int n_documents, int first_tree, int n_trees, const int* offsets, const int* value,
             int width, int every_tree, const int* output_offsets, const int* output_trees, int group, i64* partial) {
    DYNAMIC_SHARED(shared);
    enum { WORDS = WARP * W };
    int* tables = reinterpret_cast<int*>(shared);  // [group][TABLE]
    int* sums = tables;                            // later [WARPS][document of 32][lane]
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, output = blockIdx.z, n_outputs = gridDim.z;
    const OutputTrees trees = {first_tree, n_trees, every_tree ? nullptr : output_offsets, output_trees};
    const int first = trees.begin(output) + blockIdx.y * group;
    const int n = min(group, trees.end(output) - first);
    const int* first_value = value + static_cast<i64>(offsets[0] + lane) * width + (width > 1 ? output : 0);
#pragma unroll 1
    for (int t = warp; t < group; t += WARPS) {
        if (t < n)
            copy_values(first_value + trees.at(first + t) * (TABLE * width), width, tables + t * TABLE);
        else  // trees past the end have zeros
            tables[t * TABLE + lane] = tables[t * TABLE + lane + WARP] = 0;
    }
    __syncthreads();

    const i64 first_word = static_cast<i64>(blockIdx.x) * WARP;
    const u32* tile = planes + first_word / WORDS * n_trees * n_planes * WORDS + first_word % WORDS + lane;
    const int tree_words = n_planes * WORDS;
    int sum[WARP] = {};
#pragma unroll 1
    for (int t = warp; t < n; t += 2 * WARPS) {
        u32 x[BYTE], y[BYTE];
        const int other = t + WARPS < n ? t + WARPS : t;
        load_planes<TABLE_PLANES, 2, W>(tile + trees.at(first + t) * tree_words, n_planes, x);
        load_planes<TABLE_PLANES, 2, W>(tile + trees.at(first + other) * tree_words, n_planes, y);
        to_bytes(x);
        to_bytes(y);
        const Place table = place_of(tables + t * TABLE), other_table = place_of(tables + (t + WARPS) * TABLE);
#pragma unroll
        for (int d = 0; d < WARP; ++d)
            sum[d] += *pointer_to<int>(entry_place(table, x[d % BYTE], d / BYTE)) +
                      *pointer_to<int>(entry_place(other_table, y[d % BYTE], d / BYTE));
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
