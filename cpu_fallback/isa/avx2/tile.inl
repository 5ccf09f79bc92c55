// Eight values of a row, and tiles of 8 x 8 values of row-major documents to feature-major, as float32.
#pragma once
#include <immintrin.h>

#include <cstdint>

#include "generic/readings.inl"

namespace gpuqs {
namespace {

constexpr int kTile = 8;

// Four values at each of two places; `lossy` is set in a lane where a value is not the float32 that it becomes.
inline __m256 read_fours(AsFloat, const char* low, const char* high, __m256d&) {
    return _mm256_set_m128(_mm_loadu_ps(reinterpret_cast<const float*>(high)), _mm_loadu_ps(reinterpret_cast<const float*>(low)));
}

inline __m256 read_fours(Nearest, const char* low, const char* high, __m256d&) {
    return _mm256_set_m128(_mm256_cvtpd_ps(_mm256_loadu_pd(reinterpret_cast<const double*>(high))),
                           _mm256_cvtpd_ps(_mm256_loadu_pd(reinterpret_cast<const double*>(low))));
}

inline __m256 read_fours(Below, const char* at_low, const char* at_high, __m256d& lossy) {
    const __m256d low = _mm256_loadu_pd(reinterpret_cast<const double*>(at_low));
    const __m256d high = _mm256_loadu_pd(reinterpret_cast<const double*>(at_high));
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
    _mm256_store_ps(to, read_fours(Reading(), at, at + 4 * sizeof(typename Reading::In), lossy));
    return _mm256_movemask_pd(lossy) != 0;
}

// The same of kTile rows, turned round: x[column][row]. Halves of a row and of the fourth after it share a register, so
// that no value changes its lane later.
template <class Reading> inline bool transpose_tile(const char* rows, int64_t row_stride, float* x, int stride) {
    __m256d lossy = _mm256_setzero_pd();
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
    return _mm256_movemask_pd(lossy) != 0;
}

}  // namespace
}  // namespace gpuqs
