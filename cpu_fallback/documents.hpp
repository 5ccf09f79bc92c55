// Documents as callers hand them over (any strides, float32 or float64), and how a block of them is
// turned feature-major for the kernels.
#pragma once
#include <cstdint>

namespace gpuqs {

struct Documents {
    const void* data;
    int64_t n;              // rows
    int64_t row_stride;     // in bytes
    int64_t column_stride;  // in bytes
    bool is_double;
};

struct Columns {
    int32_t n;
    const int32_t* feature;
    const uint8_t* zero_missing;  // 1: |x| <= 1e-35 becomes NaN on loading
};

}  // namespace gpuqs
