// transpose: documents as the caller holds them -> columns, feature-major.
//
//   parallel_block foreach tile of 32 documents x 32 columns:
//       parallel_thread foreach (document, column), along the input's smaller stride:
//           x <- documents[document][feature[column]], cast to the type that tests are made in
//           x <- NaN if zeros count as missing and |x| <= 1e-35; for a category, the side it goes to: 0 or 1
//       barrier
//       parallel_thread foreach (column, document): values[column][document] <- tile
#include "reading.cuh"

constexpr int TILE = 32;

// Launch: 32 x 8 threads, blocks (document tiles, column tiles); strides in bytes.
// BY_ROW: neighbouring features lie closer in memory than neighbouring documents.
template <class Input, class Value, bool BY_ROW>
__global__ void __launch_bounds__(256, 6)  // 40 registers
    transpose(const Input* documents, i64 document_stride, i64 feature_stride, int n_documents, int n_columns, const int* feature,
              const u8* routing, const int* set_offsets, const u32* set_words, Value* values) {
    const int first_document = blockIdx.x * TILE;
    const int first_column = blockIdx.y * TILE;
    const Documents<Input> given = {documents, document_stride, feature_stride, feature, routing, set_offsets, set_words};
    if (!BY_ROW) {
        const int document = first_document + threadIdx.x;
        for (int row = threadIdx.y; row < TILE; row += blockDim.y) {
            const int column = first_column + row;
            if (document < n_documents && column < n_columns)
                values[static_cast<i64>(column) * n_documents + document] = given.template read<Value>(document, column);
        }
        return;
    }
    DYNAMIC_SHARED(shared);
    Value* tile = reinterpret_cast<Value*>(shared);  // [TILE][TILE + 1]: no bank conflicts down a column
    const int column = first_column + threadIdx.x;
    for (int row = threadIdx.y; row < TILE; row += blockDim.y) {
        const int document = first_document + row;
        if (document < n_documents && column < n_columns)
            tile[row * (TILE + 1) + threadIdx.x] = given.template read<Value>(document, column);
    }
    __syncthreads();
    const int document = first_document + threadIdx.x;
    for (int row = threadIdx.y; row < TILE; row += blockDim.y) {
        const int out_column = first_column + row;
        if (document < n_documents && out_column < n_columns)
            values[static_cast<i64>(out_column) * n_documents + document] = tile[threadIdx.x * (TILE + 1) + row];
    }
}
