// Plain C++ loops over eight documents at a time, which compilers may vectorize.
#pragma once
#include <cstdint>

#include "generic/leftmost.inl"

namespace gpuqs {
namespace {

struct Lanes {
    static constexpr int n = 8;
    template <class Value> struct Values { Value at[n]; };
    struct Where { uint64_t at[n]; };  // all ones or zero

    template <class Value> static Values<Value> load(const Value* x) {
        Values<Value> v;
        for (int k = 0; k < n; k++) v.at[k] = x[k];
        return v;
    }
    template <class Value> static Where greater(const Values<Value>& v, Value threshold) {
        Where where;
        for (int k = 0; k < n; k++) where.at[k] = -static_cast<uint64_t>(v.at[k] > threshold);
        return where;
    }
    template <class Value> static Where is_nan(const Values<Value>& v) {
        Where where;
        for (int k = 0; k < n; k++) where.at[k] = -static_cast<uint64_t>(v.at[k] != v.at[k]);
        return where;
    }
    static bool any(const Where& where) {
        uint64_t all = 0;
        for (int k = 0; k < n; k++) all |= where.at[k];
        return all != 0;
    }
    template <class Mask> static void and_where(const Where& where, Mask* bits, Mask mask) {
        for (int k = 0; k < n; k++) bits[k] &= mask | static_cast<Mask>(~where.at[k]);
    }
    template <class Mask> static void leftmost(const Mask* bits, uint8_t* leaf) {
        for (int k = 0; k < n; k++) leaf[k] = gpuqs::leftmost(bits[k]);
    }
};

}  // namespace
}  // namespace gpuqs
