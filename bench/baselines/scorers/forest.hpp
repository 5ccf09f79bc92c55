// The forest as Python hands it over, the documents of a call, and the one test that all systems make.
#pragma once

#include <cstdint>
#include <vector>

namespace baselines {

// Trees in flat arrays, as gpuqs.forest.Forest has them: a child ~i is leaf i of its tree.
template <class Value, class Sum>
struct Forest {
    int64_t n_trees, n_columns;
    const int64_t *node_offsets, *leaf_offsets;
    const int32_t *column, *left, *right;
    const Value* threshold;
    const Sum* leaf;

    // A tree's root: node 0, or leaf 0 where it has no node.
    int32_t root(long tree) const { return node_offsets[tree + 1] > node_offsets[tree] ? 0 : ~0; }
};

// Rows of documents, and the sums that scorers add to.
template <class Value, class Sum>
struct Batch {
    const Value* documents;
    long n, n_columns;
    Sum* sums;

    const Value* row(long i) const { return documents + i * n_columns; }
};

// Whether a test fails: x > threshold, and true for a missing value, which goes right.
template <class Value>
bool is_false(Value x, Value threshold) {
    return !(x <= threshold);
}

// Nodes and leaves of one tree, depth-first: a node, its left subtree, its right subtree.
template <class Value, class Sum, class Node, class Leaf>
void depth_first(const Forest<Value, Sum>& forest, long tree, Node&& node, Leaf&& leaf) {
    struct Item {
        int32_t at;
        int32_t place_of_parent;  // -1: the root, or a left child, which follows its parent
    };
    std::vector<Item> stack{{forest.root(tree), -1}};
    for (int32_t place = 0; !stack.empty(); ++place) {
        const Item item = stack.back();
        stack.pop_back();
        if (item.at < 0) {
            leaf(place, item.place_of_parent, forest.leaf_offsets[tree] + ~item.at);
            continue;
        }
        const int64_t n = forest.node_offsets[tree] + item.at;
        node(place, item.place_of_parent, n);
        stack.push_back({forest.right[n], place});
        stack.push_back({forest.left[n], -1});
    }
}

}  // namespace baselines
