// Three levels at once: a register holds the seven thresholds of a document's row, all compared by one instruction. The results are
// summed within registers, as bytes and words, because counting bits document by document would take longer.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace gpuqs {
namespace {

struct Rows {
    // Searches levels level ... level + 2; `answers` holds those to the levels before, `top` is the plane of the first.
    template <bool ties>
    static bool search(const float* rows, int level, const float* x, int n_documents, uint32_t* answers, uint8_t* top,
                       int64_t plane_bytes) {
        __m256 tie = _mm256_setzero_ps();
        const __m256i reversed = _mm256_setr_epi32(0, 4, 2, 6, 1, 5, 3, 7);  // puts the first answer in bit 0
        for (int d = 0; d < n_documents; d += 8) {
            __m256i above[8];
#pragma GCC unroll 8
            for (int k = 0; k < 8; k++) {
                const __m256 value = _mm256_broadcast_ss(x + d + k), row = _mm256_load_ps(rows + int64_t{8} * answers[d + k]);
                if (ties) tie = _mm256_or_ps(tie, _mm256_cmp_ps(value, row, _CMP_EQ_OQ));
                above[k] = _mm256_castps_si256(_mm256_cmp_ps(value, row, _CMP_NLE_UQ));
            }
            // For four documents: how many of a row's thresholds the value is above, among the lower four and among the upper four.
            const auto count = [](const __m256i* of) {
                const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(of[0], of[1]), _mm256_packs_epi32(of[2], of[3]));
                return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes), _mm256_set1_epi16(-1));
            };
            const __m256i low = count(above), high = count(above + 4);
            __m256i below = _mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2x128_si256(low, high, 0x31));
            below = _mm256_min_epi32(below, _mm256_set1_epi32(7));  // a missing value is above the row's padding, too
            for (int l = 0; l < 3; l++)
                top[d / 8 - l * plane_bytes] =
                    static_cast<uint8_t>(_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_slli_epi32(below, 29 + l))));
            __m256i* const to = reinterpret_cast<__m256i*>(answers + d);
            const __m256i three = _mm256_slli_epi32(_mm256_permutevar8x32_epi32(reversed, below), level);
            _mm256_store_si256(to, _mm256_or_si256(_mm256_load_si256(to), three));
        }
        return ties && _mm256_movemask_ps(tie) != 0;
    }
};

}  // namespace
}  // namespace gpuqs
