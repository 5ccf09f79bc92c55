// The walk kernels read this: gpuqs/layout/walk.py as C structs.
#pragma once
#include <cstdint>

#include "layout/columns.hpp"

namespace gpuqs {

// A node or a leaf. A node's right child follows its left one. A leaf is its own left child; its threshold is a NaN that
// holds its position among the tree's leaves, below kWalkLeaves.
template <class Value>
struct Item {
    Value threshold;
    uint32_t link;  // distance to the left child << (column_bits + 1) | missing goes left << column_bits | column
};

constexpr uint32_t kWalkLeaves = 1 << 22;

struct WalkLayout {
    Columns columns;
    bool single;
    int32_t column_bits;
    int32_t n_blocks;
    const int32_t* block_offsets;
    const int64_t* tree_offsets;  // first item of each tree
    const Item<float>* item32;
    const Item<double>* item64;
};

}  // namespace gpuqs
