#include "making/rank_items.hpp"

#include "making/one_tree.hpp"
#include "making/parts.hpp"
#include "making/rank_jumps.hpp"

namespace gpuqs {
namespace {

// Numbers the entries that nodes read. Each entry is a column, up to 255 consecutive thresholds of it, and a side for missing values.
class Entries {
public:
    Entries(const RankedNodes& nodes, int64_t n_nodes, int n_threads) : nodes_(nodes), first_run_(nodes.n_columns + 1) {
        for (int64_t c = 0; c < nodes.n_columns; c++)
            first_run_[c + 1] = first_run_[c] + (nodes.offsets[c + 1] - nodes.offsets[c] + kEntryThresholds - 1) / kEntryThresholds;
        number_.assign(2 * first_run_[nodes.n_columns], 0);
        each_part(n_nodes, n_threads, [&](int64_t, int64_t first, int64_t last) {
            for (int64_t i = first; i < last; i++) set_for_all(&number_[place_of(i)]);
        });
        entries_.push_back({0, 0, 0});  // the leaves'
        for (int64_t c = 0; c < nodes.n_columns; c++)
            for (int64_t run = first_run_[c]; run < first_run_[c + 1]; run++)
                for (const int32_t nan_left : {0, 1}) {
                    uint32_t& number = number_[2 * run + nan_left];
                    if (!number) continue;
                    number = static_cast<uint32_t>(entries_.size());
                    const int64_t first = (run - first_run_[c]) * kEntryThresholds;
                    entries_.push_back({static_cast<int32_t>(c), static_cast<int32_t>(first), nan_left});
                }
    }

    // A node's test, without its `first`, which depends on the tree.
    RankTest test(int64_t i) const {
        return {static_cast<uint16_t>(number_[place_of(i)]), static_cast<int8_t>(kSigned - nodes_.rank[i] % kEntryThresholds), 0};
    }
    const std::vector<RankEntry>& entries() const { return entries_; }

private:
    int64_t place_of(int64_t i) const {
        return 2 * (first_run_[nodes_.column[i]] + nodes_.rank[i] / kEntryThresholds) + ((nodes_.routing[i] & nodes_.nan_left) != 0);
    }

    const RankedNodes& nodes_;
    std::vector<int64_t> first_run_;
    std::vector<uint32_t> number_;  // by place_of
    std::vector<RankEntry> entries_;
};

// Writes a tree's tests in preorder, and its leaves' labels.
void make_tests(const Tree& tree, const Pairs& pairs, const RankTest* of_nodes, RankTest* tests, int32_t* label) {
    for (int64_t i = 0; i < tree.n; i++) {
        const int64_t item = tree.item(i);
        tests[pairs.before(item)] = {of_nodes[i].entry, of_nodes[i].position, static_cast<uint8_t>(pairs.label(item))};
    }
    for (int64_t l = 0; l <= tree.n; l++) label[l] = pairs.label(tree.leaf(l));
}

// Writes a tree's items, for walks.
void make_items(const Tree& tree, const Pairs& pairs, const RankTest* of_nodes, const int32_t* label, uint32_t* items) {
    for (int64_t i = 0; i < tree.n; i++) {
        const uint32_t beyond = static_cast<uint32_t>(kEntryThresholds - kSigned + of_nodes[i].position);
        const uint32_t distance = static_cast<uint32_t>(pairs.distance(tree, i));
        items[pairs.place(tree.item(i))] = of_nodes[i].entry | beyond << kPositionShift | distance << kDistanceShift;
    }
    for (int64_t l = 0; l <= tree.n; l++) items[pairs.place(tree.leaf(l))] = static_cast<uint32_t>(label[l]) << kPositionShift;
}

}  // namespace

std::vector<RankEntry> rank_items(const Trees& trees, const RankedNodes& nodes, const int64_t* start, uint32_t* items, RankTest* tests,
                                  int32_t* label, const JumpArrays* jumps, int n_threads) {
    const Entries entries(nodes, trees.node_offsets[trees.n_trees], n_threads);
    const auto make = [&](Pairs& pairs, int64_t t, JumpWord* words) {
        const Tree tree = tree_of(trees, t);
        const int64_t node = trees.node_offsets[t], leaf = trees.leaf_offsets[t];
        RankTest of_nodes[kRankLeaves];
        for (int64_t i = 0; i < tree.n; i++) of_nodes[i] = entries.test(node + i);
        pairs.find(tree);
        make_tests(tree, pairs, of_nodes, tests + node, label + leaf);
        if (words)
            fill_places(words, jumps->root[t], tree, pairs, of_nodes);
        else
            make_items(tree, pairs, of_nodes, label + leaf, items + start[t]);
    };
    if (jumps && can_name(entries.entries().size()))
        each_part(jumps->n_words, n_threads, [&](int64_t, int64_t first, int64_t last) {
            Pairs pairs;
            for (int64_t w = first; w < last; w++)
                for (int64_t t = jumps->trees[w]; t < jumps->trees[w + 1]; t++)
                    make(pairs, t, jumps->words + w * jumps->words_together);
        });
    else
        each_part(trees.n_trees, n_threads, [&](int64_t, int64_t first, int64_t last) {
            Pairs pairs;
            for (int64_t t = first; t < last; t++) make(pairs, t, nullptr);
        });
    return entries.entries();
}

}  // namespace gpuqs
