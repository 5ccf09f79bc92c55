// An 8 x 8 tile of row-major floats to feature-major.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace gpuqs {
namespace {

constexpr int kTile = 8;

inline void transpose_tile(const char* rows, int64_t row_stride, float* x, int stride) {
    __m256 r[8], s[8];
    for (int i = 0; i < 8; i++) r[i] = _mm256_loadu_ps(reinterpret_cast<const float*>(rows + i * row_stride));
    for (int i = 0; i < 8; i += 2) {
        s[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        s[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(s[i], s[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(s[i], s[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        _mm256_store_ps(x + i * stride, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
        _mm256_store_ps(x + (i + 4) * stride, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
}

}  // namespace
}  // namespace gpuqs
