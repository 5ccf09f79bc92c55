// The items of rankwalk (layout/rankwalk.hpp), and the entries that they read.
#pragma once
#include <cstdint>
#include <vector>

#include "layout/rankwalk.hpp"
#include "making/rank_jumps.hpp"
#include "making/trees.hpp"

namespace gpuqs {

// What a forest's nodes test, as gpuqs/layout/ranks.py has it. A node whose routing has the bit nan_left sends missing values
// left. Column c has the thresholds [offsets[c], offsets[c + 1]).
struct RankedNodes {
    const int32_t* column;
    const int32_t* rank;
    const uint8_t* routing;
    uint8_t nan_left;
    int64_t n_columns;
    const int64_t* offsets;
};

// Fills items [nodes and leaves] of sound trees (tree t's begin at start[t]), tests [nodes] and the label of each leaf; returns the
// entries, ascending. If jumps are given and their tests can name all entries, fills the words of jumps instead of items.
std::vector<RankEntry> rank_items(const Trees& trees, const RankedNodes& nodes, const int64_t* start, uint32_t* items, RankTest* tests,
                                  int32_t* label, const JumpArrays* jumps, int n_threads);

}  // namespace gpuqs
