// Leaves with linear models: a document's output there is a constant plus some of its values times coefficients.
#pragma once
#include <cstdint>

#include "layout/documents.hpp"
#include "layout/leaves.hpp"

namespace gpuqs {

// Adds the outputs of documents [first, first + n) in trees [tree, tree + n_trees), in the order of trees, to sums[output][stride].
// Their exit leaves are leaf[tree][stride], of leaf_bytes bytes each. Document d is at place order[d] of leaf (null: at d), and at
// places[d] of sums.
void add_linear(const LeafValues& values, const Documents& documents, int64_t first, int n, int tree, int n_trees, int leaf_bytes,
                const void* leaf, int stride, const uint16_t* order, const int32_t* places, double* sums);

// Writes the outputs to out [n][trees]. leaves [n][trees] are positions in each tree.
void linear_outputs(const LeafValues& values, const Documents& documents, const int32_t* leaves, double* out, int n_threads);

}  // namespace gpuqs
