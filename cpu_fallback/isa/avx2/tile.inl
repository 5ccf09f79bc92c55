// Eight values of a row, and tiles of 8 x 8 values of row-major documents to feature-major, as float32.
#pragma once
#include <immintrin.h>

#include <cstdint>

#include "generic/readings.inl"

namespace gpuqs {
namespace {

constexpr int kTile = 8;

// `lossy` is set in a lane where a value is not the float32 that it becomes.
inline __m256 read_eight(AsFloat, const char* at, __m256d&) { return _mm256_loadu_ps(reinterpret_cast<const float*>(at)); }

inline __m256 read_eight(Nearest, const char* at, __m256d&) {
    const double* x = reinterpret_cast<const double*>(at);
    return _mm256_set_m128(_mm256_cvtpd_ps(_mm256_loadu_pd(x + 4)), _mm256_cvtpd_ps(_mm256_loadu_pd(x)));
}

inline __m256 read_eight(Below, const char* at, __m256d& lossy) {
    const double* x = reinterpret_cast<const double*>(at);
    const __m256d low = _mm256_loadu_pd(x), high = _mm256_loadu_pd(x + 4);
    const __m128 near_low = _mm256_cvtpd_ps(low), near_high = _mm256_cvtpd_ps(high);
    const __m256d back_low = _mm256_cvtps_pd(near_low), back_high = _mm256_cvtps_pd(near_high);
    lossy = _mm256_or_pd(lossy, _mm256_cmp_pd(back_low, low, _CMP_NEQ_OQ));
    lossy = _mm256_or_pd(lossy, _mm256_cmp_pd(back_high, high, _CMP_NEQ_OQ));
    // One step down where the nearest is above: from its bits take 1, or add 1 if it is negative. It is never +0 there.
    const __m256i above_low = _mm256_castpd_si256(_mm256_cmp_pd(back_low, low, _CMP_GT_OQ));
    const __m256i above_high = _mm256_castpd_si256(_mm256_cmp_pd(back_high, high, _CMP_GT_OQ));
    const __m256i above = _mm256_permute4x64_epi64(_mm256_packs_epi32(above_low, above_high), 0xd8);
    const __m256i near = _mm256_castps_si256(_mm256_set_m128(near_high, near_low));
    return _mm256_castsi256_ps(_mm256_add_epi32(near, _mm256_sign_epi32(above, near)));
}

// kTile values that lie side by side; true if one is not the float32 that it becomes.
template <class Reading> inline bool copy_tile(const char* at, float* to) {
    __m256d lossy = _mm256_setzero_pd();
    _mm256_store_ps(to, read_eight(Reading(), at, lossy));
    return _mm256_movemask_pd(lossy) != 0;
}

// The same of kTile rows, turned round: x[column][row].
template <class Reading> inline bool transpose_tile(const char* rows, int64_t row_stride, float* x, int stride) {
    __m256 r[8], s[8];
    __m256d lossy = _mm256_setzero_pd();
    for (int i = 0; i < 8; i++) r[i] = read_eight(Reading(), rows + i * row_stride, lossy);
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
    return _mm256_movemask_pd(lossy) != 0;
}

}  // namespace
}  // namespace gpuqs
