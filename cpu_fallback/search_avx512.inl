// Sixteen documents a register; tables of up to 128 thresholds lie in registers and are looked up by permutes.
struct Search {
    // table[answers] of a level of n registers; asked[l]: the answers of level l, bit l of `answers`.
    template <int n> static __m512 look_up(const __m512* table, __m512i answers, const __mmask16* asked) {
        if constexpr (n == 1) {
            return _mm512_permutexvar_ps(answers, table[0]);
        } else if constexpr (n == 2) {
            return _mm512_permutex2var_ps(table[0], answers, table[1]);
        } else {
            const __mmask16 upper = asked[__builtin_ctz(n * 8)];
            return _mm512_mask_mov_ps(look_up<n / 2>(table, answers, asked), upper, look_up<n / 2>(table + n / 2, answers, asked));
        }
    }
    template <int level>
    static void ask(const __m512* table, __m512 x, __m512i& answers, __mmask16* asked, uint8_t* top, int64_t plane_bytes) {
        constexpr int n = level < 4 ? 1 : 1 << (level - 4);
        const __m512 threshold = level == 0 ? table[0] : look_up<n>(table, answers, asked);
        asked[level] = _mm512_cmp_ps_mask(x, threshold, _CMP_NLE_UQ);
        answers = _mm512_mask_or_epi32(answers, asked[level], answers, _mm512_set1_epi32(1 << level));
        __builtin_memcpy(top - level * plane_bytes, asked + level, 2);
    }
    template <int n> static void levels(const float* table, const float* x, int block, uint8_t* top, int64_t plane_bytes) {
        constexpr int n_registers = n <= 5 ? n : 3 + (1 << (n - 4));
        __m512 of_level[n_registers];
        for (int r = 0; r < n_registers; r++) of_level[r] = _mm512_loadu_ps(table + 16 * r);
        of_level[0] = _mm512_broadcastss_ps(_mm512_castps512_ps128(of_level[0]));
        for (int d = 0; d < block; d += 16) {
            const __m512 values = _mm512_load_ps(x + d);
            __m512i answers = _mm512_setzero_si512();
            __mmask16 asked[n];
            uint8_t* at = top + d / 8;
            ask<0>(of_level, values, answers, asked, at, plane_bytes);
            if constexpr (n > 1) ask<1>(of_level + 1, values, answers, asked, at, plane_bytes);
            if constexpr (n > 2) ask<2>(of_level + 2, values, answers, asked, at, plane_bytes);
            if constexpr (n > 3) ask<3>(of_level + 3, values, answers, asked, at, plane_bytes);
            if constexpr (n > 4) ask<4>(of_level + 4, values, answers, asked, at, plane_bytes);
            if constexpr (n > 5) ask<5>(of_level + 5, values, answers, asked, at, plane_bytes);
            if constexpr (n > 6) ask<6>(of_level + 7, values, answers, asked, at, plane_bytes);
            if constexpr (n > 7) ask<7>(of_level + 11, values, answers, asked, at, plane_bytes);
        }
    }

    static void missing(const float* x, int block, uint8_t* plane) {
        for (int d = 0; d < block; d += 16) {
            const __m512 values = _mm512_load_ps(x + d);
            const __mmask16 is_nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
            __builtin_memcpy(plane + d / 8, &is_nan, 2);
        }
    }
};
