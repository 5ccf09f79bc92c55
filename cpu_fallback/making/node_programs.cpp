#include "making/node_programs.hpp"

#include "layout/programs.hpp"
#include "making/parts.hpp"

namespace gpuqs {

static void make_program(const Trees& trees, int64_t t, const int32_t* middle, const int32_t* predicate, TreeNode* nodes) {
    const int64_t first = trees.node_offsets[t], end = trees.node_offsets[t + 1];
    const auto number = [&](int32_t child) { return static_cast<uint16_t>(child >= 0 ? middle[first + child] : 0); };
    nodes[0] = {0, 0, static_cast<uint16_t>(first < end ? middle[first] : 0)};
    for (int64_t i = first; i < end; i++)
        nodes[middle[i]] = {static_cast<uint32_t>(predicate[i]), number(trees.left[i]), number(trees.right[i])};
}

void node_programs(const Trees& trees, const int32_t* middle, const int32_t* predicate, void* nodes, int n_threads) {
    each_part(trees.n_trees, n_threads, [&](int64_t, int64_t first, int64_t last) {
        for (int64_t t = first; t < last; t++)
            make_program(trees, t, middle, predicate, static_cast<TreeNode*>(nodes) + trees.leaf_offsets[t]);
    });
}

}  // namespace gpuqs
