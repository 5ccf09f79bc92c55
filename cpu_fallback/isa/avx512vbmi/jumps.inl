// All of a word's tests at once: its entries' bytes are looked up in registers, and so is where each node's way leads.
#pragma once
#include <immintrin.h>

#include <cstdint>

#include "layout/rankwalk.hpp"

namespace gpuqs {
namespace {

struct Jumps {
    static constexpr bool here = true;

    struct Bytes { __m512i of[4]; };
    struct Word { __m512i entry, position, right, first; };
    using Labels = __m512i;

    static Bytes load(const uint8_t* code) {
        return {
            {_mm512_loadu_si512(code), _mm512_loadu_si512(code + 64), _mm512_loadu_si512(code + 128), _mm512_loadu_si512(code + 192)}};
    }
    static Word load(const JumpWord& word) {
        return {_mm512_load_si512(word.entry), _mm512_load_si512(word.position), _mm512_load_si512(word.right),
                _mm512_load_si512(word.first)};
    }

    // From each place, after 2^doublings steps, the label of the leaf.
    template <int doublings> static Labels labels(const Word& word, const Bytes& bytes) {
        alignas(64) static constexpr uint8_t kPlaces[kJumpPlaces] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                                                     16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
                                                                     32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47,
                                                                     48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};
        const __m512i here = _mm512_load_si512(kPlaces), beyond = _mm512_add_epi8(here, _mm512_set1_epi8(1));
        const __m512i low = _mm512_permutex2var_epi8(bytes.of[0], word.entry, bytes.of[1]);
        const __m512i high = _mm512_permutex2var_epi8(bytes.of[2], word.entry, bytes.of[3]);
        const __m512i byte = _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(word.entry), high);
        const __mmask64 right = _mm512_cmpgt_epu8_mask(byte, word.position);
        const __m512i on_left = _mm512_mask_mov_epi8(beyond, _mm512_movepi8_mask(word.first), here);
        __m512i next = _mm512_mask_mov_epi8(on_left, right, word.right);
        for (int i = 0; i < doublings; i++) next = _mm512_permutexvar_epi8(next, next);
        return _mm512_permutexvar_epi8(next, _mm512_mask_mov_epi8(word.first, right, beyond));
    }
    static uint8_t first(Labels labels) { return static_cast<uint8_t>(_mm_cvtsi128_si32(_mm512_castsi512_si128(labels))); }
    static void store(uint8_t* to, Labels labels) { _mm512_store_si512(to, labels); }

    // How many of a block of thresholds lie below x.
    static int below(const float* threshold, float x) {
        return __builtin_popcount(_mm512_cmp_ps_mask(_mm512_load_ps(threshold), _mm512_set1_ps(x), _CMP_LT_OQ));
    }
    static int below(const double* threshold, double x) {
        const __m512d value = _mm512_set1_pd(x);
        return __builtin_popcount(_mm512_cmp_pd_mask(_mm512_load_pd(threshold), value, _CMP_LT_OQ) |
                                  _mm512_cmp_pd_mask(_mm512_load_pd(threshold + 8), value, _CMP_LT_OQ) << 8);
    }
};

}  // namespace
}  // namespace gpuqs
