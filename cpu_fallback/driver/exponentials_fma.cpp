// exponentials in vectors: glibc's operations on each number, in loops that compilers vectorize. For AVX2 and FMA.
//
//   x = (k / 128) ln 2 + r, k an integer:  exp(x) = 2^(k / 128) (1 + r + c2 r^2 + ... + c5 r^5)      (floats: k / 32, up to r^3)
//
// Each `fma` stands where compilers fuse a multiply and an add of glibc's source. CatBoost's exponentials have none.
#include <cstdint>
#include <cstring>

#include "driver/exponentials.hpp"

namespace gpuqs {
namespace {

struct Power {
    uint64_t bits;
    double tail;
};
constexpr Power kPowers[128] = {
#include "../cuda/powers_of_two.cuh"
};
constexpr double kInverseLn2 = 0x1.71547652b82fep0;
constexpr double kRound = 0x1.8p52;  // adding it rounds a number to an integer, in the lowest bits

inline double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
inline uint64_t bits_of(double x) {
    uint64_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}
inline double double_of(uint64_t bits) {
    double x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

bool doubles(const double* x, int64_t n, double* __restrict out) {
    constexpr double ln2_high = 0x1.62e42fefa0000p-8, ln2_low = 0x1.cf79abc9e3b39p-47;  // of ln(2) / 128
    constexpr double c2 = 0x1.ffffffffffdbdp-2, c3 = 0x1.555555555543cp-3, c4 = 0x1.55555cf172b91p-5, c5 = 0x1.1111167a4d017p-7;
    int64_t n_fit = 0;
    for (int64_t i = 0; i < n; i++) {
        n_fit += __builtin_fabs(x[i]) < kMaxExponent;
        const double moved = fma(128 * kInverseLn2, x[i], kRound), k = moved - kRound;
        const double r = fma(k, -ln2_low, fma(k, -ln2_high, x[i])), r2 = r * r;
        const int place = static_cast<int>(bits_of(moved) & 127);
        const double power = double_of(kPowers[place].bits + (bits_of(moved) << 45));
        const double sum = fma(r2 * r2, fma(r, c5, c4), fma(r2, fma(r, c3, c2), kPowers[place].tail + r));
        out[i] = fma(power, sum, power);
    }
    return n_fit == n;
}

bool floats(const float* x, int64_t n, float* __restrict out) {
    constexpr double c1 = 0x1.62e42ff0c52d6p-1 / 32, c2 = 0x1.ebfce50fac4f3p-3 / 32 / 32, c3 = 0x1.c6af84b912394p-5 / 32 / 32 / 32;
    int64_t n_fit = 0;
    for (int64_t i = 0; i < n; i++) {
        n_fit += __builtin_fabsf(x[i]) < kMaxFloatExponent;
        const double moved = fma(32 * kInverseLn2, x[i], kRound), r = fma(32 * kInverseLn2, x[i], kRound - moved);
        const double power = double_of(kPowers[4 * (bits_of(moved) & 31)].bits + (bits_of(moved) << 47));
        out[i] = static_cast<float>(fma(fma(c3, r, c2), r * r, fma(c1, r, 1)) * power);
    }
    return n_fit == n;
}

#include "driver/table_exponentials.inl"

}  // namespace

extern const VectorExponentials vector_exponentials = {doubles, floats, by_table};

}  // namespace gpuqs
