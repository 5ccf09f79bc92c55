// Documents are ranked on category sets by this: gpuqs/layout/category_tables.py as a C struct.
#pragma once
#include <cstdint>

namespace gpuqs {

// A feature's category sets: for each code a row of bits, one for each set that tests it: does the code go right?
struct CategoryTable {
    int32_t feature, routing;
    int32_t first_column, n_columns;
    int32_t n_codes, n_rows;  // rows: those of codes that some set holds, "no code", "missing"
    int64_t codes, rows;      // where its codes' rows are told, and where its rows start

    int no_code() const { return n_rows - 2; }
    int missing() const { return n_rows - 1; }
    int64_t row_words() const { return (n_columns + 63) / 64; }
};

}  // namespace gpuqs
