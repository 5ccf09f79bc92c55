// AVX2: eight floats or four doubles per register; eight documents at a time.
#pragma once
#include <immintrin.h>

#include <cstdint>

#include "generic/leftmost.inl"

namespace gpuqs {
namespace {

struct Lanes {
    static constexpr int n = 8;
    struct Doubles { __m256d at[2]; };
    struct Where32 { __m256i at; };  // lanes of 32 bits, all ones or zero
    struct Where64 { __m256i at[2]; };

    static __m256 load(const float* x) { return _mm256_load_ps(x); }
    static Doubles load(const double* x) { return {{_mm256_load_pd(x), _mm256_load_pd(x + 4)}}; }

    static Where32 greater(__m256 v, float threshold) {
        return {_mm256_castps_si256(_mm256_cmp_ps(v, _mm256_set1_ps(threshold), _CMP_GT_OQ))};
    }
    static Where64 greater(const Doubles& v, double threshold) {
        const __m256d t = _mm256_set1_pd(threshold);
        return {
            {_mm256_castpd_si256(_mm256_cmp_pd(v.at[0], t, _CMP_GT_OQ)), _mm256_castpd_si256(_mm256_cmp_pd(v.at[1], t, _CMP_GT_OQ))}};
    }
    static Where32 is_nan(__m256 v) { return {_mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q))}; }
    static Where64 is_nan(const Doubles& v) {
        return {{_mm256_castpd_si256(_mm256_cmp_pd(v.at[0], v.at[0], _CMP_UNORD_Q)),
                 _mm256_castpd_si256(_mm256_cmp_pd(v.at[1], v.at[1], _CMP_UNORD_Q))}};
    }
    static bool any(const Where32& w) { return !_mm256_testz_si256(w.at, w.at); }
    static bool any(const Where64& w) {
        const __m256i all = _mm256_or_si256(w.at[0], w.at[1]);
        return !_mm256_testz_si256(all, all);
    }

    // bits &= ~(where & ~mask)
    static void clear(__m256i* bits, __m256i where, __m256i mask) {
        _mm256_store_si256(bits, _mm256_andnot_si256(_mm256_andnot_si256(mask, where), _mm256_load_si256(bits)));
    }
    static void and_where(const Where32& w, uint32_t* bits, uint32_t mask) {
        clear(reinterpret_cast<__m256i*>(bits), w.at, _mm256_set1_epi32(static_cast<int>(mask)));
    }
    static void and_where(const Where64& w, uint64_t* bits, uint64_t mask) {
        const __m256i m = _mm256_set1_epi64x(static_cast<long long>(mask));
        clear(reinterpret_cast<__m256i*>(bits), w.at[0], m);
        clear(reinterpret_cast<__m256i*>(bits) + 1, w.at[1], m);
    }
    static void and_where(const Where32& w, uint64_t* bits, uint64_t mask) {
        and_where(
            Where64{{_mm256_cvtepi32_epi64(_mm256_castsi256_si128(w.at)), _mm256_cvtepi32_epi64(_mm256_extracti128_si256(w.at, 1))}},
            bits, mask);
    }
    static void and_where(const Where64& w, uint32_t* bits, uint32_t mask) {
        // Both halves of a 64-bit lane are equal: keep one of each.
        const __m256 even = _mm256_shuffle_ps(_mm256_castsi256_ps(w.at[0]), _mm256_castsi256_ps(w.at[1]), 0x88);
        and_where(Where32{_mm256_permute4x64_epi64(_mm256_castps_si256(even), 0xd8)}, bits, mask);
    }
    template <class Mask> static void leftmost(const Mask* bits, uint8_t* leaf) {
        for (int k = 0; k < n; k++) leaf[k] = static_cast<uint8_t>(gpuqs::leftmost(bits[k]));
    }
};

}  // namespace
}  // namespace gpuqs
