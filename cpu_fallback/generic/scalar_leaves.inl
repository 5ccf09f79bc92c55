// Scalar leaves without tables: the sums of a few documents stay in registers while some trees of a run are added.
//
//   for every few documents:
//       s = their sums
//       for each tree: s[document] += value[leaf[document]]
#pragma once
#include <cstdint>

#include "scalar_sums.inl"

namespace gpuqs {
namespace {

// Adds for `width` documents.
template <int width, class Value, class Sum, class Leaf>
void add_side_by_side(const Value* value, const int64_t* offsets, int n_trees, int step, const Leaf* leaf, int stride, Sum* sums) {
    Sum s[width];
    for (int k = 0; k < width; k++) s[k] = sums[k];
    for (int t = 0; t < n_trees; t++, offsets += step, leaf += static_cast<int64_t>(step) * stride) {
        const Value* of_tree = value + *offsets;
        if constexpr (sizeof(Leaf) * width == 8) {
            uint64_t leaves;  // one load for all: the load ports are the bottleneck
            __builtin_memcpy(&leaves, leaf, sizeof leaves);
            for (int k = 0; k < width; k++) s[k] += of_tree[static_cast<Leaf>(leaves >> 8 * sizeof(Leaf) * k)];
        } else {
            for (int k = 0; k < width; k++) s[k] += of_tree[leaf[k]];
        }
    }
    for (int k = 0; k < width; k++) sums[k] = s[k];
}

template <class Value, class Sum, class Leaf>
void add_scalar_leaves(const Value* value, const int64_t* offsets, int n_trees, int step, const Leaf* leaf, int n, int stride,
                       Sum* sums) {
    // A single document, at once: from cold caches each line of code counts.
    if (n == 1) return add_side_by_side<1>(value, offsets, n_trees, step, leaf, stride, sums);
    int d = ScalarSums::add_by_registers(value, offsets, n_trees, step, leaf, n, stride, sums);
    for (; d + 8 <= n; d += 8) add_side_by_side<8>(value, offsets, n_trees, step, leaf + d, stride, sums + d);
    if (n - d >= 4) add_side_by_side<4>(value, offsets, n_trees, step, leaf + d, stride, sums + d), d += 4;
    for (; d < n; d++) add_side_by_side<1>(value, offsets, n_trees, step, leaf + d, stride, sums + d);
}

}  // namespace
}  // namespace gpuqs
