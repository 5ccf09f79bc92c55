// Documents as callers pass them: any strides, float32 or float64, or already coded.
#pragma once
#include <cstdint>

namespace gpuqs {

struct Documents {
    const void* data;
    int64_t n;              // rows
    int64_t row_stride;     // in bytes
    int64_t column_stride;  // in bytes
    bool is_double;
    const uint8_t* planes;  // null, or (then data is null) documents coded as ranks, [document block][plane][stride / 8]
    bool tiny_is_zero;      // for linear leaves: LightGBM treats values close to zero as zero
};

}  // namespace gpuqs
