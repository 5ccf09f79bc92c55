#include "making/trees.hpp"

#include <algorithm>
#include <vector>

namespace gpuqs {
namespace {

struct Tree {
    int64_t n;  // nodes
    const int32_t* left;
    const int32_t* right;
};

Tree tree_of(const Trees& trees, int64_t t) {
    const int64_t node = trees.node_offsets[t];
    return {trees.node_offsets[t + 1] - node, trees.left + node, trees.right + node};
}

void check_children(const Trees& trees, TreeFaults& faults) {
    for (int64_t t = 0; t < trees.n_trees; t++) {
        const Tree tree = tree_of(trees, t);
        const auto outside = [&](int32_t child) { return child >= tree.n || child < -(tree.n + 1) || child == 0; };
        for (int64_t i = 0; i < tree.n; i++) {
            if (faults.left < 0 && outside(tree.left[i])) faults.left = trees.node_offsets[t] + i;
            if (faults.right < 0 && outside(tree.right[i])) faults.right = trees.node_offsets[t] + i;
        }
    }
}

void check_parents(const Trees& trees, TreeFaults& faults) {
    std::vector<uint8_t> nodes, leaves;  // parents of each, up to 2
    for (int64_t t = 0; t < trees.n_trees; t++) {
        const Tree tree = tree_of(trees, t);
        if (tree.n == 0) continue;
        nodes.assign(tree.n, 0);
        leaves.assign(tree.n + 1, 0);
        nodes[0] = 1;
        for (const int32_t* children : {tree.left, tree.right})
            for (int64_t i = 0; i < tree.n; i++) {
                uint8_t& parents = children[i] >= 0 ? nodes[children[i]] : leaves[~children[i]];
                parents = static_cast<uint8_t>(parents + (parents < 2));
            }
        const auto wrong = [](const std::vector<uint8_t>& parents) {
            return std::find_if(parents.begin(), parents.end(), [](uint8_t n) { return n != 1; }) - parents.begin();
        };
        if (faults.node < 0 && wrong(nodes) < tree.n) faults.node = trees.node_offsets[t] + wrong(nodes);
        if (faults.leaf < 0 && wrong(leaves) <= tree.n) faults.leaf = trees.leaf_offsets[t] + wrong(leaves);
    }
}

// Nodes in preorder into `order`, and how many there are: fewer than n where nodes form a cycle.
int64_t preorder(const Tree& tree, std::vector<int32_t>& order, std::vector<int32_t>& waiting) {
    order.resize(tree.n);
    waiting.clear();
    int64_t count = 0;
    for (int32_t i = 0; tree.n > 0;) {
        order[count++] = i;
        if (tree.right[i] >= 0) waiting.push_back(tree.right[i]);
        if (tree.left[i] >= 0) {
            i = tree.left[i];
        } else if (!waiting.empty()) {
            i = waiting.back();
            waiting.pop_back();
        } else {
            break;
        }
    }
    return count;
}

}  // namespace

TreeFaults check_trees(const Trees& trees, int64_t* depth) {
    TreeFaults faults;
    check_children(trees, faults);
    if (faults.left >= 0 || faults.right >= 0) return faults;
    check_parents(trees, faults);
    if (faults.node >= 0 || faults.leaf >= 0) return faults;
    std::vector<int32_t> order, waiting;
    for (int64_t t = 0; t < trees.n_trees; t++) {
        const Tree tree = tree_of(trees, t);
        int64_t* const of_tree = depth + trees.node_offsets[t];
        std::fill_n(of_tree, tree.n, -1);
        if (tree.n > 0) of_tree[0] = 0;
        const int64_t count = preorder(tree, order, waiting);
        for (int64_t at = 0; at < count; at++)
            for (const int32_t child : {tree.left[order[at]], tree.right[order[at]]})
                if (child >= 0) of_tree[child] = of_tree[order[at]] + 1;
        if (count < tree.n && faults.cycle < 0) faults.cycle = trees.node_offsets[t] + (std::find(of_tree, of_tree + tree.n, -1) - of_tree);
    }
    return faults;
}

void number_leaves(const Trees& trees, int32_t* first, int32_t* middle, int32_t* end, int32_t* position) {
    std::vector<int32_t> order, waiting;
    for (int64_t t = 0; t < trees.n_trees; t++) {
        const Tree tree = tree_of(trees, t);
        const int64_t node = trees.node_offsets[t], leaf = trees.leaf_offsets[t];
        if (tree.n == 0) position[leaf] = 0;
        preorder(tree, order, waiting);
        // From below, how many leaves lie left of the middle, and under the node; from above, how many before it.
        for (int64_t at = tree.n; at-- > 0;) {
            const int32_t i = order[at];
            const int32_t n_left = tree.left[i] >= 0 ? end[node + tree.left[i]] : 1;
            middle[node + i] = n_left;
            end[node + i] = n_left + (tree.right[i] >= 0 ? end[node + tree.right[i]] : 1);
        }
        if (tree.n > 0) first[node] = 0;
        for (int64_t at = 0; at < tree.n; at++) {
            const int32_t i = order[at], before = first[node + i];
            middle[node + i] += before;
            end[node + i] += before;
            (tree.left[i] >= 0 ? first[node + tree.left[i]] : position[leaf + ~tree.left[i]]) = before;
            (tree.right[i] >= 0 ? first[node + tree.right[i]] : position[leaf + ~tree.right[i]]) = middle[node + i];
        }
    }
}

void pair_up(const Trees& trees, int64_t* place, int64_t* distance) {
    const int64_t n_nodes = trees.node_offsets[trees.n_trees];
    std::vector<int32_t> order, waiting;
    std::vector<int64_t> number;  // of each node in preorder
    for (int64_t t = 0; t < trees.n_trees; t++) {
        const Tree tree = tree_of(trees, t);
        const int64_t node = trees.node_offsets[t], leaf = n_nodes + trees.leaf_offsets[t], root = node + trees.leaf_offsets[t];
        const auto place_of = [&](int32_t child) -> int64_t& { return child >= 0 ? place[node + child] : place[leaf + ~child]; };
        place[tree.n > 0 ? node : leaf] = root;
        preorder(tree, order, waiting);
        number.resize(tree.n);
        for (int64_t at = 0; at < tree.n; at++) number[order[at]] = at;
        for (int64_t i = 0; i < tree.n; i++) {
            place_of(tree.left[i]) = root + 1 + 2 * number[i];
            place_of(tree.right[i]) = root + 2 + 2 * number[i];
        }
        for (int64_t i = 0; i < tree.n; i++) distance[node + i] = place_of(tree.left[i]) - place[node + i];
    }
}

}  // namespace gpuqs
