// exp, exp2 and log1p, using only additions, multiplications, explicitly fused multiply-adds and divisions of doubles: the same bits
// on every device, and no instruction that flushes denormals (CUDA's own functions have some). exp gives the CPU's bits, which are
// glibc's, as in cpu_fallback/driver/exponentials_fma.cpp. The others lie within 2 ulps of the true value.
#pragma once
#include "common.cuh"

constexpr double LOG2_E = 0x1.71547652b82fep+0;
constexpr double LN2 = 0x1.62e42fefa39efp-1;
constexpr double LN2_HIGH = 0x1.62e42fefap-1;  // 36 bits, so that products with exponents are exact
constexpr double LN2_LOW = 0x1.cf79abc9e3b3ap-40;
constexpr double SQRT2 = 0x1.6a09e667f3bcdp+0;

__device__ __forceinline__ double infinity() { return __longlong_as_double(0x7ff0000000000000ll); }

__device__ __forceinline__ int nearest(double x) { return static_cast<int>(x < 0 ? x - 0.5 : x + 0.5); }

// 2^n for a normal result.
__device__ __forceinline__ double power_of_two(int n) { return __longlong_as_double((n + 1023ll) << 52); }

// 2^n e^(high - low) for |high| <= ln(2) / 2, by Taylor's series.
__device__ __forceinline__ double scaled_exp(double high, double low, int n) {
    const double r = high - low;
    double sum = 1 / 6227020800.0;  // 1 / 13!
    sum = 1 / 479001600.0 + r * sum;
    sum = 1 / 39916800.0 + r * sum;
    sum = 1 / 3628800.0 + r * sum;
    sum = 1 / 362880.0 + r * sum;
    sum = 1 / 40320.0 + r * sum;
    sum = 1 / 5040.0 + r * sum;
    sum = 1 / 720.0 + r * sum;
    sum = 1 / 120.0 + r * sum;
    sum = 1 / 24.0 + r * sum;
    sum = 1 / 6.0 + r * sum;
    sum = 1 / 2.0 + r * sum;
    const double mantissa = 1 + (high + (r * r * sum - low));
    return mantissa * power_of_two(n / 2) * power_of_two(n - n / 2);  // one rounding where the result is denormal
}

struct Power {
    u64 bits;
    double tail;
};
__device__ const Power POWERS[128] = {
#include "powers_of_two.cuh"
};
constexpr double ROUND = 0x1.8p52;  // a number added to it is rounded to an integer, in the lowest bits

__device__ __forceinline__ double exp_of(double x) {
    if (!(x < 1024)) return x > 0 ? infinity() : x;  // NaN stays
    if (x <= -1024) return 0;
    const double moved = __fma_rn(128 * LOG2_E, x, ROUND), k = moved - ROUND;
    const double r = __fma_rn(k, -0x1.cf79abc9e3b39p-47, __fma_rn(k, -0x1.62e42fefa0000p-8, x)), square = r * r;
    const Power power = POWERS[__double_as_longlong(moved) & 127];
    const u64 bits = power.bits + (static_cast<u64>(__double_as_longlong(moved)) << 45);
    double sum = __fma_rn(square, __fma_rn(r, 0x1.555555555543cp-3, 0x1.ffffffffffdbdp-2), power.tail + r);
    sum = __fma_rn(square * square, __fma_rn(r, 0x1.1111167a4d017p-7, 0x1.55555cf172b91p-5), sum);
    // If the power by itself would not be a normal number, it is first scaled towards 1.
    const u64 nearer = x >= 512 ? bits - (1009ull << 52) : x <= -512 ? bits + (1022ull << 52) : bits;
    const double scale = __longlong_as_double(static_cast<i64>(nearer));
    if (x > -512) return __fma_rn(scale, sum, scale) * (x >= 512 ? 0x1p1009 : 1);
    const double more = scale * sum, y = scale + more;  // compilers do not fuse these
    if (y >= 1) return 0x1p-1022 * y;
    const double high = 1 + y, low = 1 - high + y + (scale - y + more);  // rounded once, as a denormal number
    return 0x1p-1022 * (high + low - 1);
}

__device__ __forceinline__ double exp2_of(double x) {
    if (!(x < 1025)) return x > 0 ? infinity() : x;
    if (x < -1076) return 0;
    const int n = nearest(x);
    return scaled_exp((x - n) * LN2, 0, n);
}

