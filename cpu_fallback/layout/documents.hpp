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
    const uint8_t* planes;  // null, or documents coded as ranks: [document block][plane][stride / 8]; no data then
};

struct Columns {
    int32_t n;
    const int32_t* feature;
    const uint8_t* routing;      // how a feature is read: the bits below
    const int64_t* set_offsets;  // [columns + 1]
    const uint32_t* set_words;
};

// Bits of Columns::routing, as in gpuqs/forest.py.
constexpr uint8_t kZeroMissing = 2;             // |x| <= 1e-35 becomes NaN
constexpr uint8_t kCategorical = 4;             // categories of the set become 0, others 1 ...
constexpr uint8_t kSetRight = 8;                // ... or the other way round
constexpr uint8_t kNegativeFractionIsZero = 16; // -1 < x < 0 is category 0, else none
constexpr uint8_t kWholeCodes = 32;             // a fraction is no category, else its whole part is one

constexpr double kZeroThreshold = 1e-35f;  // gpuqs.forest.ZERO_THRESHOLD

// Documents that load_rows turns feature-major, and back, at a time.
constexpr int kRowBlock = 16;

// Prefetches rows up to the last one, if their columns lie side by side.
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
