// transpose: documents as the caller holds them -> columns, feature-major.
//
//   parallel_block foreach tile of 32 documents x 32 columns:
//       parallel_thread foreach (document, column), along the input's smaller stride:
//           x <- documents[document][feature[column]], cast to the type that tests are made in
//           x <- NaN where zeros are missing and |x| <= 1e-35; the side that a category goes to, 0 or 1
//       barrier
//       parallel_thread foreach (column, document): values[column][document] <- tile
#include "common.cuh"

constexpr int TILE = 32;

// LightGBM's kZeroThreshold is the float32 nearest to 1e-35, in both types.
constexpr float ZERO_THRESHOLD = 1e-35f;

template <class Value>
__device__ Value quiet_nan();
template <>
__device__ __forceinline__ float quiet_nan<float>() {
    return __int_as_float(0x7fc00000);
}
template <>
__device__ __forceinline__ double quiet_nan<double>() {
    return __longlong_as_double(0x7ff8000000000000ll);
}

// How a column reads its feature: the routing bits of gpuqs/forest.py, and its category set.
struct Reading {
    u8 routing;
    const u32* words;
    u32 n_words;
};
constexpr u8 ZERO_MISSING = 2, CATEGORICAL = 4, SET_RIGHT = 8, NEGATIVE_FRACTION_IS_ZERO = 16, WHOLE_CODES = 32;

template <class Value>
__device__ __forceinline__ Value side_of_category(Value x, const Reading& reading) {
    if (x != x) return x;
    const bool above = reading.routing & NEGATIVE_FRACTION_IS_ZERO ? x > Value(-1) : x >= Value(0);
    bool in_set = above && x < Value(1u << 31);
    if (in_set) {
        const u32 code = static_cast<u32>(static_cast<int>(x));  // toward zero
        in_set = code / 32 < reading.n_words && (reading.words[code / 32] >> (code % 32) & 1) &&
                 !(reading.routing & WHOLE_CODES && Value(code) != x);
    }
    return in_set == static_cast<bool>(reading.routing & SET_RIGHT) ? Value(1) : Value(0);
}

template <class Input, class Value>
__device__ __forceinline__ Value load(const char* at, const Reading& reading) {
    const Value x = static_cast<Value>(*reinterpret_cast<const Input*>(at));
    if (reading.routing & CATEGORICAL) return side_of_category(x, reading);
    const Value limit = static_cast<Value>(ZERO_THRESHOLD);
    return reading.routing & ZERO_MISSING && x >= -limit && x <= limit ? quiet_nan<Value>() : x;
}

// Launch: 32 x 8 threads, blocks (document tiles, column tiles); strides in bytes.
// BY_ROW: neighbouring features lie closer in memory than neighbouring documents.
template <class Input, class Value, bool BY_ROW>
__global__ void __launch_bounds__(256, 6)  // 40 registers
    transpose(const Input* documents, i64 document_stride, i64 feature_stride, int n_documents, int n_columns, const int* feature,
              const u8* routing, const int* set_offsets, const u32* set_words, Value* values) {
    const int first_document = blockIdx.x * TILE;
    const int first_column = blockIdx.y * TILE;
    const char* base = reinterpret_cast<const char*>(documents);
    const auto reading = [&](int column) {
        const int begin = set_offsets[column];
        return Reading{routing[column], set_words + begin, static_cast<u32>(set_offsets[column + 1] - begin)};
    };
    if (!BY_ROW) {
        const int document = first_document + threadIdx.x;
        for (int row = threadIdx.y; row < TILE; row += blockDim.y) {
            const int column = first_column + row;
            if (document < n_documents && column < n_columns)
                values[static_cast<i64>(column) * n_documents + document] =
                    load<Input, Value>(base + document * document_stride + feature[column] * feature_stride, reading(column));
        }
        return;
    }
    DYNAMIC_SHARED(shared);
    Value* tile = reinterpret_cast<Value*>(shared);  // [TILE][TILE + 1]: no bank conflicts down a column
    const int column = first_column + threadIdx.x;
    for (int row = threadIdx.y; row < TILE; row += blockDim.y) {
        const int document = first_document + row;
        if (document < n_documents && column < n_columns)
            tile[row * (TILE + 1) + threadIdx.x] =
                load<Input, Value>(base + document * document_stride + feature[column] * feature_stride, reading(column));
    }
    __syncthreads();
    const int document = first_document + threadIdx.x;
    for (int row = threadIdx.y; row < TILE; row += blockDim.y) {
        const int out_column = first_column + row;
        if (document < n_documents && out_column < n_columns)
            values[static_cast<i64>(out_column) * n_documents + document] = tile[threadIdx.x * (TILE + 1) + row];
    }
}
