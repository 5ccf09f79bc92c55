#include "readers/json_numbers.hpp"

#include <charconv>
#include <cmath>
#include <cstring>

namespace gpuqs {
namespace {

constexpr int kMaxDigits = 18;  // numbers of up to this many digits fit an int64_t
constexpr int64_t kExactIntegers = int64_t{1} << 53;
// Powers of ten that doubles hold exactly: an integer up to 2^53, times or divided by one of them, is rounded only once.
constexpr double kPowers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                              1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
constexpr int kMaxPower = sizeof(kPowers) / sizeof(*kPowers) - 1;

bool is_digit(const char* p, const char* end) { return p < end && static_cast<unsigned char>(*p - '0') < 10; }

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

// Reads the double nearest to a JSON number; false if that is out of range, or if this C++ library cannot parse doubles.
bool read_real(const char* begin, const char* end, double* value) {
#ifdef __cpp_lib_to_chars
    return std::from_chars(begin, end, *value).ec == std::errc();
#else
    (void)begin, (void)end, (void)value;
    return false;
#endif
}

}  // namespace

bool is_halfway_between_floats(double value) {
    constexpr uint64_t kBelowFloats = (uint64_t{1} << 29) - 1;
    if (std::fabs(value) < 0x1p-126) return std::fmod(std::fabs(value) * 0x1p150, 2.0) == 1.0;  // floats are 2^-149 apart there
    uint64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return (bits & kBelowFloats) == uint64_t{1} << 28;
}

JsonNumber read_json_number(const char* p, const char* end) {
    constexpr JsonNumber none = {nullptr, false, false, 0, 0.0};
    const char* const begin = p;
    const bool negative = p < end && *p == '-';
    p += negative;
    if (!is_digit(p, end)) return none;
    int64_t digits = 0, n_digits = 0, behind_point = 0, power = 0;
    const auto read_digits = [&] {
        const char* const first = p;
        for (; is_digit(p, end); p++) {
            if (++n_digits <= kMaxDigits) digits = digits * 10 + (*p - '0');
        }
        return p - first;
    };
    const bool begins_with_zero = *p == '0';
    if (read_digits() > 1 && begins_with_zero) return none;
    const bool whole = p == end || (*p != '.' && *p != 'e' && *p != 'E');
    if (whole) {
        digits = negative ? -digits : digits;
        return {p, true, n_digits <= kMaxDigits, digits, static_cast<double>(digits)};
    }
    if (*p == '.') {
        if (!is_digit(++p, end)) return none;
        behind_point = read_digits();
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        p++;
        const bool below_one = p < end && *p == '-';
        p += p < end && (*p == '-' || *p == '+');
        if (!is_digit(p, end)) return none;
        for (; is_digit(p, end); p++) {
            if (power < 10000) power = power * 10 + (*p - '0');
        }
        power = below_one ? -power : power;
    }
    const int64_t shift = power - behind_point;
    double value = 0.0;
    bool fits = true;
    if (n_digits <= kMaxDigits && digits <= kExactIntegers && -kMaxPower <= shift && shift <= kMaxPower) {
        const double of_digits = static_cast<double>(negative ? -digits : digits);
        value = shift < 0 ? of_digits / kPowers[-shift] : of_digits * kPowers[shift];
        if (negative && digits == 0) value = -0.0;
    } else {
        fits = read_real(begin, p, &value);
    }
    return {p, false, fits, 0, value};
}

const char* read_json_numbers(const char* p, const char* end, bool single, std::vector<int64_t>& integers, std::vector<double>& reals) {
    integers.clear();
    reals.clear();
    const auto skip_spaces = [&] {
        while (p < end && is_space(*p)) p++;
    };
    while (true) {
        skip_spaces();
        const JsonNumber number = read_json_number(p, end);
        if (!number.end || !number.fits) return nullptr;
        if (single && !number.whole && is_halfway_between_floats(number.real)) return nullptr;
        p = number.end;
        if (number.whole && reals.empty()) {
            integers.push_back(number.integer);
        } else {
            if (reals.empty()) reals.assign(integers.begin(), integers.end());
            reals.push_back(number.real);
        }
        skip_spaces();
        if (p == end) return nullptr;
        if (*p == ']') return p + 1;
        if (*p++ != ',') return nullptr;
    }
}

}  // namespace gpuqs
