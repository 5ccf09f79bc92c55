// What the readers of decimal numbers share. Which forms a number may have, each of them says itself.
#pragma once
#include <charconv>
#include <cstdint>
#include <type_traits>

namespace gpuqs {

// Whether this C++ library can parse float and double.
#ifdef __cpp_lib_to_chars
inline constexpr bool kParsesReals = true;
#else
inline constexpr bool kParsesReals = false;
#endif

inline bool is_digit(char c) { return static_cast<unsigned char>(c - '0') < 10; }

// Reads the number that [p, end) begins with, a real one correctly rounded, and returns where it ends. Null if there is none, if it is
// out of range, or if it is real and this library cannot parse those.
template <class Number> const char* parse_number(const char* p, const char* end, Number* value) {
    if constexpr (std::is_floating_point_v<Number> && !kParsesReals) {
        (void)p, (void)end, (void)value;
        return nullptr;
    } else {
        const auto [last, error] = std::from_chars(p, end, *value);
        return error == std::errc() ? last : nullptr;
    }
}

// The integers up to `kInteger` and the powers of ten up to 10^`kPower` are exact in the type.
template <class Real> struct Exact;
template <> struct Exact<double> {
    static constexpr uint64_t kInteger = uint64_t{1} << 53;
    static constexpr int kPower = 22;
};
template <> struct Exact<float> {
    static constexpr uint64_t kInteger = uint64_t{1} << 24;
    static constexpr int kPower = 10;
};

inline constexpr double kPowersOfTen[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                          1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

// Computes digits * 10^exponent, correctly rounded; false if it takes more than one operation on exact numbers (Clinger's fast path).
template <class Real> bool scale_exactly(uint64_t digits, int64_t exponent, Real* value) {
    const int64_t size = exponent < 0 ? -exponent : exponent;
    if (digits > Exact<Real>::kInteger || size > Exact<Real>::kPower) return false;
    const Real whole = static_cast<Real>(digits), power = static_cast<Real>(kPowersOfTen[size]);
    *value = exponent < 0 ? whole / power : whole * power;
    return true;
}

}  // namespace gpuqs
