// The QuickScorer kernels read this: gpuqs/layout/quickscorer.py as C structs.
#pragma once
#include <cstdint>

#include "layout/columns.hpp"

namespace gpuqs {

struct Tuples {
    const int64_t* offsets = nullptr;  // [block][column + 1]
    const int32_t* tree = nullptr;     // counted from the block's first
    const void* mask = nullptr;        // uint8, 16, 32 or 64
};

struct TestLists {
    Tuples tests;
    Tuples missing;  // tests that a missing value makes false
    const float* threshold32 = nullptr;
    const double* threshold64 = nullptr;
};

struct QuickScorerLayout {
    Columns columns;
    bool single;  // documents are cast to float32 first
    int32_t n_blocks;
    const int32_t* block_offsets;
    TestLists straight;  // false where x > threshold, thresholds ascending
    TestLists reversed;  // of reversed trees: false where x <= threshold, thresholds descending
    bool has_reversed;   // else `reversed` is null throughout
    bool oblivious;      // a mask clears one bit of the leaf's number, inverted
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
