// Copies eight values of a row, and transposes tiles of 8 x 8 values from row-major to feature-major, as float32. For instruction
// sets with registers of eight floats: they define read_fours, which reads four values at each of two places, and Lossy and any,
// which record loss.
#pragma once
#include <immintrin.h>

#include <cstdint>

#include "generic/readings.inl"

namespace gpuqs {
namespace {

constexpr int kTile = 8;

inline __m256 read_fours(AsFloat, const char* low, const char* high, Lossy&) {
    return _mm256_set_m128(_mm_loadu_ps(reinterpret_cast<const float*>(high)), _mm_loadu_ps(reinterpret_cast<const float*>(low)));
}

// Copies kTile consecutive values; true if one is found to differ from the float32 that it becomes.
template <class Reading> inline bool copy_tile(const char* at, float* to) {
    Lossy lossy = {};
    _mm256_store_ps(to, read_fours(Reading(), at, at + 4 * sizeof(typename Reading::In), lossy));
    return any(lossy);
}

// The same for kTile rows, transposed: x[column][row]. Half a row and half of the fourth row after it share a register, so that
// no value has to cross 128-bit lanes later.
template <class Reading> inline bool transpose_tile(const char* rows, int64_t row_stride, float* x, int stride) {
    Lossy lossy = {};
    for (int half = 0; half < 2; half++, rows += 4 * sizeof(typename Reading::In), x += 4 * stride) {
        __m256 r[4];
        for (int i = 0; i < 4; i++) r[i] = read_fours(Reading(), rows + i * row_stride, rows + (i + 4) * row_stride, lossy);
        const __m256 low0 = _mm256_unpacklo_ps(r[0], r[1]), low2 = _mm256_unpacklo_ps(r[2], r[3]);
        const __m256 high0 = _mm256_unpackhi_ps(r[0], r[1]), high2 = _mm256_unpackhi_ps(r[2], r[3]);
        _mm256_store_ps(x, _mm256_shuffle_ps(low0, low2, 0x44));
        _mm256_store_ps(x + stride, _mm256_shuffle_ps(low0, low2, 0xee));
        _mm256_store_ps(x + 2 * stride, _mm256_shuffle_ps(high0, high2, 0x44));
        _mm256_store_ps(x + 3 * stride, _mm256_shuffle_ps(high0, high2, 0xee));
    }
    return any(lossy);
}

}  // namespace
}  // namespace gpuqs
