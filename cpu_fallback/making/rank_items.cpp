#include "making/rank_items.hpp"

#include "making/one_tree.hpp"
#include "making/parts.hpp"
#include "making/rank_paths.hpp"

namespace gpuqs {
namespace {

// Numbers the entries that nodes ask: each is a column, 255 of its thresholds in a row, and a side for missing values.
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

    // A node's test, but for what is left of it.
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

// Walks' items and tests of the trees [first, last).
void make_items(const Trees& trees, const Entries& entries, int64_t first, int64_t last, const int64_t* start, uint32_t* items,
                RankTest* tests, int32_t* label) {
    Pairs pairs;
    for (int64_t t = first; t < last; t++) {
        const Tree tree = tree_of(trees, t);
        const int64_t node = trees.node_offsets[t], leaf = trees.leaf_offsets[t];
        pairs.find(tree);
        uint32_t* const of_tree = items + start[t];
        for (int64_t i = 0; i < tree.n; i++) {
            const int64_t item = tree.item(i);
            const auto [entry, position, _] = entries.test(node + i);
            tests[node + pairs.before(item)] = {entry, position, static_cast<uint8_t>(pairs.label(item))};
            const uint32_t beyond = static_cast<uint32_t>(kEntryThresholds - kSigned + position);
            const uint32_t distance = static_cast<uint32_t>(pairs.distance(tree, i));
            of_tree[pairs.place(item)] = entry | beyond << kPositionShift | distance << kDistanceShift;
        }
        for (int64_t l = 0; l <= tree.n; l++) {
            label[leaf + l] = pairs.label(tree.leaf(l));
            of_tree[pairs.place(tree.leaf(l))] = static_cast<uint32_t>(label[leaf + l]) << kPositionShift;
        }
    }
}

// Paths and tests of those trees.
void make_paths(const Trees& trees, const Entries& entries, int64_t first, int64_t last, const PathArrays& to, RankTest* tests,
                int32_t* label) {
    PathMaker paths(to);
    RankTest of_nodes[kPathPlaces];
    for (int64_t t = first; t < last; t++) {
        const Tree tree = tree_of(trees, t);
        const int64_t node = trees.node_offsets[t];
        for (int64_t i = 0; i < tree.n; i++) of_nodes[i] = entries.test(node + i);
        paths.add(t, tree, of_nodes, tests + node, label + trees.leaf_offsets[t]);
    }
}

}  // namespace

std::vector<RankEntry> rank_items(const Trees& trees, const RankedNodes& nodes, const int64_t* start, uint32_t* items, RankTest* tests,
                                  int32_t* label, const PathArrays* paths, int n_threads) {
    const Entries entries(nodes, trees.node_offsets[trees.n_trees], n_threads);
    const bool with_paths = paths && entries.entries().size() <= kPathEntries + 1;
    each_part(trees.n_trees, n_threads, [&](int64_t, int64_t first, int64_t last) {
        if (!with_paths) return make_items(trees, entries, first, last, start, items, tests, label);
        first = first_of_word(*paths, trees.n_trees, first), last = first_of_word(*paths, trees.n_trees, last);
        make_paths(trees, entries, first, last, *paths, tests, label);
    });
    return entries.entries();
}

}  // namespace gpuqs