// For j = 0 ... 15: the double nearest to 2^(j / 2048), and its relative error, (2^(j / 2048) - value) / value.
struct SmallPower { double value, tail; };
__device__ const SmallPower SMALL_POWERS[16] = {
    {1, 0},
    {0x1.00162f3904052p+0, -0x1.7b3c30384283fp-58},
    {0x1.002c605e2e8cfp+0, -0x1.d777b512a4e81p-55},
    {0x1.0042936faa3d8p+0, -0x1.044075d15ad27p-55},
    {0x1.0058c86da1c0ap+0, -0x1.5d87ade1f60d5p-56},
    {0x1.006eff583fc3dp+0, -0x1.4a3fe89c8be1cp-54},
    {0x1.0085382faef83p+0, 0x1.d99d8240de269p-56},
    {0x1.009b72f41a12bp+0, 0x1.8549ecff22703p-54},
    {0x1.00b1afa5abcbfp+0, -0x1.4e82fc61851acp-55},
    {0x1.00c7ee448ee02p+0, 0x1.426700387d05fp-56},
    {0x1.00de2ed0ee0f5p+0, -0x1.3f559e42db74bp-57},
    {0x1.00f4714af41d3p+0, -0x1.9033e377774dcp-54},
    {0x1.010ab5b2cbd11p+0, 0x1.bffdaa7ac4bacp-54},
    {0x1.0120fc089ff63p+0, 0x1.82865510d755cp-55},
    {0x1.0137444c9b5b5p+0, -0x1.2a00952aeac1ap-56},
    {0x1.014d8e7ee8d2fp+0, 0x1.2d536ba928bcfp-56},
};

// The double nearest to 2^(n / 2048). The argument is the bits of ROUND + n, the lowest of which are n.
__device__ __forceinline__ double power_of_2048ths(i64 n) {
    const Power power = POWERS[n >> 4 & 127];
    const SmallPower small = SMALL_POWERS[n & 15];
    const double large = __longlong_as_double(static_cast<i64>(power.bits + (static_cast<u64>(n >> 4 & 127) << 45)));
    const double product = large * small.value, lost = __fma_rn(large, small.value, -product);
    const double mantissa = product + (lost + product * (power.tail + small.tail));
    const u64 exponent = static_cast<u64>((n >> 11) + 1023) << 52;
    return __longlong_as_double(static_cast<i64>(exponent | (static_cast<u64>(__double_as_longlong(mantissa)) & ((1ull << 52) - 1))));
}

// CatBoost's exponential: 2^(n / 2048) times a polynomial of the third degree; less accurate than exp_of.
// Results below the smallest normal number become 0, except where CatBoost computes four at once: those become that number.
__device__ __forceinline__ double table_exp_of(double x, bool one_of_four) {
    constexpr double least = -708.39641853226408;
    if (!(x < 709.78271289338397)) return x > 0 ? infinity() : x;
    if (x <= least) {
        if (!one_of_four) return 0;
        x = least;
    }
    const double moved = x * (2048 / LN2) + ROUND;
    const double t = (moved - ROUND) * (LN2 / 2048) - x;
    const double sum = (3.0000000027955394 - t) * (t * t) * 0.16666666685227835 - t + 1;
    return sum * power_of_2048ths(__double_as_longlong(moved));
}

// log(1 + x) for x >= 0, or NaN: 1 + x = 2^n m, log(m) by the series of the inverse hyperbolic tangent.
__device__ __forceinline__ double log1p_of(double x) {
    if (!(x < infinity())) return x;
    const double sum = 1 + x;
    const double lost = x < 1 ? x - (sum - 1) : 1 - (sum - x);
    int n = static_cast<int>(__double_as_longlong(sum) >> 52) - 1023;
    double m = sum * power_of_two(-n / 2) * power_of_two(-n - -n / 2);
    if (m > SQRT2) {
        m *= 0.5;
        ++n;
    }
    const double s = (m - 1) / (m + 1);
    const double z = s * s;
    double series = 2 / 23.0;
    series = 2 / 21.0 + z * series;
    series = 2 / 19.0 + z * series;
    series = 2 / 17.0 + z * series;
    series = 2 / 15.0 + z * series;
    series = 2 / 13.0 + z * series;
    series = 2 / 11.0 + z * series;
    series = 2 / 9.0 + z * series;
    series = 2 / 7.0 + z * series;
    series = 2 / 5.0 + z * series;
    series = 2 / 3.0 + z * series;
    return n * LN2_HIGH + (2 * s + (s * z * series + (n * LN2_LOW + lost / sum)));
}

__device__ __forceinline__ float exp_of(float x) {
    if (!(x < 128)) return x > 0 ? static_cast<float>(infinity()) : x;
    if (x <= -128) return 0;
    const double moved = __fma_rn(32 * LOG2_E, static_cast<double>(x), ROUND);
    const double r = __fma_rn(32 * LOG2_E, static_cast<double>(x), ROUND - moved);
    const i64 bits = __double_as_longlong(moved);
    const double power = __longlong_as_double(static_cast<i64>(POWERS[4 * (bits & 31)].bits + (static_cast<u64>(bits) << 47)));
    const double curve = __fma_rn(0x1.c6af84b912394p-5 / 32 / 32 / 32, r, 0x1.ebfce50fac4f3p-3 / 32 / 32);
    return static_cast<float>(__fma_rn(curve, r * r, __fma_rn(0x1.62e42ff0c52d6p-1 / 32, r, 1.0)) * power);
}

// For float32, computed in double and rounded once: the nearest float32, except near ties that a double cannot resolve.
__device__ __forceinline__ float exp2_of(float x) { return static_cast<float>(exp2_of(static_cast<double>(x))); }
__device__ __forceinline__ float log1p_of(float x) { return static_cast<float>(log1p_of(static_cast<double>(x))); }
