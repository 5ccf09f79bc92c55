// Leaves with linear models: what a document adds to a sum there is a constant and some of its values times coefficients.
#pragma once
#include <cstdint>

namespace gpuqs {

// The trees and their leaves. A leaf's terms are [offsets[leaf], offsets[leaf + 1]), the first its constant; none: its value is all.
struct LinearLeaves {
    const int64_t* leaf_offsets;  // [n_trees + 1]
    const int32_t* tree_output;   // [n_trees]
    const double* value;          // [leaf]; also of documents that lack one of the values
    const int64_t* offsets;
    const int32_t* feature;
    const double* coefficient;
    int64_t n_trees;
};

// Documents, float or double, whose steps count bytes.
struct Rows {
    const char* at;
    int64_t row_step, column_step;
    bool is_double;
};

// Add the trees' outputs, in their order, to sums [n][n_outputs]; or, without these, write them to out [n][n_trees]. leaves [n][n_trees]
// are positions in each tree.
void add_linear(const LinearLeaves& trees, const Rows& rows, const int32_t* leaves, int64_t n, int64_t n_outputs, double* sums,
                double* out, int n_threads);

}  // namespace gpuqs
