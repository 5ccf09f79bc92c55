#include "driver/exponentials.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "driver/float_mode.hpp"

namespace gpuqs {
namespace {

#include "driver/table_exponentials.inl"

constexpr int kTogether = 256, kFewest = 4;  // numbers that vector code computes at once: at most, at least

// Mantissas of 2^(i / kTablePowers), computed when the module is loaded. If a function-local static were being initialized during a
// fork, the child would wait for it forever.
const std::array<uint64_t, kTablePowers> kMantissas = [] {
    const DefaultFloatMode mode;
    std::array<uint64_t, kTablePowers> of{};
    for (int i = 0; i < kTablePowers; i++) {
        const double power = std::pow(2.0, static_cast<double>(i) / kTablePowers);
        std::memcpy(&of[i], &power, sizeof power);
        of[i] &= (uint64_t{1} << 52) - 1;
    }
    return of;
}();

double one_by_table(double x) {
    if (!(x < kMaxTableExponent)) return x > 0 ? std::numeric_limits<double>::infinity() : x;
    if (x < kMinTableExponent) return 0;
    double power;
    by_table(kMantissas.data(), &x, 1, &power);
    return power;
}

#ifdef GPUQS_X86
const bool kHasVectors = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
const VectorExponentials& kVectors = vector_exponentials;
#else
constexpr bool kHasVectors = false;
constexpr VectorExponentials kVectors = {};
#endif

// Numbers of all magnitudes below `most`, and of both signs.
template <class Real, int n> std::array<Real, n> numbers_below(Real most) {
    std::array<Real, n> of{};
    uint64_t state = 1;
    for (int i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const double from_zero_to_one = static_cast<double>(state >> 11) * 0x1p-53, scale = std::pow(0.25, i % 8);
        of[i] = static_cast<Real>(most * scale * (2 * from_zero_to_one - 1));
    }
    return of;
}

// Whether the vector code gives the C library's exponentials of these numbers, bit for bit.
template <class Real, size_t n> bool are_equal(bool (*vectors)(const Real*, int64_t, Real*), const std::array<Real, n>& x) {
    std::array<Real, n> made{}, wanted{};
    vectors(x.data(), n, made.data());
    for (size_t i = 0; i < n; i++) {
        volatile Real each = x[i];  // else compilers may fold it, unlike this machine's library
        wanted[i] = std::exp(each);
    }
    return !std::memcmp(made.data(), wanted.data(), sizeof made);
}

// Whether the C library's exp is glibc's: with another library, about one result in a hundred would differ.
const bool kDoublesAsVectors = [] {
    const DefaultFloatMode mode;
    return kHasVectors && are_equal(kVectors.doubles, numbers_below<double, 1024>(kMaxExponent));
}();

// For floats, rounding hides nearly all differences. So `telling` has the two numbers that show whether glibc was compiled with
// fused multiply-add, and some whose results are not the floats nearest to the true values.
const bool kFloatsAsVectors = [] {
    const DefaultFloatMode mode;
    const std::array<float, 8> telling = {0x1.04845ep+5f,  -0x1.f8cbb2p+5f, 0x1.fefe02p-16f, 0x1.5b3c52p-14f,
                                          0x1.cd3982p-14f, 0x1.dfb8fap-14f, 0x1.fbb822p-14f, 0x1.625856p-13f};
    return kHasVectors && are_equal(kVectors.floats, numbers_below<float, 1024>(kMaxFloatExponent)) &&
           are_equal(kVectors.floats, telling);
}();

// Computes blocks of numbers with all() if it returns that all of them fit, else each number with one(), which gives the same results.
template <class Real, class All, class One> void make(const Real* x, int64_t n, Real* out, bool together, All all, One one) {
    Real some[kTogether];  // out may be x
    for (int64_t first = 0; first < n; first += kTogether) {
        const int m = static_cast<int>(std::min<int64_t>(kTogether, n - first));
        std::copy_n(x + first, m, some);
        if (!together || m < kFewest || !all(some, m, out + first)) std::transform(some, some + m, out + first, one);
    }
}

}  // namespace

bool has_vector_exponentials() { return kDoublesAsVectors && kFloatsAsVectors; }

void exponentials(const double* x, int64_t n, double* out) {
    make(x, n, out, kDoublesAsVectors, kVectors.doubles, [](double v) { return std::exp(v); });
}

void exponentials(const float* x, int64_t n, float* out) {
    make(x, n, out, kFloatsAsVectors, kVectors.floats, [](float v) { return std::exp(v); });
}

void table_exponentials(const double* x, int64_t n, double* out) {
    const auto by = kHasVectors ? kVectors.by_table : by_table;
    const auto all = [&](const double* some, int64_t m, double* to) { return by(kMantissas.data(), some, m, to); };
    make(x, n, out, true, all, one_by_table);
}

void table_exponentials(const float* x, int64_t n, float* out) {
    double some[kTogether];
    for (int64_t first = 0; first < n; first += kTogether) {
        const int64_t m = std::min<int64_t>(kTogether, n - first);
        std::copy_n(x + first, m, some);
        table_exponentials(some, m, some);
        std::transform(some, some + m, out + first, [](double v) { return static_cast<float>(v); });
    }
}

}  // namespace gpuqs
