// Documents are ranked on category sets by this: gpuqs/layout/category_tables.py as a C struct.
#pragma once
#include <cstdint>

namespace gpuqs {

// A feature's category sets: for each code a row of bits, one for each set that tests it: does the code go right?
struct CategoryTable {
    int32_t feature, routing;
    int32_t n_columns, n_codes;  // n_codes + 2 rows: the codes, "no code", "missing"
    int64_t row_words;           // 64-bit words a row
    int64_t columns, rows;       // where its columns and rows start
};

}  // namespace gpuqs
