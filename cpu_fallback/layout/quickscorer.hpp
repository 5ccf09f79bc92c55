// What the QuickScorer kernels read: gpuqs/layout/quickscorer.py as C structs.
#pragma once
#include <cstdint>

#include "layout/columns.hpp"

namespace gpuqs {

struct Tuples {
    const int64_t* offsets = nullptr;  // [block][column + 1]
    const int32_t* tree = nullptr;     // counted from the block's first tree
    const void* mask = nullptr;        // uint8, 16, 32 or 64
};

struct TestLists {
    Tuples tests;
    Tuples missing;  // tests that are false for a missing value
    const float* threshold32 = nullptr;
    const double* threshold64 = nullptr;
};

struct QuickScorerLayout {
    Columns columns;
    bool single;  // documents are cast to float32 first
    int32_t n_blocks;
    const int32_t* block_offsets;
    TestLists straight;  // false where x > threshold, thresholds ascending
    TestLists reversed;  // reversed trees' tests: false where x <= threshold, thresholds descending
    bool has_reversed;   // otherwise all pointers in `reversed` are null
    bool oblivious;      // trees are oblivious: a mask clears one bit of the inverted leaf index
    int32_t mask_bits;
};

// One tree block's share of TestLists, typed; offsets are absolute.
template <class Value, class Mask>
struct TestsOf {
    int32_t n_trees;
    int32_t n_columns;
    const int64_t* offsets;
    const Value* threshold;
    const int32_t* tree;
    const Mask* mask;
    const int64_t* missing_offsets;
    const int32_t* missing_tree;
    const Mask* missing_mask;
};

}  // namespace gpuqs
