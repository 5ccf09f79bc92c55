// All of a word's tests at once: its entries' bytes are looked up in four registers.
#pragma once
#include <immintrin.h>

#include <cstdint>

#include "layout/rankwalk.hpp"

namespace gpuqs {
namespace {

struct Paths {
    static constexpr bool here = true;

    struct Bytes { __m512i of[4]; };

    static Bytes load(const uint8_t* code) {
        return {
            {_mm512_loadu_si512(code), _mm512_loadu_si512(code + 64), _mm512_loadu_si512(code + 128), _mm512_loadu_si512(code + 192)}};
    }

    // Whose bytes exceed their positions.
    static uint64_t ask(const PathTests& tests, const Bytes& bytes) {
        const __m512i entry = _mm512_load_si512(tests.entry), position = _mm512_load_si512(tests.position);
        const __mmask64 odd = _mm512_test_epi8_mask(entry, _mm512_set1_epi8(0x40)), upper = _mm512_movepi8_mask(entry);
        const __m512i low = _mm512_mask_permutexvar_epi8(_mm512_permutexvar_epi8(entry, bytes.of[0]), odd, entry, bytes.of[1]);
        const __m512i high = _mm512_mask_permutexvar_epi8(_mm512_permutexvar_epi8(entry, bytes.of[2]), odd, entry, bytes.of[3]);
        return _mm512_cmpgt_epu8_mask(_mm512_mask_mov_epi8(low, upper, high), position);
    }

    // How many of a block of thresholds lie below x.
    static int below(const float* threshold, float x) {
        return __builtin_popcount(_mm512_cmp_ps_mask(_mm512_load_ps(threshold), _mm512_set1_ps(x), _CMP_LT_OQ));
    }
    static int below(const double* threshold, double x) {
        const __m512d value = _mm512_set1_pd(x);
        return __builtin_popcount(_mm512_cmp_pd_mask(_mm512_load_pd(threshold), value, _CMP_LT_OQ) |
                                  _mm512_cmp_pd_mask(_mm512_load_pd(threshold + 8), value, _CMP_LT_OQ) << 8);
    }

    // `a` where the bit is set, else b: without a branch, which nobody could predict, whatever a compiler sees in what follows.
    static uint64_t either(uint64_t word, uint64_t bit, uint64_t a, uint64_t b) {
        asm("bt %2, %1\n\tcmovc %3, %0" : "+r"(b) : "r"(word), "r"(bit), "r"(a) : "cc");
        return b;
    }
};

}  // namespace
}  // namespace gpuqs
