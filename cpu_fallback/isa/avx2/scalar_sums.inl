// Sums of doubles, four documents per register.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <type_traits>

namespace gpuqs {
namespace {

struct ScalarSums {
    // Adds the leaves of the first documents, as add_side_by_side does; returns for how many.
    template <class Value, class Sum, class Leaf>
    [[gnu::always_inline]] static inline int add_by_registers(const Value* value, const int64_t* offsets, int n_trees, int step,
                                                              const Leaf* leaf, int n, int stride, Sum* sums) {
        int d = 0;
        if constexpr (std::is_same_v<Value, double> && sizeof(Leaf) == 1) {
            for (; d + 16 <= n; d += 16) add_by_fours<2>(value, offsets, n_trees, step, leaf + d, stride, sums + d);
            if (n - d >= 8) add_by_fours<1>(value, offsets, n_trees, step, leaf + d, stride, sums + d), d += 8;
        }
        return d;
    }

private:
    // 8 or 16 documents, four per register: values are loaded into their lanes and added four at a time. Adding them one by one takes
    // half as long again on Zen 3.
    template <int eights>
    static void add_by_fours(const double* value, const int64_t* offsets, int n_trees, int step, const uint8_t* leaf, int stride,
                             double* sums) {
        __m256d s[2 * eights];
        for (int r = 0; r < 2 * eights; r++) s[r] = _mm256_loadu_pd(sums + 4 * r);
        for (int t = 0; t < n_trees; t++, offsets += step, leaf += static_cast<int64_t>(step) * stride) {
            const double* of_tree = value + *offsets;
#pragma GCC unroll 2
            for (int e = 0; e < eights; e++) {
                uint64_t leaves;
                __builtin_memcpy(&leaves, leaf + 8 * e, sizeof leaves);
                const auto next = [&] {
                    const double* const at = of_tree + static_cast<uint8_t>(leaves);
                    leaves >>= 8;
                    return at;
                };
                const auto two = [&] {
                    const __m128d low = _mm_load_sd(next());
                    return _mm_loadh_pd(low, next());
                };
#pragma GCC unroll 2
                for (int r = 2 * e; r < 2 * e + 2; r++) {
                    const __m128d low = two(), high = two();
                    s[r] = _mm256_add_pd(s[r], _mm256_set_m128d(high, low));
                }
            }
        }
        for (int r = 0; r < 2 * eights; r++) _mm256_storeu_pd(sums + 4 * r, s[r]);
    }
};

}  // namespace
}  // namespace gpuqs
