// SSE4.2: four floats or two doubles per register; eight documents at a time.
#pragma once
#include <nmmintrin.h>

#include <cstdint>

#include "generic/leftmost.inl"

namespace gpuqs {
namespace {

struct Lanes {
    static constexpr int n = 8;
    struct Singles { __m128 at[2]; };
    struct Doubles { __m128d at[4]; };
    struct Where32 { __m128i at[2]; };  // lanes of 32 bits, all ones or zero
    struct Where64 { __m128i at[4]; };

    static Singles load(const float* x) { return {{_mm_load_ps(x), _mm_load_ps(x + 4)}}; }
    static Doubles load(const double* x) { return {{_mm_load_pd(x), _mm_load_pd(x + 2), _mm_load_pd(x + 4), _mm_load_pd(x + 6)}}; }

    static Where32 greater(const Singles& v, float threshold) {
        const __m128 t = _mm_set1_ps(threshold);
        return {{_mm_castps_si128(_mm_cmpgt_ps(v.at[0], t)), _mm_castps_si128(_mm_cmpgt_ps(v.at[1], t))}};
    }
    static Where64 greater(const Doubles& v, double threshold) {
        const __m128d t = _mm_set1_pd(threshold);
        Where64 where;
        for (int r = 0; r < 4; r++) where.at[r] = _mm_castpd_si128(_mm_cmpgt_pd(v.at[r], t));
        return where;
    }
    static Where32 is_nan(const Singles& v) {
        return {{_mm_castps_si128(_mm_cmpunord_ps(v.at[0], v.at[0])), _mm_castps_si128(_mm_cmpunord_ps(v.at[1], v.at[1]))}};
    }
    static Where64 is_nan(const Doubles& v) {
        Where64 where;
        for (int r = 0; r < 4; r++) where.at[r] = _mm_castpd_si128(_mm_cmpunord_pd(v.at[r], v.at[r]));
        return where;
    }
    static bool any(const Where32& w) {
        const __m128i all = _mm_or_si128(w.at[0], w.at[1]);
        return !_mm_testz_si128(all, all);
    }
    static bool any(const Where64& w) {
        const __m128i all = _mm_or_si128(_mm_or_si128(w.at[0], w.at[1]), _mm_or_si128(w.at[2], w.at[3]));
        return !_mm_testz_si128(all, all);
    }

    // bits &= ~(where & ~mask)
    static void clear(__m128i* bits, __m128i where, __m128i mask) {
        _mm_store_si128(bits, _mm_andnot_si128(_mm_andnot_si128(mask, where), _mm_load_si128(bits)));
    }
    static void and_where(const Where32& w, uint32_t* bits, uint32_t mask) {
        const __m128i m = _mm_set1_epi32(static_cast<int>(mask));
        for (int r = 0; r < 2; r++) clear(reinterpret_cast<__m128i*>(bits) + r, w.at[r], m);
    }
    static void and_where(const Where64& w, uint64_t* bits, uint64_t mask) {
        const __m128i m = _mm_set1_epi64x(static_cast<long long>(mask));
        for (int r = 0; r < 4; r++) clear(reinterpret_cast<__m128i*>(bits) + r, w.at[r], m);
    }
    static void and_where(const Where32& w, uint64_t* bits, uint64_t mask) {
        and_where(Where64{{_mm_cvtepi32_epi64(w.at[0]), _mm_cvtepi32_epi64(_mm_srli_si128(w.at[0], 8)), _mm_cvtepi32_epi64(w.at[1]),
                           _mm_cvtepi32_epi64(_mm_srli_si128(w.at[1], 8))}},
                  bits, mask);
    }
    static void and_where(const Where64& w, uint32_t* bits, uint32_t mask) {
        // Both halves of a 64-bit lane are equal: keep one of each.
        const __m128 a = _mm_castsi128_ps(w.at[0]), b = _mm_castsi128_ps(w.at[1]);
        const __m128 c = _mm_castsi128_ps(w.at[2]), d = _mm_castsi128_ps(w.at[3]);
        and_where(Where32{{_mm_castps_si128(_mm_shuffle_ps(a, b, 0x88)), _mm_castps_si128(_mm_shuffle_ps(c, d, 0x88))}}, bits, mask);
    }
    template <class Mask> static void leftmost(const Mask* bits, uint8_t* leaf) {
        for (int k = 0; k < n; k++) leaf[k] = static_cast<uint8_t>(gpuqs::leftmost(bits[k]));
    }
};

}  // namespace
}  // namespace gpuqs
