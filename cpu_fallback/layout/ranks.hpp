// Rank coding reads this: gpuqs/layout/ranks.py as a C struct.
#pragma once
#include <cstdint>

#include "layout/category_tables.hpp"
#include "layout/columns.hpp"

namespace gpuqs {

struct RankTables {
    Columns columns;    // the numeric ones; categorical columns follow, ranked by tables
    int32_t n_columns;  // of both kinds
    bool single;  // documents are cast to float32 first
    const uint8_t* n_bits;
    const uint8_t* marks_missing;
    const int32_t* plane_offsets;  // [columns + 1]
    const int64_t* level_offsets;
    const float* levels;  // tables of levels, then rows: see gpuqs/layout/ranks.py
    const int64_t* offsets;  // of a column's thresholds
    const double* threshold;
    int32_t n_tables;
    const CategoryTable* tables;
    const int32_t* table_columns;
    const uint64_t* table_rows;

    int32_t n_planes() const { return plane_offsets[n_columns]; }
};

}  // namespace gpuqs
