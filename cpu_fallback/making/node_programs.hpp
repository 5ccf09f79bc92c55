// Tree programs as nodes, of whole forests, and where they find leaves.
#pragma once
#include <cstdint>

#include "making/trees.hpp"

namespace gpuqs {

// nodes: a TreeNode for each leaf, filled as gpuqs/layout/programs.py says; middle: as number_leaves gives it.
void node_programs(const Trees& trees, const int32_t* middle, const int32_t* predicate, void* nodes);

// Where each leaf stands: in Gray code, or in binary where its tree is oblivious; tree t's places begin at start[t].
void gray_places(int64_t n_trees, const int64_t* leaf_offsets, const uint8_t* oblivious, const int64_t* start, int64_t* place);

}  // namespace gpuqs
