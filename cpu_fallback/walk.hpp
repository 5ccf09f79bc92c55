// What the walk kernel reads: gpuqs/layout/nodes.py as C structs.
#pragma once
#include <cstdint>

#include "documents.hpp"

namespace gpuqs {

// Inner nodes and leaves of a tree in one array. A leaf points at itself on both sides.
template <class Value>
struct WalkNode {
    Value threshold;
    int32_t column;    // | kNanLeft
    int32_t child[2];  // [0] left, [1] right
};

constexpr int32_t kNanLeft = INT32_MIN;  // the sign bit of WalkNode::column

struct WalkModel {
    Columns columns;
    bool single;
    int32_t n_blocks;
    const int32_t* block_offsets;
    const int64_t* tree_offsets;  // first node of each tree
    const int32_t* leaf;          // position of each node that is a leaf
    const WalkNode<float>* node32;
    const WalkNode<double>* node64;
};

}  // namespace gpuqs
