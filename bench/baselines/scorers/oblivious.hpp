// OBLIVIOUS (paper 002, section 4, Equation 1 and Figure 8), for trees that make one test a level:
//     leaf = 0
//     for each level i of the tree's d
//         leaf |= not (x[feature[i]] <= threshold[i]) << (d - 1 - i)
//     score += value[leaf], leaves numbered from left to right
// A tree is d pairs of feature and threshold, and 2^d leaf values; it has no nodes.
#pragma once

#include "forest.hpp"

namespace baselines {

template <class Value, class Sum>
class Oblivious {
public:
    static constexpr long documents = 1;

    // The forest's trees are oblivious: the caller has looked.
    explicit Oblivious(const Forest<Value, Sum>& forest) {
        for (long tree = 0; tree < forest.n_trees; ++tree) {
            trees_.push_back({static_cast<int64_t>(levels_.size()), static_cast<int64_t>(values_.size()), 0});
            depth_first(
                forest, tree, [](int32_t, int32_t, int64_t) {},
                [&](int32_t, int32_t, int64_t leaf) { values_.push_back(forest.leaf[leaf]); });
            for (int32_t at = forest.root(tree); at >= 0; ++trees_.back().depth) {
                const int64_t node = forest.node_offsets[tree] + at;
                levels_.push_back({forest.column[node], forest.threshold[node]});
                at = forest.left[node];
            }
        }
    }

    long scorers() const { return static_cast<long>(trees_.size()); }

    void add(const Batch<Value, Sum>& batch, long document, long tree) {
        const Tree& t = trees_[tree];
        const Level* levels = levels_.data() + t.levels;
        const Value* x = batch.row(document);
        uint32_t leaf = 0;
        for (int i = 0; i < t.depth; ++i)
            leaf |= static_cast<uint32_t>(is_false(x[levels[i].feature], levels[i].threshold)) << (t.depth - 1 - i);
        batch.sums[document] += values_[t.values + leaf];
    }

private:
    struct Tree {
        int64_t levels, values;  // where they begin
        int depth;
    };
    struct Level {
        int32_t feature;
        Value threshold;
    };

    std::vector<Tree> trees_;
    std::vector<Level> levels_;
    std::vector<Sum> values_;
};

}  // namespace baselines
