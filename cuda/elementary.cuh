// exp, exp2 and log1p in doubles, by additions, multiplications and divisions alone: the same bits on every device,
// and no instruction that takes denormals for zeros (CUDA's own have some). Within 2 ulps of the true value.
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

__device__ __forceinline__ double exp_of(double x) {
    if (!(x < 710)) return x > 0 ? infinity() : x;  // NaN stays
    if (x < -746) return 0;
    const int n = nearest(x * LOG2_E);
    return scaled_exp(x - n * LN2_HIGH, n * LN2_LOW, n);
}

__device__ __forceinline__ double exp2_of(double x) {
    if (!(x < 1025)) return x > 0 ? infinity() : x;
    if (x < -1076) return 0;
    const int n = nearest(x);
    return scaled_exp((x - n) * LN2, 0, n);
}

// CatBoost's exponential: 2^(n / 2048) times a polynomial of the third degree, which is further from the true value.
// It takes what is too small for the smallest normal number for 0, but where it looks four up at once.
__device__ __forceinline__ double table_exp_of(double x, bool one_of_four) {
    constexpr double least = -708.39641853226408;
    if (!(x < 709.78271289338397)) return x > 0 ? infinity() : x;
    if (x <= least) {
        if (!one_of_four) return 0;
        x = least;
    }
    constexpr double round = 0x1.8p52;  // what is added to it is rounded to a whole number
    const double n = x * (2048 / LN2) + round - round;
    const double t = n * (LN2 / 2048) - x;
    const double sum = (3.0000000027955394 - t) * (t * t) * 0.16666666685227835 - t + 1;
    return sum * exp2_of(n / 2048);
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

// For float32, rounded once: the nearest float32, but for ties that a double cannot tell.
__device__ __forceinline__ float exp_of(float x) { return static_cast<float>(exp_of(static_cast<double>(x))); }
__device__ __forceinline__ float exp2_of(float x) { return static_cast<float>(exp2_of(static_cast<double>(x))); }
__device__ __forceinline__ float log1p_of(float x) { return static_cast<float>(log1p_of(static_cast<double>(x))); }
