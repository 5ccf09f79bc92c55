// Walks over a forest's own arrays, for calls made before any layout exists.
//
//   foreach tree:
//       foreach document:
//           node <- root
//           while node is not a leaf:
//               x <- value of its column
//               node <- left if x <= threshold, or if x is missing and goes left; else right
#pragma once
#include <cstddef>
#include <cstdint>

#include "driver/engines.hpp"

namespace gpuqs {

// The node arrays of gpuqs.forest.Forest, with the columns that gpuqs/layout/columns.py makes.
struct ForestTrees {
    Columns columns;
    bool single;
    int32_t n_trees;
    const int64_t* node_offsets;  // first node of each tree
    const int32_t* column;
    const double* threshold;
    const int32_t *left, *right;  // a node of the tree, or ~leaf
    const uint8_t* routing;
};

constexpr uint8_t kNanLeft = 1;  // a bit of ForestTrees::routing: missing values go left

// Leaves are numbered as in the forest. All trees are one tree block.
class ForestWalk final : public ByValue {
public:
    ForestWalk(const Kernels& kernels, const ForestTrees& trees, int block)
        : ByValue(kernels, trees, {0, trees.n_trees}, block), trees_(trees) {}

    int leaf_bytes() const override { return 4; }
    size_t scratch_bytes(int) const override { return 0; }
    void load(const Documents& documents, int64_t first, int n, int, void* loaded, void*) const override {
        load_rows(documents, first, n, loaded);
    }
    void find(int, int n, int stride, const void* loaded, void*, const LeafRecords&, void* leaf) const override {
        visit(loaded, [&](const auto* x) { walk(x, n, stride, static_cast<int32_t*>(leaf)); });
    }

private:
    int lanes() const override { return 1; }
    template <class Value> void walk(const Value* x, int n, int stride, int32_t* leaf) const {
        for (int t = 0; t < trees_.n_trees; t++, leaf += stride) {
            const int64_t root = trees_.node_offsets[t];
            const bool is_leaf = trees_.node_offsets[t + 1] == root;
            for (int d = 0; d < n; d++) leaf[d] = is_leaf ? 0 : exit_leaf(x + static_cast<int64_t>(d) * columns_.n, root);
        }
    }
    template <class Value> int32_t exit_leaf(const Value* x, int64_t root) const {
        int32_t node = 0;
        do {
            const int64_t at = root + node;
            const Value value = x[trees_.column[at]];
            const bool goes_left = value != value ? trees_.routing[at] & kNanLeft : value <= trees_.threshold[at];
            node = goes_left ? trees_.left[at] : trees_.right[at];
        } while (node >= 0);
        return ~node;
    }
    const ForestTrees trees_;
};

}  // namespace gpuqs
