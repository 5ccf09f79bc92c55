// The predicated traversal that PRED and VPRED share, and its trees (paper 002, section 2; of Asadi et al.).
// A node has 16 bytes (2,040 a tree of 64 leaves, paper 002, section 6), or 24 where documents are float64: a feature, a
// threshold and the places of its two children; nodes and leaves lie depth-first, all trees in one array. A leaf's children
// are the leaf itself, so a walk that comes early stays there; its threshold's place holds its number for the look-up of its
// value.
#pragma once

#include <algorithm>
#include <utility>

#include "forest.hpp"

namespace baselines {

template <class Value>
struct PredicatedNode {
    int32_t feature;
    Value threshold;
    int32_t child[2];
};

template <class Value, class Sum>
struct PredicatedTrees {
    struct Tree {
        int64_t nodes, leaves;  // where they begin
        int depth;
    };

    std::vector<Tree> trees;
    std::vector<PredicatedNode<Value>> nodes;
    std::vector<Sum> values;

    explicit PredicatedTrees(const Forest<Value, Sum>& forest)
        : values(forest.leaf, forest.leaf + forest.leaf_offsets[forest.n_trees]) {
        nodes.reserve(forest.node_offsets[forest.n_trees] + forest.leaf_offsets[forest.n_trees]);
        for (long tree = 0; tree < forest.n_trees; ++tree) {
            const int64_t first = static_cast<int64_t>(nodes.size()), leaves = forest.leaf_offsets[tree];
            const auto place = [&](int32_t at, int32_t parent, PredicatedNode<Value> node) {
                nodes.push_back(node);
                if (parent >= 0) nodes[first + parent].child[1] = at;
            };
            depth_first(
                forest, tree,
                [&](int32_t at, int32_t parent, int64_t n) {
                    place(at, parent, {forest.column[n], forest.threshold[n], {at + 1, at}});
                },
                [&](int32_t at, int32_t parent, int64_t leaf) {
                    place(at, parent, {0, static_cast<Value>(leaf - leaves), {at, at}});  // exact: fewer than 2^24 leaves a tree
                });
            trees.push_back({first, leaves, depth(first)});
        }
    }

private:
    // Steps from the root of the last tree to its deepest leaf.
    int depth(int64_t first) const {
        std::vector<int> below(nodes.size() - first);
        int deepest = 0;
        for (size_t at = 0; at < below.size(); ++at) {
            const auto& node = nodes[first + at];
            deepest = std::max(deepest, below[at]);
            if (node.child[0] != node.child[1]) below[node.child[0]] = below[node.child[1]] = below[at] + 1;
        }
        return deepest;
    }
};

// The numbers of V documents that walk together.
template <int V>
using Together = std::make_integer_sequence<int, V>;

// Walk down `depth` levels with as many documents as `v` has numbers; at[v] is where document v stands. The steps of up to 16
// levels are unrolled and entered where the depth says, as the authors' code has a function for each depth; deeper trees go
// round again. Documents are no loop: compilers keep a branch a document in one, or unroll a copy of it for one column.
template <class Value, int... v>
[[gnu::noinline]] void walk(const PredicatedNode<Value>* nodes, const Value* x, long n_columns, int depth, int32_t* out,
                            std::integer_sequence<int, v...>) {
    int32_t at[sizeof...(v)] = {};
    const auto move = [&](int32_t from, const Value* row) __attribute__((always_inline)) {
        return nodes[from].child[is_false(row[nodes[from].feature], nodes[from].threshold)];
    };
    const auto step = [&]() __attribute__((always_inline)) { ((at[v] = move(at[v], x + v * n_columns)), ...); };
    for (; depth > 0; depth -= 16) switch (depth) {
            default: step(); [[fallthrough]];
            case 15: step(); [[fallthrough]];
            case 14: step(); [[fallthrough]];
            case 13: step(); [[fallthrough]];
            case 12: step(); [[fallthrough]];
            case 11: step(); [[fallthrough]];
            case 10: step(); [[fallthrough]];
            case 9: step(); [[fallthrough]];
            case 8: step(); [[fallthrough]];
            case 7: step(); [[fallthrough]];
            case 6: step(); [[fallthrough]];
            case 5: step(); [[fallthrough]];
            case 4: step(); [[fallthrough]];
            case 3: step(); [[fallthrough]];
            case 2: step(); [[fallthrough]];
            case 1: step();
        }
    ((out[v] = at[v]), ...);
}

template <class Value, class Sum, int... v>
void add_predicated(const PredicatedTrees<Value, Sum>& trees, const Batch<Value, Sum>& batch, long document, long tree,
                    std::integer_sequence<int, v...> documents) {
    const auto& t = trees.trees[tree];
    const PredicatedNode<Value>* nodes = trees.nodes.data() + t.nodes;
    const Sum* values = trees.values.data() + t.leaves;
    int32_t at[sizeof...(v)];
    walk(nodes, batch.row(document), batch.n_columns, t.depth, at, documents);
    ((batch.sums[document + v] += values[static_cast<int32_t>(nodes[at[v]].threshold)]), ...);
}

}  // namespace baselines
