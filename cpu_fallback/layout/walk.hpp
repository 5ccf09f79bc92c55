// What the walk kernels read: gpuqs/layout/walk.py as C structs.
#pragma once
#include <cstdint>
#include <type_traits>

#include "layout/columns.hpp"

namespace gpuqs {

// Walks over nodes and leaves compare keys: unsigned integers in the order of the values. A missing value's is 0.
template <class Value> using WalkKey = std::conditional_t<sizeof(Value) == 8, uint64_t, uint32_t>;

// A node or a leaf. A node's right child follows its left one. A leaf is its own left child; its key is above those of all values
// and ends in its position among the tree's leaves, below kWalkLeaves (float) or kWideLeaves (double).
// With nodes_alone, items are only nodes, in preorder: the left child follows its parent; the right child is as many items after the
// parent as the left subtree has leaves.
template <class Value>
struct Item {
    WalkKey<Value> key;  // of the threshold; with nodes_alone, the threshold itself
    WalkKey<Value> link;  // distance to the left child << (column_bits + 1) | missing goes left << column_bits | column
                // nodes_alone: leaves to the left << (column_bits + 2) | the right child is a leaf << (column_bits + 1) | ...
};

// Where walks begin that do not begin at roots: at the numbered exits of the trees' tops.
constexpr int kTopExits = 256;
struct WalkStarts {
    const int32_t* item;    // [tree][kTopExits]: item of each exit, counted from the tree's first item
    const uint8_t* number;  // [word][tree of the block][place]: exit numbers; a word has 1 << word_bits documents
    const uint16_t* place;  // the place of each document of a word
    int32_t word_bits;
};

constexpr uint32_t kWalkLeaves = 1 << 22, kWideLeaves = 1 << 25;

struct WalkLayout {
    Columns columns;
    bool single;  // documents become float32: there are no item64, unless links are wide
    bool nodes_alone;
    bool wide;  // links need more than 32 bits: there are no item32
    int32_t column_bits;
    int32_t n_blocks;
    const int32_t* block_offsets;
    const int64_t* tree_offsets;  // first item of each tree
    const Item<float>* item32;
    const Item<double>* item64;
};

}  // namespace gpuqs
