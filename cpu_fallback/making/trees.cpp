#include "making/trees.hpp"

#include <algorithm>
#include <vector>

namespace gpuqs {
namespace {

// A tree's nodes; scratch for its items (leaves and nodes) is indexed by `item`, without a branch that nobody can predict.
struct Tree {
    int64_t n;  // nodes
    const int32_t* left;
    const int32_t* right;

    int64_t item(int64_t child) const { return child + n + 1; }  // leaves from the last one down, then nodes
    int64_t n_items() const { return 2 * n + 1; }
    int64_t leaf(int64_t l) const { return n - l; }
};

Tree tree_of(const Trees& trees, int64_t t) {
    const int64_t node = trees.node_offsets[t];
    return {trees.node_offsets[t + 1] - node, trees.left + node, trees.right + node};
}

void check_children(const Trees& trees, TreeFaults& faults) {
    const auto first_outside = [](const Tree& tree, const int32_t* children) {
        const auto outside = [&](int32_t child) { return (child >= tree.n) | (child < -(tree.n + 1)) | (child == 0); };
        bool any = false;
        for (int64_t i = 0; i < tree.n; i++) any |= outside(children[i]);
        return any ? std::find_if(children, children + tree.n, outside) - children : -1;
    };
    for (int64_t t = 0; t < trees.n_trees; t++) {
        const Tree tree = tree_of(trees, t);
        const int64_t left = first_outside(tree, tree.left), right = first_outside(tree, tree.right);
        if (faults.left < 0 && left >= 0) faults.left = trees.node_offsets[t] + left;
        if (faults.right < 0 && right >= 0) faults.right = trees.node_offsets[t] + right;
    }
}

void check_parents(const Trees& trees, TreeFaults& faults) {
    std::vector<int32_t> parents;  // how many each item has
    for (int64_t t = 0; t < trees.n_trees; t++) {
        const Tree tree = tree_of(trees, t);
        if (tree.n == 0) continue;
        parents.assign(tree.n_items(), 0);
        parents[tree.item(0)] = 1;
        for (int64_t i = 0; i < tree.n; i++) {
            parents[tree.item(tree.left[i])]++;
            parents[tree.item(tree.right[i])]++;
        }
        int32_t wrong = 0;
        for (const int32_t n : parents) wrong |= n ^ 1;
        if (!wrong) continue;
        for (int64_t i = 0; i < tree.n && faults.node < 0; i++)
            if (parents[tree.item(i)] != 1) faults.node = trees.node_offsets[t] + i;
        for (int64_t l = 0; l <= tree.n && faults.leaf < 0; l++)
            if (parents[tree.leaf(l)] != 1) faults.leaf = trees.leaf_offsets[t] + l;
    }
}

// The nodes of a tree in an order in which parents come first: as they are, where that is so.
class ParentsFirst {
public:
    // Every node and leaf has one parent. How many nodes there are ways to from the root: fewer than n where some form a cycle.
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

// Leaves under each item: leaves have one, themselves.
void count_leaves(const Tree& tree, const ParentsFirst& order, std::vector<int32_t>& under) {
    under.assign(tree.n_items(), 1);
    for (int64_t at = tree.n; at-- > 0;) {
        const int32_t i = order[at];
        under[tree.item(i)] = under[tree.item(tree.left[i])] + under[tree.item(tree.right[i])];
    }
}

}  // namespace

TreeFaults check_trees(const Trees& trees, int64_t* depth) {
    TreeFaults faults;
    check_children(trees, faults);
    if (faults.left >= 0 || faults.right >= 0) return faults;
    check_parents(trees, faults);
    if (faults.node >= 0 || faults.leaf >= 0) return faults;
    ParentsFirst order;
    std::vector<int64_t> of_item;
    for (int64_t t = 0; t < trees.n_trees; t++) {
        const Tree tree = tree_of(trees, t);
        const int64_t count = order.find(tree);
        of_item.assign(tree.n_items() + 1, -1);  // and a root, where there is none
        of_item[tree.item(0)] = 0;
        for (int64_t at = 0; at < count; at++) {
            const int32_t i = order[at];
            of_item[tree.item(tree.left[i])] = of_item[tree.item(tree.right[i])] = of_item[tree.item(i)] + 1;
        }
        int64_t* const of_tree = depth + trees.node_offsets[t];
        std::copy_n(of_item.data() + tree.item(0), tree.n, of_tree);
        if (count < tree.n && faults.cycle < 0)
            faults.cycle = trees.node_offsets[t] + (std::find(of_tree, of_tree + tree.n, -1) - of_tree);
    }
    return faults;
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

void pair_up(const Trees& trees, int64_t* place, int64_t* distance) {
    ParentsFirst order;
    std::vector<int32_t> under;
    std::vector<int64_t> number, of_item;  // of nodes in preorder; places
    const int64_t n_nodes = trees.node_offsets[trees.n_trees];
    for (int64_t t = 0; t < trees.n_trees; t++) {
        const Tree tree = tree_of(trees, t);
        const int64_t node = trees.node_offsets[t], leaf = trees.leaf_offsets[t], root = node + leaf;
        order.find(tree);
        count_leaves(tree, order, under);
        number.assign(tree.n_items(), 0);
        of_item.assign(tree.n_items(), root);
        for (int64_t at = 0; at < tree.n; at++) {
            const int32_t i = order[at];
            const int64_t left = tree.item(tree.left[i]), right = tree.item(tree.right[i]), before = number[tree.item(i)];
            number[left] = before + 1;
            number[right] = before + under[left];  // the left subtree has a node less than leaves
            of_item[left] = root + 1 + 2 * before;
            of_item[right] = of_item[left] + 1;
            distance[node + i] = of_item[left] - of_item[tree.item(i)];
        }
        for (int64_t i = 0; i < tree.n; i++) place[node + i] = of_item[tree.item(i)];
        for (int64_t l = 0; l <= tree.n; l++) place[n_nodes + leaf + l] = of_item[tree.leaf(l)];
    }
}

}  // namespace gpuqs
