// Documents as callers hand them over: any strides, float32 or float64, or coded before.
#pragma once
#include <cstdint>

#include "layout/prefetch.hpp"

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

// The cache lines of rows whose columns lie side by side, as far as columns are read; none of others.
static inline int64_t lines_of_row(const Documents& documents, const Columns& columns) {
    const int64_t value_bytes = documents.is_double ? sizeof(double) : sizeof(float);
    if (documents.column_stride != value_bytes || columns.n == 0) return 0;
    return (columns.feature[columns.n - 1] + 1) * value_bytes / 64 + 1;
}

// A cache line of a row.
struct RowLine { int64_t row, line; };

// Prefetches so many lines of the rows before `end`, in the order of their addresses, and goes on behind them.
static inline void prefetch_rows(const Documents& documents, int64_t of_row, int64_t end, int64_t lines, RowLine& at) {
    for (; lines > 0 && at.row < end; lines--) {
        prefetch(static_cast<const char*>(documents.data) + at.row * documents.row_stride + 64 * at.line);
        if (++at.line == of_row) at = {at.row + 1, 0};
    }
}

// Prefetches a column of rows [first, first + n), where columns lie one after another.
static inline void prefetch_column(const Documents& documents, int64_t first, int64_t n, int64_t column) {
    prefetch_bytes(static_cast<const char*>(documents.data) + first * documents.row_stride + column * documents.column_stride,
                   n * documents.row_stride);
}

}  // namespace gpuqs
