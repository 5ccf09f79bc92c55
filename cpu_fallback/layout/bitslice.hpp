// What the bit-sliced kernels read: gpuqs/layout/bitslice.py and programs.py as C structs.
#pragma once
#include <cstdint>

#include "layout/ranks.hpp"

namespace gpuqs {

struct Segment {
    uint16_t column, high;
    uint8_t nan_left, count;
};

// A node with up to two of its children. Predicates and slots are byte offsets in arrays of the narrowest words; wider
// words scale them.
struct Treelet {
    uint32_t predicate[3];  // of the root, its left child, its right child
    uint16_t slot[3];
    uint16_t first, end;  // of the root
    uint16_t zero;
};

constexpr int kNarrowestWord = 16;
constexpr int kPlanes = 12;  // most bits of a leaf's number: slots hold no larger trees

// Kinds of treelets, by the children that they have with their root: neither, one or both.
constexpr int kWithLeft = 1, kWithRight = 2;

struct Run {
    uint16_t kind;
    uint16_t count;
};

// Node j of a tree, between its leaves j - 1 and j. Children by their numbers; 0: a leaf. The root is entry 0's right child.
struct TreeNode {
    uint32_t predicate;
    uint16_t left, right;
};

struct BitsliceModel {
    RankModel ranks;
    int32_t n_trees;
    int32_t n_batches;
    const int32_t* batch_offsets;
    const int64_t* batch_segments;
    const Segment* segments;
    const uint8_t* low;
    const int64_t* batch_low;
    int32_t n_words;
    const int64_t* level_offsets;  // of oblivious trees; no levels of others
    const uint16_t* levels;        // predicates, the deepest first
    const uint16_t* tree_leaves;
    int32_t leaf_bytes;  // 1: at most 256 leaves a tree; 2

    // Programs as treelets, to be interpreted, or (null treelets) as nodes, to be compiled.
    int32_t trees_merged;
    int32_t n_slots;
    const int64_t* group_runs;
    const Run* runs;
    const int64_t* group_treelets;
    const Treelet* treelets;
    const uint16_t* tree_slot;
    const int64_t* node_offsets;
    const TreeNode* nodes;
};

}  // namespace gpuqs
