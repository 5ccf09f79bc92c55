// AVX-512: sixteen floats or eight doubles per register; sixteen documents at a time, with comparisons in mask registers.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace gpuqs {
namespace {

struct Lanes {
    static constexpr int n = 16;
    struct Doubles { __m512d at[2]; };

    static __m512 load(const float* x) { return _mm512_load_ps(x); }
    static Doubles load(const double* x) { return {{_mm512_load_pd(x), _mm512_load_pd(x + 8)}}; }

    static __mmask16 greater(__m512 v, float threshold) { return _mm512_cmp_ps_mask(v, _mm512_set1_ps(threshold), _CMP_GT_OQ); }
    static __mmask16 greater(const Doubles& v, double threshold) {
        const __m512d t = _mm512_set1_pd(threshold);
        return both(_mm512_cmp_pd_mask(v.at[0], t, _CMP_GT_OQ), _mm512_cmp_pd_mask(v.at[1], t, _CMP_GT_OQ));
    }
    static __mmask16 is_nan(__m512 v) { return _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q); }
    static __mmask16 is_nan(const Doubles& v) {
        return both(_mm512_cmp_pd_mask(v.at[0], v.at[0], _CMP_UNORD_Q), _mm512_cmp_pd_mask(v.at[1], v.at[1], _CMP_UNORD_Q));
    }
    static __mmask16 both(__mmask8 low, __mmask8 high) { return static_cast<__mmask16>(low | high << 8); }
    static bool any(__mmask16 where) { return where != 0; }

    static void and_where(__mmask16 where, uint32_t* bits, uint32_t mask) {
        const __m512i old = _mm512_load_si512(bits);
        _mm512_store_si512(bits, _mm512_mask_and_epi32(old, where, old, _mm512_set1_epi32(static_cast<int>(mask))));
    }
    static void and_where(__mmask16 where, uint64_t* bits, uint64_t mask) {
        const __m512i m = _mm512_set1_epi64(static_cast<long long>(mask));
        const __m512i low = _mm512_load_si512(bits), high = _mm512_load_si512(bits + 8);
        _mm512_store_si512(bits, _mm512_mask_and_epi64(low, static_cast<__mmask8>(where), low, m));
        _mm512_store_si512(bits + 8, _mm512_mask_and_epi64(high, static_cast<__mmask8>(where >> 8), high, m));
    }
    static void leftmost(const uint32_t* bits, uint8_t* leaf) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(leaf), _mm512_cvtepi32_epi8(_mm512_lzcnt_epi32(_mm512_load_si512(bits))));
    }
    static void leftmost(const uint64_t* bits, uint8_t* leaf) {
        _mm_storel_epi64(reinterpret_cast<__m128i*>(leaf), _mm512_cvtepi64_epi8(_mm512_lzcnt_epi64(_mm512_load_si512(bits))));
        _mm_storel_epi64(reinterpret_cast<__m128i*>(leaf + 8), _mm512_cvtepi64_epi8(_mm512_lzcnt_epi64(_mm512_load_si512(bits + 8))));
    }
};

}  // namespace
}  // namespace gpuqs
