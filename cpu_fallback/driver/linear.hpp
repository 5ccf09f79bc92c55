// Leaves with linear models: what a document adds to a sum there is a constant and some of its values times coefficients.
#pragma once
#include <cstdint>

#include "layout/documents.hpp"
#include "layout/leaves.hpp"

namespace gpuqs {

// Documents [first, first + n) at leaves leaf[tree][stride], of so many bytes each, of trees [tree, tree + n_trees): their outputs, in
// the order of trees, to sums[output][stride]. Document d is at place order[d] of leaf (null: at d), and at places[d] of sums.
void add_linear(const LeafValues& values, const Documents& documents, int64_t first, int n, int tree, int n_trees, int leaf_bytes,
                const void* leaf, int stride, const uint16_t* order, const int32_t* places, double* sums);

// The outputs to out [n][trees]. leaves [n][trees] are positions in each tree.
void linear_outputs(const LeafValues& values, const Documents& documents, const int32_t* leaves, double* out, int n_threads);

}  // namespace gpuqs
