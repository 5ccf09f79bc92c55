#include "readers/json_numbers.hpp"

#include <cmath>
#include <cstring>

#include "readers/decimal.hpp"

namespace gpuqs {
namespace {

constexpr int kMaxDigits = 18;  // numbers of up to this many digits fit an int64_t

bool at_digit(const char* p, const char* end) { return p < end && is_digit(*p); }

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

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
    if (!at_digit(p, end)) return none;
    int64_t digits = 0, n_digits = 0, behind_point = 0, power = 0;
    const auto read_digits = [&] {
        const char* const first = p;
        for (; at_digit(p, end); p++) {
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
        if (!at_digit(++p, end)) return none;
        behind_point = read_digits();
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        p++;
        const bool below_one = p < end && *p == '-';
        p += p < end && (*p == '-' || *p == '+');
        if (!at_digit(p, end)) return none;
        for (; at_digit(p, end); p++) {
            if (power < 10000) power = power * 10 + (*p - '0');
        }
        power = below_one ? -power : power;
    }
    const int64_t shift = power - behind_point;
    double value = 0.0;
    bool fits = true;
    if (n_digits <= kMaxDigits && scale_exactly(digits, shift, &value)) {
        value = negative ? -value : value;
    } else {
        fits = parse_number(begin, p, &value) != nullptr;
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
