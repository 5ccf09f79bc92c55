#include "driver/linear.hpp"

#include <algorithm>
#include <cmath>

#include "driver/threads.hpp"

namespace gpuqs {
namespace {

constexpr int64_t kDocumentsOfPiece = 64;

template <class Value> double output_of(const LinearLeaves& trees, int64_t leaf, const char* row, int64_t step) {
    const int64_t first = trees.offsets[leaf], end = trees.offsets[leaf + 1];
    if (first == end) return trees.value[leaf];
    double sum = trees.coefficient[first];
    for (int64_t at = first + 1; at < end; at++) {
        const double x = *reinterpret_cast<const Value*>(row + trees.feature[at] * step);
        if (std::isnan(x)) return trees.value[leaf];
        sum += trees.coefficient[at] * x;
    }
    return sum;
}

template <class Value>
void add_documents(const LinearLeaves& trees, const Rows& rows, const int32_t* leaves, int64_t first, int64_t end, int64_t n_outputs,
                   double* sums, double* out) {
    // Tree by tree, whose leaves stay in the caches for some documents.
    for (int64_t t = 0; t < trees.n_trees; t++) {
        const int64_t begin = trees.leaf_offsets[t];
        for (int64_t d = first; d < end; d++) {
            const char* const row = rows.at + d * rows.row_step;
            const double x = output_of<Value>(trees, begin + leaves[d * trees.n_trees + t], row, rows.column_step);
            if (sums)
                sums[d * n_outputs + trees.tree_output[t]] += x;
            else
                out[d * trees.n_trees + t] = x;
        }
    }
}

}  // namespace

void add_linear(const LinearLeaves& trees, const Rows& rows, const int32_t* leaves, int64_t n, int64_t n_outputs, double* sums,
                double* out, int n_threads) {
    const auto add = rows.is_double ? add_documents<double> : add_documents<float>;
    const int64_t pieces = (n + kDocumentsOfPiece - 1) / kDocumentsOfPiece;
    const auto add_piece = [&](int64_t p) {
        const int64_t first = p * kDocumentsOfPiece;
        add(trees, rows, leaves, first, std::min(n, first + kDocumentsOfPiece), n_outputs, sums, out);
    };
    if (n_threads == 1 || pieces < 2) {
        for (int64_t p = 0; p < pieces; p++) add_piece(p);
    } else {
        share_out(pieces, n_threads, [&](int, int64_t p) { add_piece(p); });
    }
}

}  // namespace gpuqs
