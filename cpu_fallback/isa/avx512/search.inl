// Sixteen documents per register; tables of up to 128 thresholds are in registers and are looked up by permutes. Up to eight
// registers of documents search each level side by side: a single one would wait for its previous answer, and several share a
// level's loads.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace gpuqs {
namespace {

struct Search {
    static constexpr int kLevels = 8;

    // table[answers] of a level of n registers; above[l] marks the values above their thresholds of level l, as does bit l of `answers`.
    template <int n> [[gnu::always_inline]] static inline __m512 look_up(const __m512* table, __m512i answers, const __mmask16* above) {
        if constexpr (n == 1) {
            return _mm512_permutexvar_ps(answers, table[0]);
        } else if constexpr (n == 2) {
            return _mm512_permutex2var_ps(table[0], answers, table[1]);
        } else {
            const __mmask16 upper = above[__builtin_ctz(n * 8)];
            return _mm512_mask_mov_ps(look_up<n / 2>(table, answers, above), upper, look_up<n / 2>(table + n / 2, answers, above));
        }
    }
    // Searches levels level ... n - 1 for `side` registers of documents; `tie` collects the lanes that equal a threshold. Tables are
    // loaded level by level, so that compilers keep one level's tables and all answers in registers: Clang does so only if this
    // function is inlined.
    template <int level, int n, int side, bool ties>
    [[gnu::always_inline]] static inline void search_from(const float* tables, const float* x, __m512i* answers, __mmask16 (*above)[8],
                                                          uint8_t* top, int64_t plane_bytes, __mmask16* tie) {
        if constexpr (level < n) {
            constexpr int n_registers = level < 4 ? 1 : 1 << (level - 4);
            __m512 table[n_registers];
#pragma GCC unroll 8
            for (int r = 0; r < n_registers; r++) table[r] = level == 0 ? _mm512_set1_ps(*tables) : _mm512_loadu_ps(tables + 16 * r);
#pragma GCC unroll 8
            for (int s = 0; s < side; s++) {
                const __m512 threshold = level == 0 ? table[0] : look_up<n_registers>(table, answers[s], above[s]);
                const __m512 values = _mm512_loadu_ps(x + 16 * s);
                above[s][level] = _mm512_cmp_ps_mask(values, threshold, _CMP_NLE_UQ);
                if (ties) *tie |= _mm512_cmp_ps_mask(values, threshold, _CMP_EQ_OQ);
                answers[s] = _mm512_mask_or_epi32(answers[s], above[s][level], answers[s], _mm512_set1_epi32(1 << level));
                __builtin_memcpy(top - level * plane_bytes + 2 * s, &above[s][level], 2);
            }
            search_from<level + 1, n, side, ties>(tables + 16 * n_registers, x, answers, above, top, plane_bytes, tie);
        }
    }
    template <int n, int side, bool ties, bool keeps>
    static void search_all(const float* tables, const float* x, uint8_t* top, int64_t plane_bytes, __mmask16* tie, uint32_t* kept) {
        __m512i answers[side];
        __mmask16 above[side][8];
#pragma GCC unroll 8
        for (int s = 0; s < side; s++) answers[s] = _mm512_setzero_si512();
        search_from<0, n, side, ties>(tables, x, answers, above, top, plane_bytes, tie);
        for (int s = 0; keeps && s < side; s++) _mm512_store_si512(kept + 16 * s, answers[s]);
    }
    // Searches groups of `side` full registers of documents, from d on; returns the first document left over.
    template <int n, int side, bool ties, bool keeps>
    static int search_side_by_side(const float* tables, const float* x, int d, int n_documents, uint8_t* top, int64_t plane_bytes,
                                   __mmask16* tie, uint32_t* kept) {
        for (; d + 16 * side <= n_documents; d += 16 * side)
            search_all<n, side, ties, keeps>(tables, x + d, top + d / 8, plane_bytes, tie, kept + d);
        return d;
    }
    template <int n, bool ties, bool keeps>
    static bool levels(const float* tables, const float* x, int n_documents, uint8_t* top, int64_t plane_bytes, uint32_t* kept) {
        __mmask16 tie = 0;
        int d = search_side_by_side<n, 8, ties, keeps>(tables, x, 0, n_documents, top, plane_bytes, &tie, kept);
        d = search_side_by_side<n, 4, ties, keeps>(tables, x, d, n_documents, top, plane_bytes, &tie, kept);
        search_side_by_side<n, 1, ties, keeps>(tables, x, d, n_documents, top, plane_bytes, &tie, kept);
        return tie != 0;
    }

    static void missing(const float* x, int n_documents, uint8_t* plane) {
        for (int d = 0; d < n_documents; d += 16) {
            const __m512 values = _mm512_loadu_ps(x + d);
            const __mmask16 is_nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
            __builtin_memcpy(plane + d / 8, &is_nan, 2);
        }
    }
};

}  // namespace
}  // namespace gpuqs
