// Documents as callers hand them over: any strides, float32 or float64, or coded before.
#pragma once
#include <cstdint>

#include "layout/columns.hpp"

namespace gpuqs {

struct Documents {
    const void* data;
    int64_t n;              // rows
    int64_t row_stride;     // in bytes
    int64_t column_stride;  // in bytes
    bool is_double;
    const uint8_t* planes;  // null; or documents coded as ranks, [document block][plane][stride / 8], and data is null
};

// load_rows turns so many documents feature-major, and back, at a time.
constexpr int kRowBlock = 16;

// Prefetches rows [first, end), as far as there are any, if their columns lie side by side.
static inline void prefetch_rows(const Documents& documents, int64_t first, int64_t end, const Columns& columns) {
    const int64_t value_bytes = documents.is_double ? sizeof(double) : sizeof(float);
    if (documents.column_stride != value_bytes || columns.n == 0) return;
    const int64_t bytes = (columns.feature[columns.n - 1] + 1) * value_bytes;
    for (int64_t row = first; row < end && row < documents.n; row++) {
        const char* at = static_cast<const char*>(documents.data) + row * documents.row_stride;
        for (int64_t byte = 0; byte < bytes; byte += 64) {
            __builtin_prefetch(at + byte);
            asm volatile("");  // else compilers drop calls of a function that only prefetches
        }
    }
}

}  // namespace gpuqs
