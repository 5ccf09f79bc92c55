#include "making/trees.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "making/one_tree.hpp"
#include "making/parts.hpp"

namespace gpuqs {
namespace {

// Looks for children outside the tree; returns whether there are none.
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

// Finds nodes' depths if parents come first, as they mostly do, and each item has one parent; returns whether that is so.
bool find_depths(const Tree& tree, std::vector<int32_t>& of_item) {
    of_item.assign(tree.n_items(), -1);
    of_item[tree.item(0)] = 0;
    int32_t met = -1;
    for (int64_t i = 0; i < tree.n; i++) {
        const int64_t left = tree.item(tree.left[i]), right = tree.item(tree.right[i]);
        const int32_t below = of_item[tree.item(i)] + 1;
        met &= of_item[left] & -(below > 0);
        of_item[left] = below;
        met &= of_item[right];
        of_item[right] = below;
    }
    return met == -1;
}

// Adds the faults of the trees that follow: the first fault of each kind is kept.
void add_faults(TreeFaults& faults, const TreeFaults& behind) {
    for (const auto fault : {&TreeFaults::left, &TreeFaults::right, &TreeFaults::node, &TreeFaults::leaf, &TreeFaults::cycle})
        if (faults.*fault < 0) faults.*fault = behind.*fault;
}

TreeFaults check_part(const Trees& trees, int64_t first, int64_t last, int32_t* depth) {
    TreeFaults faults;
    ParentsFirst order;
    std::vector<int32_t> n_parents, of_item;
    for (int64_t t = first; t < last; t++) {
        const Tree tree = tree_of(trees, t);
        const int64_t node = trees.node_offsets[t];
        if (tree.n == 0 || !check_children(tree, node, faults)) continue;
        const auto of_nodes = [&] { return of_item.begin() + tree.item(0); };
        if (!find_depths(tree, of_item)) {
            if (!check_parents(tree, node, trees.leaf_offsets[t], n_parents, faults)) continue;
            const int64_t count = order.find(tree);
            of_item.assign(tree.n_items(), -1);
            of_item[tree.item(0)] = 0;
            for (int64_t at = 0; at < count; at++) {
                const int32_t i = order[at], below = of_item[tree.item(i)] + 1;
                of_item[tree.item(tree.left[i])] = of_item[tree.item(tree.right[i])] = below;
            }
            if (count < tree.n && faults.cycle < 0) faults.cycle = node + (std::find(of_nodes(), of_nodes() + tree.n, -1) - of_nodes());
        }
        std::copy_n(of_nodes(), tree.n, depth + node);
    }
    return faults;
}

}  // namespace

TreeFaults check_trees(const Trees& trees, int32_t* depth, int n_threads) {
    std::vector<TreeFaults> of_parts(n_parts(n_threads));
    each_part(trees.n_trees, n_threads,
              [&](int64_t part, int64_t first, int64_t last) { of_parts[part] = check_part(trees, first, last, depth); });
    TreeFaults faults;
    for (const TreeFaults& of_part : of_parts) add_faults(faults, of_part);
    // Faults of children hide those of parents, and both hide cycles.
    if (faults.left >= 0 || faults.right >= 0) faults.node = faults.leaf = faults.cycle = -1;
    if (faults.node >= 0 || faults.leaf >= 0) faults.cycle = -1;
    return faults;
}

void store_positions(int64_t n_trees, const int64_t* leaf_offsets, int32_t* position) {
    for (int64_t t = 0; t < n_trees; t++) std::iota(position + leaf_offsets[t], position + leaf_offsets[t + 1], 0);
}

static void number_part(const Trees& trees, int64_t first_tree, int64_t last_tree, int32_t* first, int32_t* middle, int32_t* end,
                        int32_t* position) {
    ParentsFirst order;
    std::vector<int32_t> under, before;  // leaves under each item, and left of it
    for (int64_t t = first_tree; t < last_tree; t++) {
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

void number_leaves(const Trees& trees, int32_t* first, int32_t* middle, int32_t* end, int32_t* position, int n_threads) {
    each_part(trees.n_trees, n_threads,
              [&](int64_t, int64_t from, int64_t to) { number_part(trees, from, to, first, middle, end, position); });
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
