// Eight documents a register; tables of up to 32 thresholds are looked up by permutes, larger ones by rows. Two
// registers of documents take each level side by side: one alone would wait for its last answer.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace gpuqs {
namespace {

struct Search {
    static constexpr int kLevels = 6;

    // table[answers] of a level of n * 8 thresholds.
    template <int n> static __m256 look_up(const float* table, __m256i answers) {
        if constexpr (n == 1) {
            return _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), answers);
        } else {
            const __m256 upper = _mm256_castsi256_ps(_mm256_slli_epi32(answers, 31 - __builtin_ctz(n * 4)));
            return _mm256_blendv_ps(look_up<n / 2>(table, answers), look_up<n / 2>(table + n * 4, answers), upper);
        }
    }
    // Levels level ... n - 1 of `side` registers of documents; `tie` gets those that equal a threshold.
    template <int level, int n, int side, bool ties>
    static void ask(const float* table, const float* x, __m256i* answers, uint8_t* top, int64_t plane_bytes, __m256* tie) {
        if constexpr (level < n) {
#pragma GCC unroll 2
            for (int s = 0; s < side; s++) {
                __m256 threshold;
                if constexpr (level == 0)
                    threshold = _mm256_broadcast_ss(table);
                else
                    threshold = look_up<level <= 3 ? 1 : 1 << (level - 3)>(table, answers[s]);
                const __m256 values = _mm256_loadu_ps(x + 8 * s);
                const __m256 answer = _mm256_cmp_ps(values, threshold, _CMP_NLE_UQ);
                if (ties) tie[s] = _mm256_or_ps(tie[s], _mm256_cmp_ps(values, threshold, _CMP_EQ_OQ));
                answers[s] = _mm256_or_si256(answers[s], _mm256_and_si256(_mm256_castps_si256(answer), _mm256_set1_epi32(1 << level)));
                top[s - level * plane_bytes] = static_cast<uint8_t>(_mm256_movemask_ps(answer));
            }
            ask<level + 1, n, side, ties>(table + (level < 4 ? 16 : 1 << level), x, answers, top, plane_bytes, tie);
        }
    }
    template <int n, bool ties, bool keeps>
    static bool levels(const float* table, const float* x, int n_documents, uint8_t* top, int64_t plane_bytes, uint32_t* kept) {
        constexpr int side = 2;  // blocks are of sixteen documents at least
        __m256 tie[side] = {};
        for (int d = 0; d < n_documents; d += 8 * side) {
            __m256i answers[side];
            for (int s = 0; s < side; s++) answers[s] = _mm256_setzero_si256();
            ask<0, n, side, ties>(table, x + d, answers, top + d / 8, plane_bytes, tie);
            for (int s = 0; keeps && s < side; s++) _mm256_store_si256(reinterpret_cast<__m256i*>(kept + d) + s, answers[s]);
        }
        return ties && _mm256_movemask_ps(_mm256_or_ps(tie[0], tie[1])) != 0;
    }

    static void missing(const float* x, int n_documents, uint8_t* plane) {
        for (int d = 0; d < n_documents; d += 8) {
            const __m256 values = _mm256_loadu_ps(x + d);
            plane[d / 8] = static_cast<uint8_t>(_mm256_movemask_ps(_mm256_cmp_ps(values, values, _CMP_UNORD_Q)));
        }
    }
};

}  // namespace
}  // namespace gpuqs
