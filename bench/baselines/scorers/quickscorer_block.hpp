// Blocks of tau trees merged for QuickScorer (paper 004, section 5.3), a scorer of the orders DSD, SDS, DSDS and SDSD:
//     result[1..tau] = ones
//     for each feature: for its thresholds in the block, ascending, while x[feature] > threshold:
//         result[tree of the threshold] &= its bitvector
//     for each tree of the block, in order
//         score += value of the leaf that is the leftmost one of result[tree]
// A block has the six arrays of paper 004: results, thresholds, offsets (one a feature), tree ids, bitvectors of 8, 16, 32
// or 64 bits, the fewest that hold a tree's leaves, and leaves. Trees with more leaves take several words of 64 bits. Unlike
// there, where d documents have tau results each and a leaf 4 bytes, one set of tau results serves every block and document
// in turn, and leaves have the type of the sums: 8 bytes where those are float64.
#pragma once

#include <algorithm>
#include <limits>

#include "forest.hpp"

namespace baselines {

// `Words` words of the type `Word` make a bitvector; 0: as many as the forest needs.
template <class Value, class Sum, class Word, int Words>
class QuickScorerBlocks {
public:
    static constexpr long documents = 1;

    QuickScorerBlocks(const Forest<Value, Sum>& forest, long tau) : n_columns_(forest.n_columns) {
        int64_t most = 1;
        for (long t = 0; t < forest.n_trees; ++t) most = std::max(most, forest.leaf_offsets[t + 1] - forest.leaf_offsets[t]);
        dynamic_words_ = static_cast<int>((most + bits - 1) / bits);
        for (long first = 0; first < forest.n_trees; first += tau) merge(forest, first, std::min(first + tau, forest.n_trees));
        results_.resize(std::min<int64_t>(tau, forest.n_trees) * words());
    }

    long scorers() const { return static_cast<long>(blocks_.size()); }

    [[gnu::noinline]] void add(const Batch<Value, Sum>& batch, long document, long scorer) {
        const Block& block = blocks_[scorer];
        const Value* x = batch.row(document);
        Word* results = results_.data();
        std::fill_n(results, block.n_trees() * words(), static_cast<Word>(~Word(0)));
        const Value* thresholds = block.thresholds.data();
        const int32_t* tree_ids = block.tree_ids.data();
        const Word* bitvectors = block.bitvectors.data();
        const auto rule_out = [&](int64_t i) {
            for (int w = 0; w < words(); ++w) results[int64_t{tree_ids[i]} * words() + w] &= bitvectors[i * words() + w];
        };
        for (long c = 0; c < n_columns_; ++c) {
            const Value value = x[c];
            int64_t i = block.offsets[c];
            const int64_t end = block.offsets[c + 1];
            // Where the last of four ascending thresholds is false, all are (paper 002, section 3.2: a stride of 4).
            for (; i + 4 <= end && is_false(value, thresholds[i + 3]); i += 4)
                for (int k = 0; k < 4; ++k) rule_out(i + k);
            for (; i < end && is_false(value, thresholds[i]); ++i) rule_out(i);
        }
        Sum sum = batch.sums[document];
        for (long t = 0; t < block.n_trees(); ++t) sum += block.leaves[block.leaf_offsets[t] + leftmost(results + t * words())];
        batch.sums[document] = sum;
    }

private:
    static constexpr int bits = std::numeric_limits<Word>::digits;

    struct Block {
        std::vector<int32_t> offsets;  // of each column's thresholds, and their end
        std::vector<Value> thresholds;
        std::vector<int32_t> tree_ids;  // counted from the block's first tree
        std::vector<Word> bitvectors;
        std::vector<int64_t> leaf_offsets;  // of each tree
        std::vector<Sum> leaves;            // from left to right

        long n_trees() const { return static_cast<long>(leaf_offsets.size()); }
    };
    struct Test {
        int32_t column;
        Value threshold;
        int32_t tree;
        int32_t first, middle;  // leaves of the left subtree: the first, and the first of the right
    };

    int words() const { return Words ? Words : dynamic_words_; }

    // Position of the leftmost one; leaf 0 is the highest bit of the first word.
    int leftmost(const Word* result) const {
        int w = 0;
        while (!result[w]) ++w;  // the exit leaf's bit is never cleared
        return w * bits + __builtin_clzll(static_cast<unsigned long long>(result[w])) - (64 - bits);
    }

    void merge(const Forest<Value, Sum>& forest, long begin, long end) {
        Block block;
        std::vector<Test> tests;
        for (long tree = begin; tree < end; ++tree) list(forest, tree, static_cast<int32_t>(tree - begin), block, tests);
        std::stable_sort(tests.begin(), tests.end(), [](const Test& a, const Test& b) {
            return a.column != b.column ? a.column < b.column : a.threshold < b.threshold;
        });
        block.offsets.assign(n_columns_ + 1, 0);
        block.bitvectors.assign(tests.size() * words(), static_cast<Word>(~Word(0)));
        for (size_t i = 0; i < tests.size(); ++i) {
            ++block.offsets[tests[i].column + 1];
            block.thresholds.push_back(tests[i].threshold);
            block.tree_ids.push_back(tests[i].tree);
            for (int32_t leaf = tests[i].first; leaf < tests[i].middle; ++leaf)
                block.bitvectors[i * words() + leaf / bits] &= ~(Word(1) << (bits - 1 - leaf % bits));
        }
        for (long c = 0; c < n_columns_; ++c) block.offsets[c + 1] += block.offsets[c];
        blocks_.push_back(std::move(block));
    }

    // List a tree's tests, with the leaves under each, and its leaves from left to right.
    static void list(const Forest<Value, Sum>& forest, long tree, int32_t id, Block& block, std::vector<Test>& tests) {
        std::vector<size_t> test_at;  // of the node at each place; leaves have places, too
        int32_t n = 0;
        block.leaf_offsets.push_back(static_cast<int64_t>(block.leaves.size()));
        // A right child comes when its parent's left subtree is done.
        const auto arrive = [&](int32_t parent, size_t test) {
            if (parent >= 0) tests[test_at[parent]].middle = n;
            test_at.push_back(test);
        };
        depth_first(
            forest, tree,
            [&](int32_t, int32_t parent, int64_t node) {
                arrive(parent, tests.size());
                tests.push_back({forest.column[node], forest.threshold[node], id, n, n});
            },
            [&](int32_t, int32_t parent, int64_t leaf) {
                arrive(parent, 0);
                block.leaves.push_back(forest.leaf[leaf]);
                ++n;
            });
    }

    long n_columns_;
    int dynamic_words_ = 1;
    std::vector<Block> blocks_;
    std::vector<Word> results_;  // of the document being scored
};

}  // namespace baselines
