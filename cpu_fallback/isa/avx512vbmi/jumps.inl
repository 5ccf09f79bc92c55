// Evaluates all of a word's tests at once: the bytes of their entries are looked up in registers, and so is where the walk goes on
// from each node.
#pragma once
#include <immintrin.h>

#include <cstdint>

#include "layout/rankwalk.hpp"

namespace gpuqs {
namespace {

struct Jumps {
    static constexpr bool available = true;

    template <int n> struct Registers { __m512i of[n]; };
    using Bytes = Registers<kJumpEntries / 64>;
    // Of each place: where a document goes on to the left and to the right, the place itself if that is a leaf; and the leaves' labels.
    template <int registers> struct Word { Registers<registers> entry, position, left, right, left_label, right_label; };
    // The place at which the walk from each place ends, and the label of the leaf that each place leads to.
    template <int registers> struct Ends { Registers<registers> last, label; };

    static Bytes load(const uint8_t* code) {
        Bytes bytes;
        for (int r = 0; r < kJumpEntries / 64; r++) bytes.of[r] = _mm512_loadu_si512(code + r * 64);
        return bytes;
    }
    template <int registers> static Word<registers> load(const JumpWord* words) {
        alignas(64) static constexpr uint8_t kPlaces[kJumpPlaces] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                                                     16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
                                                                     32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47,
                                                                     48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};
        Word<registers> word;
        for (int r = 0; r < registers; r++) {
            const __m512i here = _mm512_add_epi8(_mm512_load_si512(kPlaces), _mm512_set1_epi8(static_cast<char>(r * kJumpPlaces)));
            const __m512i beyond = _mm512_add_epi8(here, _mm512_set1_epi8(1)), onward = _mm512_loadu_si512(words[r].onward);
            const __m512i place = _mm512_andnot_si512(_mm512_set1_epi8(static_cast<char>(kLeafOnRight)), onward);
            const __mmask64 leaf_on_left = _mm512_cmple_epu8_mask(place, here), leaf_on_right = _mm512_movepi8_mask(onward);
            word.entry.of[r] = _mm512_loadu_si512(words[r].entry);
            word.position.of[r] = _mm512_loadu_si512(words[r].position);
            word.left.of[r] = _mm512_mask_mov_epi8(beyond, leaf_on_left, here);
            word.right.of[r] = _mm512_mask_mov_epi8(_mm512_mask_mov_epi8(place, leaf_on_left, beyond), leaf_on_right, here);
            word.left_label.of[r] = place;
            word.right_label.of[r] = beyond;
        }
        return word;
    }

    static __m512i look_up(const Registers<1>& table, __m512i at) { return _mm512_permutexvar_epi8(at, table.of[0]); }
    static __m512i look_up(const Registers<2>& table, __m512i at) { return _mm512_permutex2var_epi8(table.of[0], at, table.of[1]); }
    static __m512i look_up(const Bytes& table, __m512i at) {
        const __m512i low = _mm512_permutex2var_epi8(table.of[0], at, table.of[1]);
        const __m512i high = _mm512_permutex2var_epi8(table.of[2], at, table.of[3]);
        return _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(at), high);
    }

    // Where walks are after 2^doublings steps.
    template <int doublings, int registers> static Ends<registers> jump(const Word<registers>& word, const Bytes& bytes) {
        Registers<registers> next, label;
        for (int r = 0; r < registers; r++) {
            const __mmask64 right = _mm512_cmpgt_epu8_mask(look_up(bytes, word.entry.of[r]), word.position.of[r]);
            next.of[r] = _mm512_mask_mov_epi8(word.left.of[r], right, word.right.of[r]);
            label.of[r] = _mm512_mask_mov_epi8(word.left_label.of[r], right, word.right_label.of[r]);
        }
        for (int i = 0; i < doublings; i++) {
            const Registers<registers> known = next;
            for (int r = 0; r < registers; r++) next.of[r] = look_up(known, known.of[r]);
        }
        return {next, label};
    }
    // The label at the end of the walk from place 0; `store` stores those of the walks from all places.
    template <int registers> static uint8_t at_first(const Ends<registers>& ends) {
        return static_cast<uint8_t>(_mm_cvtsi128_si32(_mm512_castsi512_si128(look_up(ends.label, ends.last.of[0]))));
    }
    template <int registers> static void store(uint8_t* to, const Ends<registers>& ends) {
        for (int r = 0; r < registers; r++) _mm512_store_si512(to + r * 64, look_up(ends.label, ends.last.of[r]));
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
};

}  // namespace
}  // namespace gpuqs
