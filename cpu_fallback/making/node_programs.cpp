#include "making/node_programs.hpp"

#include "layout/programs.hpp"

namespace gpuqs {

void node_programs(const Trees& trees, const int32_t* middle, const int32_t* predicate, void* nodes) {
    for (int64_t t = 0; t < trees.n_trees; t++) {
        TreeNode* const of_tree = static_cast<TreeNode*>(nodes) + trees.leaf_offsets[t];
        const int64_t first = trees.node_offsets[t], end = trees.node_offsets[t + 1];
        const auto number = [&](int32_t child) { return static_cast<uint16_t>(child >= 0 ? middle[first + child] : 0); };
        of_tree[0] = {0, 0, static_cast<uint16_t>(first < end ? middle[first] : 0)};
        for (int64_t i = first; i < end; i++)
            of_tree[middle[i]] = {static_cast<uint32_t>(predicate[i]), number(trees.left[i]), number(trees.right[i])};
    }
}

void gray_places(int64_t n_trees, const int64_t* leaf_offsets, const uint8_t* oblivious, const int64_t* start, int64_t* place) {
    for (int64_t t = 0; t < n_trees; t++) {
        const int64_t n_leaves = leaf_offsets[t + 1] - leaf_offsets[t];
        for (int64_t leaf = 0; leaf < n_leaves; leaf++)
            place[leaf_offsets[t] + leaf] = start[t] + (oblivious[t] ? leaf : leaf ^ leaf >> 1);
    }
}

}  // namespace gpuqs
