// Passes over trees, node by node: whether they are sound, how deep they are, and how their leaves are ordered.
#pragma once
#include <cstdint>

namespace gpuqs {

// The arrays of gpuqs/forest.py. A child is a node of its tree, or leaf ~child.
struct Trees {
    int64_t n_trees;
    const int64_t* node_offsets;
    const int64_t* leaf_offsets;
    const int32_t* left;
    const int32_t* right;
};

// The first node (leaf) of the forest with each fault; -1: none.
struct TreeFaults {
    int64_t left = -1, right = -1;  // node: its child is outside its tree, or is the root
    int64_t node = -1, leaf = -1;   // it has no parent or several
    int64_t cycle = -1;             // node: it cannot be reached from the root
};

// Finds what is wrong: children first; then, only if all are sound, parents; then, likewise, cycles. Fills depth [nodes] of
// sound trees; roots have depth 0. Every tree must have one leaf more than nodes.
TreeFaults check_trees(const Trees& trees, int32_t* depth, int n_threads);

// The position of each leaf in its tree, as leaves are stored.
void store_positions(int64_t n_trees, const int64_t* leaf_offsets, int32_t* position);

// What gpuqs/layout/leaves.py calls LeafRanges, of sound trees.
void number_leaves(const Trees& trees, int32_t* first, int32_t* middle, int32_t* end, int32_t* position, int n_threads);

// Each item's place and each node's distance to its left child, of sound trees: a tree's root first, then pairs of siblings
// in preorder of their parents. place [nodes, then leaves].
void pair_up(const Trees& trees, int64_t* place, int64_t* distance);

}  // namespace gpuqs
