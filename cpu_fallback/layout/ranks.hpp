// What rank coding reads: gpuqs/layout/ranks.py and category_tables.py as C structs.
#pragma once
#include <cstdint>

#include "layout/documents.hpp"

namespace gpuqs {

// A feature's category sets: for each code a row of bits, one for each set that tests it: does the code go right?
struct CategoryTable {
    int32_t feature, routing;
    int32_t n_columns, n_codes;  // n_codes + 2 rows: the codes, "no code", "missing"
    int64_t row_words;           // 64-bit words a row
    int64_t columns, rows;       // where its columns and rows start
};

struct RankModel {
    Columns columns;    // the numeric ones: categorical columns follow, ranked by tables
    int32_t n_columns;  // all
    bool single;  // documents are cast to float32 first
    const uint8_t* n_bits;
    const uint8_t* marks_missing;
    const int32_t* plane_offsets;  // [columns + 1]
    const int64_t* level_offsets;
    const float* levels;
    const int64_t* offsets;  // of a column's thresholds
    const double* threshold;
    int32_t n_tables;
    const CategoryTable* tables;
    const int32_t* table_columns;
    const uint64_t* table_rows;

    int32_t n_planes() const { return plane_offsets[n_columns]; }
};

// Documents whose values are laid out feature-major at a time, while their ranks are found: 16, or 128 of many.
constexpr int kRankBlock = 128;
constexpr int rank_block(int n) { return n <= 16 ? 16 : kRankBlock; }

}  // namespace gpuqs
