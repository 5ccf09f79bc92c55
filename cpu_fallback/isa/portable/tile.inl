// No wide shuffles: rows are taken one value at a time.
#pragma once
#include <cstdint>

#include "generic/readings.inl"

namespace gpuqs {
namespace {

constexpr int kTile = 1;

struct RoundDown {
    RoundDown() {}  // values are rounded to nearest and corrected
};

// A value; true if it is not the float32 that it becomes.
template <class Reading> inline bool copy_tile(const char* at, float* to) { return read_one<Reading>(at, to); }

template <class Reading> inline bool transpose_tile(const char* row, int64_t, float* x, int) { return read_one<Reading>(row, x); }

}  // namespace
}  // namespace gpuqs
