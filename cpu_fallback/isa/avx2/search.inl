// Eight documents per register, up to four registers side by side: a level's thresholds are loaded once for all of them. Tables
// of up to 32 thresholds are looked up by permutes, larger ones by rows. Answers are packed into bytes first, from which one
// instruction takes a plane's bits of 32 documents.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace gpuqs {
namespace {

// Packs numbers below 128, or masks, from registers of eight into bytes in the documents' order. From two registers, only the
// first half of the bytes is meaningful.
template <int registers> inline __m256i to_bytes(const __m256i (&of)[registers]) {
    const __m256i low = _mm256_packs_epi32(of[0], of[1]);
    const __m256i high = registers == 2 ? low : _mm256_packs_epi32(of[registers - 2], of[registers - 1]);
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// Stores the highest bit of each byte, for eight documents per register.
template <int registers> inline void store_plane(__m256i bytes, uint8_t* plane) {
    const uint32_t bits = static_cast<uint32_t>(_mm256_movemask_epi8(bytes));
    __builtin_memcpy(plane, &bits, registers);
}

struct Search {
    static constexpr int kLevels = 6;

    // A level's table in registers: entries are looked up by the answers so far.
    template <int level> struct Table {
        static constexpr int kRegisters = level <= 3 ? 1 : 1 << (level - 3);
        __m256 part[kRegisters];

        explicit Table(const float* table) {
            if constexpr (level == 0) {
                part[0] = _mm256_broadcast_ss(table);
            } else if constexpr (level <= 2) {
                part[0] = _mm256_broadcast_ps(reinterpret_cast<const __m128*>(table));
            } else {
#pragma GCC unroll 4
                for (int r = 0; r < kRegisters; r++) part[r] = _mm256_loadu_ps(table + 8 * r);
            }
        }
        __m256 look_up(__m256i answers) const {
            if constexpr (level == 0)
                return part[0];
            else if constexpr (level <= 2)
                return _mm256_permutevar_ps(part[0], answers);  // within 128 bits, at half a permute's cost
            else
                return among<kRegisters>(0, answers);
        }

    private:
        template <int n> __m256 among(int first, __m256i answers) const {
            if constexpr (n == 1) {
                return _mm256_permutevar8x32_ps(part[first], answers);
            } else {
                const __m256 upper = _mm256_castsi256_ps(_mm256_slli_epi32(answers, 31 - __builtin_ctz(n * 4)));
                return _mm256_blendv_ps(among<n / 2>(first, answers), among<n / 2>(first + n / 2, answers), upper);
            }
        }
    };

    // Searches levels level ... n - 1; `tie` collects the lanes that equal a threshold. `last` gets the mask of level n - 1, whose
    // answers come into `answers` only if `keeps`. Inlined, so that compilers keep answers in registers.
    template <int level, int n, int registers, bool ties, bool keeps>
    [[gnu::always_inline]] static inline void search_from(const float* table, const float* x, __m256i (&answers)[registers],
                                                          __m256i (&last)[registers], __m256& tie) {
        if constexpr (level < n) {
            const Table<level> thresholds(table);
#pragma GCC unroll 4
            for (int r = 0; r < registers; r++) {
                const __m256 threshold = thresholds.look_up(answers[r]), values = _mm256_loadu_ps(x + 8 * r);
                const __m256i above = _mm256_castps_si256(_mm256_cmp_ps(values, threshold, _CMP_NLE_UQ));
                if (ties) tie = _mm256_or_ps(tie, _mm256_cmp_ps(values, threshold, _CMP_EQ_OQ));
                if constexpr (keeps || level < n - 1)
                    answers[r] = _mm256_or_si256(answers[r], _mm256_and_si256(above, _mm256_set1_epi32(1 << level)));
                else
                    last[r] = above;
            }
            search_from<level + 1, n, registers, ties, keeps>(table + (level < 4 ? 16 : 1 << level), x, answers, last, tie);
        }
    }
    template <int n, int registers, bool ties, bool keeps>
    static bool all(const float* table, const float* x, int n_documents, uint8_t* top, int64_t plane_bytes, uint32_t* kept) {
        __m256 tie = _mm256_setzero_ps();
        for (int d = 0; d < n_documents; d += 8 * registers, top += registers) {
            __m256i answers[registers] = {}, last[registers];
            search_from<0, n, registers, ties, keeps>(table, x + d, answers, last, tie);
            for (int r = 0; keeps && r < registers; r++) _mm256_store_si256(reinterpret_cast<__m256i*>(kept + d) + r, answers[r]);
            constexpr int n_in_bytes = keeps ? n : n - 1;
            if constexpr (n_in_bytes > 0) {
                const __m256i bytes = to_bytes(answers);
#pragma GCC unroll 8
                for (int level = 0; level < n_in_bytes; level++)
                    store_plane<registers>(_mm256_slli_epi64(bytes, 7 - level), top - level * plane_bytes);
            }
            // A mask is a plane as it is: cheaper than putting its bits among the answers.
            if constexpr (!keeps) store_plane<registers>(to_bytes(last), top - (n - 1) * plane_bytes);
        }
        return ties && _mm256_movemask_ps(tie) != 0;
    }
    template <int n, bool ties, bool keeps>
    static bool levels(const float* table, const float* x, int n_documents, uint8_t* top, int64_t plane_bytes, uint32_t* kept) {
        const auto search = n_documents < 32 ? all<n, 2, ties, keeps> : all<n, 4, ties, keeps>;  // blocks have at least sixteen
        return search(table, x, n_documents, top, plane_bytes, kept);
    }

    template <int registers> static void all_missing(const float* x, int n_documents, uint8_t* plane) {
        for (int d = 0; d < n_documents; d += 8 * registers) {
            __m256i are[registers];
#pragma GCC unroll 4
            for (int r = 0; r < registers; r++) {
                const __m256 values = _mm256_loadu_ps(x + d + 8 * r);
                are[r] = _mm256_castps_si256(_mm256_cmp_ps(values, values, _CMP_UNORD_Q));
            }
            store_plane<registers>(to_bytes(are), plane + d / 8);
        }
    }
    static void missing(const float* x, int n_documents, uint8_t* plane) {
        n_documents < 32 ? all_missing<2>(x, n_documents, plane) : all_missing<4>(x, n_documents, plane);
    }
};

}  // namespace
}  // namespace gpuqs
