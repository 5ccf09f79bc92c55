// Tables that rank documents on category sets: gpuqs/layout/category_tables.py as a C struct.
#pragma once
#include <cstdint>

namespace gpuqs {

// A feature's category sets: each code has a row with one bit per set, which says whether the code goes right.
struct CategoryTable {
    int32_t feature, routing;
    int32_t first_column, n_columns;
    int32_t n_codes, n_rows;  // rows: one per code that some set holds, then "no code" and "missing"
    int64_t codes, rows;      // where this table starts in Columns::row_of_code and in Columns::rows

    int no_code() const { return n_rows - 2; }
    int missing() const { return n_rows - 1; }
    int64_t row_words() const { return (n_columns + 63) / 64; }
};

}  // namespace gpuqs
