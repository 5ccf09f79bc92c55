// Tree programs as nodes, for whole forests.
#pragma once
#include <cstdint>

#include "making/trees.hpp"

namespace gpuqs {

// nodes: a TreeNode for each leaf, filled as gpuqs/layout/programs.py says; middle: as number_leaves gives it.
void node_programs(const Trees& trees, const int32_t* middle, const int32_t* predicate, void* nodes, int n_threads);

}  // namespace gpuqs
