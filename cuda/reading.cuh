// How a column reads its feature, as in gpuqs/layout/columns.py: afterwards tests see only numbers and NaN.
//
//   x <- the document's value, cast to the type that tests are made in
//   x <- NaN if zeros count as missing and |x| <= 1e-35; for a category, the side it goes to: 0 or 1
#pragma once
#include "common.cuh"

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

// Turns a value that is already cast into what tests see.
template <class Value>
__device__ __forceinline__ Value as_read(Value x, const Reading& reading) {
    if (reading.routing & CATEGORICAL) return side_of_category(x, reading);
    const Value limit = static_cast<Value>(ZERO_THRESHOLD);
    return reading.routing & ZERO_MISSING && x >= -limit && x <= limit ? quiet_nan<Value>() : x;
}

// Documents as the caller holds them (strides in bytes), and the columns that are read from them.
template <class Input>
struct Documents {
    const Input* documents;
    i64 document_stride, feature_stride;
    const int* feature;
    const u8* routing;
    const int* set_offsets;
    const u32* set_words;

    __device__ __forceinline__ const Input* at(int document, int column) const {
        const char* base = reinterpret_cast<const char*>(documents);
        return reinterpret_cast<const Input*>(base + document * document_stride + feature[column] * feature_stride);
    }
    __device__ __forceinline__ Reading reading(int column) const {
        const int begin = set_offsets[column];
        return {routing[column], set_words + begin, static_cast<u32>(set_offsets[column + 1] - begin)};
    }
    template <class Value>
    __device__ __forceinline__ Value read(int document, int column) const {
        return as_read(static_cast<Value>(*at(document, column)), reading(column));
    }
};
