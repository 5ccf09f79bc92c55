// How features of documents are read: gpuqs/layout/columns.py as a C struct.
#pragma once
#include <cstdint>

#include "layout/category_tables.hpp"

namespace gpuqs {

struct Columns {
    int32_t n;
    int32_t n_numeric;  // columns of category sets come after these
    const int32_t* feature;
    const uint8_t* routing;      // how the feature is read: the bits below
    const int64_t* set_offsets;  // [columns + 1]
    const uint32_t* set_words;
    int32_t n_tables;  // they cover all category sets; 0 if they would take too much memory
    const CategoryTable* tables;
    const int32_t* row_of_code;
    const uint64_t* rows;
};

// Only the columns before those of category sets. Static, as all functions here: each instruction set compiles its own copy.
static inline Columns numeric(Columns columns) {
    columns.n = columns.n_numeric;
    return columns;
}

// Bits of Columns::routing, as in gpuqs/forest.py.
constexpr uint8_t kZeroMissing = 2;             // |x| <= 1e-35 becomes NaN
constexpr uint8_t kCategorical = 4;             // categories of the set become 0, others 1 ...
constexpr uint8_t kSetRight = 8;                // ... or the other way round
constexpr uint8_t kNegativeFractionIsZero = 16; // -1 < x < 0 is category 0; without this bit, no category
constexpr uint8_t kWholeCodes = 32;             // a fraction is no category; without this bit, its integer part is one

constexpr double kZeroThreshold = 1e-35f;  // gpuqs.forest.ZERO_THRESHOLD

}  // namespace gpuqs
