#include "making/rank_items.hpp"

#include "making/one_tree.hpp"
#include "making/rank_paths.hpp"

namespace gpuqs {
namespace {

// Numbers the entries that nodes ask: each is a column, 255 of its thresholds in a row, and a side for missing values.
class Entries {
public:
    Entries(const RankedNodes& nodes, int64_t n_nodes) : nodes_(nodes), first_run_(nodes.n_columns + 1) {
        for (int64_t c = 0; c < nodes.n_columns; c++)
            first_run_[c + 1] = first_run_[c] + (nodes.offsets[c + 1] - nodes.offsets[c] + kEntryThresholds - 1) / kEntryThresholds;
        number_.assign(2 * first_run_[nodes.n_columns], 0);
        for (int64_t i = 0; i < n_nodes; i++) number_[place_of(i)] = 1;
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

    // A node's item but for the distance.
    uint32_t item(int64_t i) const {
        return static_cast<uint32_t>(kEntryThresholds - position(i)) << kPositionShift | number_[place_of(i)];
    }
    RankTest test(int64_t i, int32_t first) const {
        return {static_cast<uint16_t>(number_[place_of(i)]), static_cast<int8_t>(kSigned - position(i)), static_cast<uint8_t>(first)};
    }
    const std::vector<RankEntry>& entries() const { return entries_; }

private:
    int32_t position(int64_t i) const { return nodes_.rank[i] % kEntryThresholds; }
    int64_t place_of(int64_t i) const {
        return 2 * (first_run_[nodes_.column[i]] + nodes_.rank[i] / kEntryThresholds) + ((nodes_.routing[i] & nodes_.nan_left) != 0);
    }

    const RankedNodes& nodes_;
    std::vector<int64_t> first_run_;
    std::vector<uint32_t> number_;  // by place_of
    std::vector<RankEntry> entries_;
};

}  // namespace

std::vector<RankEntry> rank_items(const Trees& trees, const RankedNodes& nodes, const int64_t* start, uint32_t* items, RankTest* tests,
                                  int32_t* label, PathMaker* paths) {
    const Entries entries(nodes, trees.node_offsets[trees.n_trees]);
    if (entries.entries().size() > kPathEntries + 1) paths = nullptr;
    Pairs pairs;
    for (int64_t t = 0; t < trees.n_trees; t++) {
        const Tree tree = tree_of(trees, t);
        const int64_t node = trees.node_offsets[t], leaf = trees.leaf_offsets[t];
        pairs.find(tree);
        uint32_t* const of_tree = paths ? nullptr : items + start[t];
        for (int64_t i = 0; i < tree.n; i++) {
            const int64_t item = tree.item(i);
            tests[node + pairs.before(item)] = entries.test(node + i, pairs.label(item));
            if (!of_tree) continue;
            of_tree[pairs.place(item)] = entries.item(node + i) | static_cast<uint32_t>(pairs.distance(tree, i)) << kDistanceShift;
        }
        for (int64_t l = 0; l <= tree.n; l++) {
            label[leaf + l] = pairs.label(tree.leaf(l));
            if (of_tree) of_tree[pairs.place(tree.leaf(l))] = static_cast<uint32_t>(label[leaf + l]) << kPositionShift;
        }
        if (paths) paths->add(t, tree, pairs, tests + node);
    }
    return entries.entries();
}

}  // namespace gpuqs
