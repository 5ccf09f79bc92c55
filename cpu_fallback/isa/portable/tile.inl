// No wide shuffles: rows are read one value at a time.
#pragma once
#include <cstdint>

#include "generic/readings.inl"

namespace gpuqs {
namespace {

constexpr int kTile = 1;

struct RoundDown {
    RoundDown() {}  // values are rounded to nearest and corrected
};

// Copies a value; true if it differs from the float32 that it becomes.
template <class Reading> inline bool copy_tile(const char* at, float* to) { return read_one<Reading>(at, to); }

template <class Reading> inline bool transpose_tile(const char* row, int64_t, float* x, int) { return read_one<Reading>(row, x); }

}  // namespace
}  // namespace gpuqs
