#include "making/trees.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "making/one_tree.hpp"

namespace gpuqs {
namespace {

// Looks for children outside the tree; whether there are none.
bool check_children(const Tree& tree, int64_t first_node, TreeFaults& faults) {
    const auto first_outside = [&](const int32_t* children, int64_t& fault) {
        const auto outside = [&](int32_t child) { return (child >= tree.n) | (child < -(tree.n + 1)) | (child == 0); };
        bool any = false;
        for (int64_t i = 0; i < tree.n; i++) any |= outside(children[i]);
        if (any && fault < 0) fault = first_node + (std::find_if(children, children + tree.n, outside) - children);
        return any;
    };
    const bool left = first_outside(tree.left, faults.left), right = first_outside(tree.right, faults.right);
    return !(left | right);
}

// Likewise for nodes and leaves without a parent, or with several; n_parents is scratch.
bool check_parents(const Tree& tree, int64_t first_node, int64_t first_leaf, std::vector<int32_t>& n_parents, TreeFaults& faults) {
    n_parents.assign(tree.n_items(), 0);
    n_parents[tree.item(0)] = 1;
    for (int64_t i = 0; i < tree.n; i++) {
        n_parents[tree.item(tree.left[i])]++;
        n_parents[tree.item(tree.right[i])]++;
    }
    int32_t wrong = 0;
    for (const int32_t n : n_parents) wrong |= n ^ 1;
    if (!wrong) return true;
    for (int64_t i = 0; i < tree.n && faults.node < 0; i++)
        if (n_parents[tree.item(i)] != 1) faults.node = first_node + i;
    for (int64_t l = 0; l <= tree.n && faults.leaf < 0; l++)
        if (n_parents[tree.leaf(l)] != 1) faults.leaf = first_leaf + l;
    return false;
}

}  // namespace

TreeFaults check_trees(const Trees& trees, int64_t* depth) {
    TreeFaults of_children, of_parents, cycles;
    ParentsFirst order;
    std::vector<int32_t> n_parents, of_item;
    for (int64_t t = 0; t < trees.n_trees; t++) {
        const Tree tree = tree_of(trees, t);
        const int64_t node = trees.node_offsets[t];
        if (tree.n == 0 || !check_children(tree, node, of_children)) continue;
        if (!check_parents(tree, node, trees.leaf_offsets[t], n_parents, of_parents)) continue;
        const int64_t count = order.find(tree);
        of_item.assign(tree.n_items(), -1);
        of_item[tree.item(0)] = 0;
        for (int64_t at = 0; at < count; at++) {
            const int32_t i = order[at], below = of_item[tree.item(i)] + 1;
            of_item[tree.item(tree.left[i])] = of_item[tree.item(tree.right[i])] = below;
        }
        const int32_t* const of_nodes = of_item.data() + tree.item(0);
        std::copy_n(of_nodes, tree.n, depth + node);
        if (count < tree.n && cycles.cycle < 0) cycles.cycle = node + (std::find(of_nodes, of_nodes + tree.n, -1) - of_nodes);
    }
    if (of_children.left >= 0 || of_children.right >= 0) return of_children;
    return of_parents.node >= 0 || of_parents.leaf >= 0 ? of_parents : cycles;
}

void number_leaves(const Trees& trees, int32_t* first, int32_t* middle, int32_t* end, int32_t* position) {
    ParentsFirst order;
    std::vector<int32_t> under, before;  // leaves under each item, and left of it
    for (int64_t t = 0; t < trees.n_trees; t++) {
        const Tree tree = tree_of(trees, t);
        const int64_t node = trees.node_offsets[t], leaf = trees.leaf_offsets[t];
        order.find(tree);
        count_leaves(tree, order, under);
        before.assign(tree.n_items(), 0);
        for (int64_t at = 0; at < tree.n; at++) {
            const int32_t i = order[at], start = before[tree.item(i)], cut = start + under[tree.item(tree.left[i])];
            before[tree.item(tree.left[i])] = start;
            before[tree.item(tree.right[i])] = cut;
            first[node + i] = start;
            middle[node + i] = cut;
            end[node + i] = start + under[tree.item(i)];
        }
        for (int64_t l = 0; l <= tree.n; l++) position[leaf + l] = before[tree.leaf(l)];
    }
}

template <class Move> static void each_leaf(int64_t n_trees, const int64_t* leaf_offsets, const int32_t* position, Move move) {
    for (int64_t t = 0; t < n_trees; t++)
        for (int64_t l = leaf_offsets[t]; l < leaf_offsets[t + 1]; l++) move(leaf_offsets[t] + position[l], l);
}

void put_in_order(int64_t n_trees, const int64_t* leaf_offsets, const int32_t* position, const void* items, int64_t bytes,
                  void* ordered) {
    const auto by = [&](auto kind) {
        using Kind = decltype(kind);
        each_leaf(n_trees, leaf_offsets, position,
                  [=](int64_t to, int64_t from) { static_cast<Kind*>(ordered)[to] = static_cast<const Kind*>(items)[from]; });
    };
    if (bytes == 8) return by(uint64_t{});
    if (bytes == 4) return by(uint32_t{});
    each_leaf(n_trees, leaf_offsets, position, [=](int64_t to, int64_t from) {
        std::memcpy(static_cast<char*>(ordered) + to * bytes, static_cast<const char*>(items) + from * bytes, bytes);
    });
}

void pair_up(const Trees& trees, int64_t* place, int64_t* distance) {
    Pairs pairs;
    const int64_t n_nodes = trees.node_offsets[trees.n_trees];
    for (int64_t t = 0; t < trees.n_trees; t++) {
        const Tree tree = tree_of(trees, t);
        const int64_t node = trees.node_offsets[t], leaf = trees.leaf_offsets[t], first = node + leaf;
        pairs.find(tree);
        for (int64_t i = 0; i < tree.n; i++) {
            place[node + i] = first + pairs.place(tree.item(i));
            distance[node + i] = pairs.distance(tree, i);
        }
        for (int64_t l = 0; l <= tree.n; l++) place[n_nodes + leaf + l] = first + pairs.place(tree.leaf(l));
    }
}

}  // namespace gpuqs
