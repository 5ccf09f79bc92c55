// What the walk kernels read: gpuqs/layout/nodes.py as C structs.
#pragma once
#include <cstdint>

#include "documents.hpp"

namespace gpuqs {

// Inner nodes and leaves of a tree in one array, level by level: a node's right child follows its left one.
// A leaf is its own left child, and no value exceeds its threshold.
template <class Value>
struct Item {
    Value threshold;
    uint32_t link;  // distance to the left child << (column_bits + 1) | missing goes left << column_bits | column
};

struct WalkModel {
    Columns columns;
    bool single;
    int32_t column_bits;
    int32_t n_blocks;
    const int32_t* block_offsets;
    const int64_t* tree_offsets;  // first item of each tree
    const int32_t* leaf;          // position of each item that is a leaf
    const Item<float>* item32;
    const Item<double>* item64;
};

}  // namespace gpuqs
