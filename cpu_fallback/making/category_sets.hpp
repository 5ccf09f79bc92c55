// Category sets, given as bitsets that follow each other, side by side: gpuqs/layout/category_tables.py.
#pragma once
#include <cstdint>

namespace gpuqs {

// The union of sets; `held` has as many words as the longest.
void unite_sets(const uint32_t* words, const int64_t* offsets, int64_t n_sets, uint32_t* held);

// Bit s of the row of each code that set s holds becomes 1.
void mark_rows(const uint32_t* words, const int64_t* offsets, int64_t n_sets, const int32_t* row_of_code, int64_t row_words,
               uint64_t* rows);

}  // namespace gpuqs
