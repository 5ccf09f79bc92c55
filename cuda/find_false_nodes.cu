// find_false_nodes: columns -> pivots, the number of false tests of every (tree block, document, column).
//
//   parallel_block foreach (tree block, tile of 32 columns x 32 documents):
//       parallel_warp foreach column; parallel_lane foreach document:
//           pivot <- binary search: how many of the block's thresholds of this column are < x
//           if x is NaN: pivot <- the code for missing
//       barrier
//       parallel_thread foreach (group of documents, column, document of the group):
//           pivots[block][group][column][document] <- pivot; 0 beyond the last document
#include "common.cuh"

constexpr int TILE = 32;

// Launch: 32 x 8 threads, blocks (document tiles, column tiles, tree blocks); groups of 2^log_together documents.
template <class Value, class Pivot>
__global__ void __launch_bounds__(256) find_false_nodes(const Value* values, int n_documents, int n_columns, const int* test_offsets,
                                                        const Value* thresholds, int log_together, Pivot* pivots) {
    DYNAMIC_SHARED(shared);
    Pivot* tile = reinterpret_cast<Pivot*>(shared);  // [document][TILE + 1]
    const int first_document = blockIdx.x * TILE;
    const int first_column = blockIdx.y * TILE;
    const int* offsets = test_offsets + static_cast<i64>(blockIdx.z) * (n_columns + 1);

    const int document = first_document + threadIdx.x;
    for (int row = threadIdx.y; row < TILE; row += blockDim.y) {
        const int column = first_column + row;
        if (document >= n_documents || column >= n_columns) continue;
        const Value x = values[static_cast<i64>(column) * n_documents + document];
        const Value* threshold = thresholds + offsets[column];
        u32 low = 0;
        u32 length = offsets[column + 1] - offsets[column];
        while (length > 0) {
            const u32 half = length >> 1;
            const bool is_false = threshold[low + half] < x;
            low = is_false ? low + half + 1 : low;
            length = is_false ? length - half - 1 : half;
        }
        tile[threadIdx.x * (TILE + 1) + row] = x == x ? static_cast<Pivot>(low) : missing_pivot<Pivot>();
    }
    __syncthreads();
    // Neighbouring threads write neighbouring pivots: first along the group's documents, then along the columns.
    const int together = 1 << log_together;
    const i64 n_groups = (static_cast<i64>(n_documents) + together - 1) >> log_together;
    for (int i = threadIdx.y * TILE + threadIdx.x; i < TILE * TILE; i += TILE * blockDim.y) {
        const int within = i & (together - 1);
        const int column = i / together % TILE;
        const int row = i / together / TILE * together + within;
        const i64 group = (first_document + row) >> log_together;
        if (group < n_groups && first_column + column < n_columns)
            pivots[(((blockIdx.z * n_groups + group) * n_columns + first_column + column) << log_together) + within] =
                first_document + row < n_documents ? tile[row * (TILE + 1) + column] : 0;
    }
}
