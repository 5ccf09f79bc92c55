// What rank coding reads: gpuqs/layout/ranks.py as a C struct.
#pragma once
#include <cstdint>

#include "layout/columns.hpp"

namespace gpuqs {

struct RankTables {
    Columns columns;  // categorical columns are ranked by their category tables
    bool single;  // documents are cast to float32 first
    const uint8_t* n_bits;
    const uint8_t* marks_missing;
    const int32_t* plane_offsets;  // [columns + 1]
    const int64_t* level_offsets;
    const float* levels;  // level tables, then rows: see gpuqs/layout/ranks.py
    const int64_t* offsets;  // where each column's thresholds start
    const double* threshold;

    int32_t n_planes() const { return plane_offsets[columns.n]; }
};

}  // namespace gpuqs
