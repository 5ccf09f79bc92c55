#include "driver/linear.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "driver/threads.hpp"
#include "layout/columns.hpp"

namespace gpuqs {
namespace {

constexpr int kDocumentsTogether = 64;  // whose rows stay in the L1 cache for all trees

// A document's output at a leaf: the leaf's constant and terms, or its plain value if it has no terms or one of the document's
// values is missing.
template <class Value> double output_of(const LeafValues& values, const Documents& documents, int64_t leaf, const char* row) {
    const LinearTerms& terms = values.linear;
    const double value = static_cast<const double*>(values.value)[leaf];
    const int64_t end = terms.bounds[leaf].end;
    int64_t at = terms.bounds[leaf].first;
    if (at == end) return value;
    double sum = terms.coefficient[at];
    while (++at < end) {
        double x = *reinterpret_cast<const Value*>(row + terms.feature[at] * documents.column_stride);
        if (std::isnan(x)) return value;
        if (documents.tiny_is_zero && std::fabs(x) <= kZeroThreshold) x = 0;
        sum += terms.coefficient[at] * x;
    }
    return sum;
}

template <class Value, class Leaf>
void add_as(const LeafValues& values, const Documents& documents, int64_t first, int n, int tree, int n_trees, const Leaf* leaf,
            int stride, const uint16_t* order, const int32_t* places, double* sums) {
    const char* const rows = static_cast<const char*>(documents.data) + first * documents.row_stride;
    for (int d = 0; d < n; d += kDocumentsTogether) {
        const int end = std::min(n, d + kDocumentsTogether);
        for (int t = 0; t < n_trees; t++) {
            const Leaf* const of_tree = leaf + static_cast<int64_t>(t) * stride;
            const int64_t first_leaf = values.offsets[tree + t];
            double* const to = sums + static_cast<int64_t>(values.tree_output[tree + t]) * stride;
            for (int i = d; i < end; i++)
                to[places[i]] +=
                    output_of<Value>(values, documents, first_leaf + of_tree[order ? order[i] : i], rows + i * documents.row_stride);
        }
    }
}

template <class Value>
void write_as(const LeafValues& values, const Documents& documents, int64_t first, int64_t end, const int32_t* leaves, double* out) {
    const char* const rows = static_cast<const char*>(documents.data);
    for (int64_t t = 0; t < values.n_trees; t++)
        for (int64_t d = first; d < end; d++)
            out[d * values.n_trees + t] = output_of<Value>(values, documents, values.offsets[t] + leaves[d * values.n_trees + t],
                                                           rows + d * documents.row_stride);
}

}  // namespace

void add_linear(const LeafValues& values, const Documents& documents, int64_t first, int n, int tree, int n_trees, int leaf_bytes,
                const void* leaf, int stride, const uint16_t* order, const int32_t* places, double* sums) {
    const auto add = [&](auto* leaves) {
        using Leaf = std::decay_t<decltype(*leaves)>;
        (documents.is_double ? add_as<double, Leaf> : add_as<float, Leaf>)(values, documents, first, n, tree, n_trees, leaves, stride,
                                                                           order, places, sums);
    };
    switch (leaf_bytes) {
        case 1: return add(static_cast<const uint8_t*>(leaf));
        case 2: return add(static_cast<const uint16_t*>(leaf));
        default: return add(static_cast<const uint32_t*>(leaf));
    }
}

void linear_outputs(const LeafValues& values, const Documents& documents, const int32_t* leaves, double* out, int n_threads) {
    const auto write = documents.is_double ? write_as<double> : write_as<float>;
    share_out((documents.n + kDocumentsTogether - 1) / kDocumentsTogether, n_threads, [&](int, int64_t p) {
        const int64_t first = p * kDocumentsTogether;
        write(values, documents, first, std::min(documents.n, first + kDocumentsTogether), leaves, out);
    });
}

}  // namespace gpuqs
