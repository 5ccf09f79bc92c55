// One tree of a forest: its items, and an order in which parents come first.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "making/trees.hpp"

namespace gpuqs {

// A tree's nodes; `item` indexes scratch for its items (leaves and nodes), without a branch, which would be unpredictable.
struct Tree {
    int64_t n;  // nodes
    const int32_t* left;
    const int32_t* right;

    int64_t item(int64_t child) const { return child + n + 1; }  // leaves in descending order, then nodes
    int64_t n_items() const { return 2 * n + 1; }
    bool is_leaf(int64_t item) const { return item <= n; }
    int64_t leaf(int64_t l) const { return n - l; }
};

inline Tree tree_of(const Trees& trees, int64_t t) {
    const int64_t node = trees.node_offsets[t];
    return {trees.node_offsets[t + 1] - node, trees.left + node, trees.right + node};
}

// The nodes of a tree in an order in which parents come first: the stored order, if that is one.
class ParentsFirst {
public:
    // Every node and leaf must have one parent. Returns how many nodes can be reached from the root: fewer than n if some form a cycle.
    int64_t find(const Tree& tree) {
        bool in_order = true;
        for (int64_t i = 0; i < tree.n; i++)
            in_order &= ((tree.left[i] < 0) | (tree.left[i] > i)) & ((tree.right[i] < 0) | (tree.right[i] > i));
        if (in_order) {
            for (int64_t i = static_cast<int64_t>(ascending_.size()); i < tree.n; i++) ascending_.push_back(static_cast<int32_t>(i));
            order_ = ascending_.data();
            return tree.n;
        }
        found_.assign(1, 0);
        for (size_t at = 0; at < found_.size(); at++)
            for (const int32_t child : {tree.left[found_[at]], tree.right[found_[at]]})
                if (child >= 0) found_.push_back(child);
        order_ = found_.data();
        return static_cast<int64_t>(found_.size());
    }
    int32_t operator[](int64_t at) const { return order_[at]; }

private:
    std::vector<int32_t> ascending_, found_;
    const int32_t* order_ = nullptr;
};

// Counts the leaves under each item; a leaf counts itself.
inline void count_leaves(const Tree& tree, const ParentsFirst& order, std::vector<int32_t>& under) {
    under.assign(tree.n_items(), 1);
    for (int64_t at = tree.n; at-- > 0;) {
        const int32_t i = order[at];
        under[tree.item(i)] = under[tree.item(tree.left[i])] + under[tree.item(tree.right[i])];
    }
}

// A tree's items in a row: its root first, then pairs of siblings in preorder of their parents.
class Pairs {
public:
    void find(const Tree& tree) {
        order_.find(tree);
        count_leaves(tree, order_, under_);
        places_.assign(tree.n_items(), {0, 0, 0});
        for (int64_t at = 0; at < tree.n; at++) {
            const int32_t i = order_[at];
            const int64_t left = tree.item(tree.left[i]), right = tree.item(tree.right[i]);
            const int32_t before = places_[tree.item(i)].before, label = places_[tree.item(i)].label;
            // The left subtree has one node fewer than leaves.
            places_[left] = {1 + 2 * before, before + 1, label};
            places_[right] = {2 + 2 * before, before + under_[left], before + 1};
        }
    }

    int64_t place(int64_t item) const { return places_[item].place; }
    // The distance from node i to its left child, in places.
    int64_t distance(const Tree& tree, int64_t i) const { return place(tree.item(tree.left[i])) - place(tree.item(i)); }
    // Nodes before it, in preorder.
    int32_t before(int64_t item) const { return places_[item].before; }
    // The label of the item's leftmost leaf: 1 + the nodes before (in preorder) the one to whose right that leaf comes first; 0 if
    // it is to the right of no node.
    int32_t label(int64_t item) const { return places_[item].label; }

private:
    struct Place { int32_t place, before, label; };
    ParentsFirst order_;
    std::vector<int32_t> under_;
    std::vector<Place> places_;
};

}  // namespace gpuqs
