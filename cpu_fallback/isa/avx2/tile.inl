// Four values at each of two places, as float32.
#pragma once
#include <immintrin.h>

#include <cstdint>

#include "generic/readings.inl"

namespace gpuqs {
namespace {

// A lane is set where a value is not the float32 that it becomes.
using Lossy = __m256d;
inline bool any(Lossy lossy) { return _mm256_movemask_pd(lossy) != 0; }

inline __m256 read_fours(Nearest, const char* low, const char* high, Lossy&) {
    return _mm256_set_m128(_mm256_cvtpd_ps(_mm256_loadu_pd(reinterpret_cast<const double*>(high))),
                           _mm256_cvtpd_ps(_mm256_loadu_pd(reinterpret_cast<const double*>(low))));
}

inline __m256 read_fours(Below, const char* at_low, const char* at_high, Lossy& lossy) {
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

}  // namespace
}  // namespace gpuqs

#include "generic/turned_tiles.inl"
