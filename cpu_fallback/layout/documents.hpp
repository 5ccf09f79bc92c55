// Documents as callers hand them over: any strides, float32 or float64, or coded before.
#pragma once
#include <cstdint>

namespace gpuqs {

struct Documents {
    const void* data;
    int64_t n;              // rows
    int64_t row_stride;     // in bytes
    int64_t column_stride;  // in bytes
    bool is_double;
    const uint8_t* planes;  // null; or documents coded as ranks, [document block][plane][stride / 8], and data is null
    bool tiny_is_zero;      // to linear leaves: LightGBM takes numbers next to zero for zeros
};

}  // namespace gpuqs
