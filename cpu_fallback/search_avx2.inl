// Eight documents a register; tables of up to 32 thresholds are looked up by permutes, larger ones gathered.
struct Search {
    // table[answers] of a level of n * 8 thresholds.
    template <int n> static __m256 look_up(const float* table, __m256i answers) {
        if constexpr (n == 1) {
            return _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), answers);
        } else {
            const __m256 upper = _mm256_castsi256_ps(_mm256_slli_epi32(answers, 31 - __builtin_ctz(n * 4)));
            return _mm256_blendv_ps(look_up<n / 2>(table, answers), look_up<n / 2>(table + n * 4, answers), upper);
        }
    }
    template <int level> static void ask(const float* table, __m256 x, __m256i& answers, uint8_t* top, int64_t plane_bytes) {
        __m256 threshold;
        if constexpr (level == 0)
            threshold = _mm256_broadcast_ss(table);
        else if constexpr (level <= 5)
            threshold = look_up<level <= 3 ? 1 : 1 << (level - 3)>(table, answers);
        else
            threshold = _mm256_i32gather_ps(table, answers, 4);
        const __m256 answer = _mm256_cmp_ps(x, threshold, _CMP_NLE_UQ);
        answers = _mm256_or_si256(answers, _mm256_and_si256(_mm256_castps_si256(answer), _mm256_set1_epi32(1 << level)));
        top[-level * plane_bytes] = static_cast<uint8_t>(_mm256_movemask_ps(answer));
    }
    template <int n> static void levels(const float* table, const float* x, int block, uint8_t* top, int64_t plane_bytes) {
        for (int d = 0; d < block; d += 8) {
            const __m256 values = _mm256_load_ps(x + d);
            __m256i answers = _mm256_setzero_si256();
            uint8_t* at = top + d / 8;
            ask<0>(table, values, answers, at, plane_bytes);
            if constexpr (n > 1) ask<1>(table + 16, values, answers, at, plane_bytes);
            if constexpr (n > 2) ask<2>(table + 32, values, answers, at, plane_bytes);
            if constexpr (n > 3) ask<3>(table + 48, values, answers, at, plane_bytes);
            if constexpr (n > 4) ask<4>(table + 64, values, answers, at, plane_bytes);
            if constexpr (n > 5) ask<5>(table + 80, values, answers, at, plane_bytes);
            if constexpr (n > 6) ask<6>(table + 112, values, answers, at, plane_bytes);
            if constexpr (n > 7) ask<7>(table + 176, values, answers, at, plane_bytes);
        }
    }

    static void missing(const float* x, int block, uint8_t* plane) {
        for (int d = 0; d < block; d += 8) {
            const __m256 values = _mm256_load_ps(x + d);
            plane[d / 8] = static_cast<uint8_t>(_mm256_movemask_ps(_mm256_cmp_ps(values, values, _CMP_UNORD_Q)));
        }
    }
};
