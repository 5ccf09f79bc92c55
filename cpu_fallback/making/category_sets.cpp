#include "making/category_sets.hpp"

namespace gpuqs {

void unite_sets(const uint32_t* words, const int64_t* offsets, int64_t n_sets, uint32_t* held) {
    for (int64_t s = 0; s < n_sets; s++)
        for (int64_t w = offsets[s]; w < offsets[s + 1]; w++) held[w - offsets[s]] |= words[w];
}

void mark_rows(const uint32_t* words, const int64_t* offsets, int64_t n_sets, const int32_t* row_of_code, int64_t row_words,
               uint64_t* rows) {
    for (int64_t s = 0; s < n_sets; s++)
        for (int64_t w = offsets[s]; w < offsets[s + 1]; w++)
            for (uint32_t left = words[w]; left; left &= left - 1) {
                const int64_t code = 32 * (w - offsets[s]) + __builtin_ctz(left);
                rows[row_of_code[code] * row_words + s / 64] |= uint64_t{1} << s % 64;
            }
}

}  // namespace gpuqs
