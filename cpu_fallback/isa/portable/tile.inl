// No wide shuffles: rows are taken one value at a time.
#pragma once
#include <cstdint>

namespace gpuqs {
namespace {

constexpr int kTile = 1;

inline void transpose_tile(const char* row, int64_t, float* x, int) { *x = *reinterpret_cast<const float*>(row); }

}  // namespace
}  // namespace gpuqs
