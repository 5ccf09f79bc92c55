// How document values become the float32 values that are searched, and which of them are zeros.
#pragma once
#include <cstdint>

#include "layout/columns.hpp"

namespace gpuqs {
namespace {

struct AsFloat {  // float32 documents
    using In = float;
    using Unchecked = AsFloat;
    static float searched(float x) { return x; }
    static float compared(float x) { return x; }
};
struct Nearest {  // float64 documents that the source library casts to float32 first
    using In = double;
    using Unchecked = Nearest;
    static float searched(double x) { return static_cast<float>(x); }
    static float compared(double x) { return searched(x); }
};
struct BelowUnchecked;
struct Below {  // other float64 documents: the largest float32 not above the value
    using In = double;
    using Unchecked = BelowUnchecked;
    static float searched(double x) {
        float near = static_cast<float>(x);
        int32_t bits;
        __builtin_memcpy(&bits, &near, sizeof bits);
        if (near > x) bits += bits < 0 ? 1 : -1;  // near is never +0 here
        __builtin_memcpy(&near, &bits, sizeof bits);
        return near;
    }
    static double compared(double x) { return x; }
};
struct BelowUnchecked : Below {};  // once a lossy value has been found: whether others are lossy does not matter

template <class Reading> inline typename Reading::In value_at(const char* at) {
    return *reinterpret_cast<const typename Reading::In*>(at);
}

// Reads a value as `searched`. True if it is lossy: `compared` differs from it, and it is no NaN.
template <class Reading> inline bool read_one(const char* at, float* to) {
    const auto x = value_at<Reading>(at);
    *to = Reading::searched(x);
    return *to != Reading::compared(x) && x == x;
}

// Whether a value is a zero for columns with kZeroMissing. The threshold is exact in float32, so floats need no conversion to double.
template <class Value> bool is_zero(Value x) {
    constexpr Value most = static_cast<Value>(kZeroThreshold);
    return (x <= most) & (x >= -most);
}

}  // namespace
}  // namespace gpuqs
