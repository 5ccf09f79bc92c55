// STRUCT+ (paper 002, section 2; of Asadi et al.), the tree scorer of papers 003 and 004, too:
//     node = the tree's first
//     while node has children
//         node = x[node.feature] <= node.threshold ? node.left : node.right
//     score += node.value
// A tree's nodes and leaves lie in one packed array, depth-first, 32 bytes each (so 64 bytes a leaf, as in paper 004,
// Table 3; 40 where documents are float64): two pointers, a number of 8 bytes, a feature and a threshold. The authors' code
// keeps a node's number there and a leaf's value in the threshold's place; here the 8 bytes hold the value as a float64.
#pragma once

#include "forest.hpp"

namespace baselines {

template <class Value, class Sum>
class StructPlus {
public:
    static constexpr long documents = 1;  // that one visit scores

    explicit StructPlus(const Forest<Value, Sum>& forest)
        : nodes_(forest.node_offsets[forest.n_trees] + forest.leaf_offsets[forest.n_trees]) {
        Node* first = nodes_.data();
        for (long tree = 0; tree < forest.n_trees; ++tree) {
            roots_.push_back(first);
            int32_t n = 0;
            const auto place = [&](int32_t at, int32_t parent, Node node) {
                first[at] = node;
                if (parent >= 0) first[parent].right = first + at;
                n = at + 1;
            };
            depth_first(
                forest, tree,
                [&](int32_t at, int32_t parent, int64_t node) {
                    place(at, parent, {nullptr, first + at + 1, 0, forest.column[node], forest.threshold[node]});
                },
                [&](int32_t at, int32_t parent, int64_t leaf) { place(at, parent, {nullptr, nullptr, forest.leaf[leaf], 0, 0}); });
            first += n;
        }
    }

    long scorers() const { return static_cast<long>(roots_.size()); }

    void add(const Batch<Value, Sum>& batch, long document, long tree) {
        const Value* x = batch.row(document);
        const Node* node = roots_[tree];
        while (node->left) node = is_false(x[node->feature], node->threshold) ? node->right : node->left;
        batch.sums[document] += static_cast<Sum>(node->value);
    }

private:
    struct Node {
        Node *right, *left;
        double value;  // float32 values are float64 values, too
        int32_t feature;
        Value threshold;
    };
    static_assert(sizeof(Value) > 4 || sizeof(Node) == 32, "lab/blocking.py predicts with this size");

    std::vector<Node> nodes_;
    std::vector<const Node*> roots_;
};

}  // namespace baselines
