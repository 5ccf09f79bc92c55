// Sparse documents: the entries of a matrix's tested columns, put into a block of dense rows.
#pragma once
#include <algorithm>
#include <cstdint>

namespace gpuqs {

enum SparseProblem {
    SPARSE_OK = 0,
    SPARSE_BOUNDS,    // a row's (column's) entries do not lie among those that there are
    SPARSE_OUTSIDE,   // an index is not one of a column (row)
    SPARSE_TWICE,     // a row holds two entries of a column
    SPARSE_UNSORTED,  // a column's entries are not in ascending order
    SPARSE_REFUSED,   // an entry holds the value that is not taken
};

struct SparseResult {
    int problem;      // SparseProblem
    int64_t at;       // row (CSR) or tested column (CSC) at fault
    int64_t index;    // the index at fault
};

// Rows [start, start + n) of CSR into out [n][n_tested], which is filled with the value of absent entries. column_of [n_columns]: the
// place of a column among those tested, or -1. seen [n_tested] holds numbers that are no row's.
// Every index is checked before it is used: the matrix may be malformed.
template <class Index, class Value, class Out>
SparseResult scatter_rows(const int64_t* bounds, const Index* indices, const Value* data, int64_t n_entries, int64_t start, int64_t n,
                          int64_t n_columns, const int32_t* column_of, int64_t n_tested, int64_t* seen, bool refuses, double refused,
                          Out* out) {
    for (int64_t row = 0; row < n; row++, out += n_tested) {
        const int64_t first = bounds[row], end = bounds[row + 1];
        if (first < 0 || first > end || end > n_entries) return {SPARSE_BOUNDS, start + row, 0};
        for (int64_t at = first; at < end; at++) {
            const int64_t index = static_cast<int64_t>(indices[at]);
            if (index < 0 || index >= n_columns) return {SPARSE_OUTSIDE, start + row, index};
            const int32_t column = column_of[index];
            if (column < 0) continue;
            if (seen[column] == start + row) return {SPARSE_TWICE, start + row, index};
            seen[column] = start + row;
            if (refuses && static_cast<double>(data[at]) == refused) return {SPARSE_REFUSED, start + row, index};
            out[column] = static_cast<Out>(data[at]);
        }
    }
    return {SPARSE_OK, 0, 0};
}

// Whether tested columns of CSC hold rows [0, n_rows) in strictly ascending order; bounds [n_tested][2].
template <class Index>
SparseResult check_columns(const int64_t* bounds, const Index* indices, int64_t n_entries, int64_t n_rows, int64_t n_tested) {
    for (int64_t column = 0; column < n_tested; column++) {
        const int64_t first = bounds[2 * column], end = bounds[2 * column + 1];
        if (first < 0 || first > end || end > n_entries) return {SPARSE_BOUNDS, column, 0};
        int64_t last = -1;
        bool ascends = true;
        for (int64_t at = first; at < end; at++) {
            const int64_t index = static_cast<int64_t>(indices[at]);
            if (index < 0 || index >= n_rows) return {SPARSE_OUTSIDE, column, index};
            ascends &= index > last;
            last = index;
        }
        if (!ascends) return {SPARSE_UNSORTED, column, 0};
    }
    return {SPARSE_OK, 0, 0};
}

// Rows [start, start + n) of a CSC that passed check_columns into out [n_tested][n], which is filled with the value of absent entries.
template <class Index, class Value, class Out>
SparseResult scatter_columns(const int64_t* bounds, const Index* indices, const Value* data, int64_t start, int64_t n, int64_t n_tested,
                             bool refuses, double refused, Out* out) {
    for (int64_t column = 0; column < n_tested; column++, out += n) {
        const Index* const end = indices + bounds[2 * column + 1];
        const Index* at = std::lower_bound(indices + bounds[2 * column], end, start,
                                           [](Index index, int64_t row) { return static_cast<int64_t>(index) < row; });
        for (; at < end; at++) {
            const int64_t row = static_cast<int64_t>(*at) - start;
            if (row < 0 || row >= n) break;
            if (refuses && static_cast<double>(data[at - indices]) == refused) return {SPARSE_REFUSED, column, start + row};
            out[row] = static_cast<Out>(data[at - indices]);
        }
    }
    return {SPARSE_OK, 0, 0};
}

}  // namespace gpuqs
