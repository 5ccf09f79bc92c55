// Category sets, given as concatenated bitsets, to rows with one bit for each set: see gpuqs/layout/category_tables.py.
#pragma once
#include <cstdint>

namespace gpuqs {

// Writes the union of the sets to `held`, which starts as zeros and has as many words as the longest set.
void unite_sets(const uint32_t* words, const int64_t* offsets, int64_t n_sets, uint32_t* held);

// Sets bit s in the row of each code that set s holds.
void mark_rows(const uint32_t* words, const int64_t* offsets, int64_t n_sets, const int32_t* row_of_code, int64_t row_words,
               uint64_t* rows);

}  // namespace gpuqs
