// Sparse documents: the entries of a matrix's tested columns, put into a block of dense rows.
#pragma once
#include <cstdint>

namespace gpuqs {

enum SparseProblem {
    SPARSE_OK = 0,
    SPARSE_BOUNDS,    // a row's (column's) bounds are not within the entries
    SPARSE_OUTSIDE,   // an index is not that of a column (row)
    SPARSE_TWICE,     // a row holds two entries of a column
    SPARSE_UNSORTED,  // a column's entries are not in ascending order
    SPARSE_REFUSED,   // an entry holds the value that is refused
    SPARSE_UNREAD,    // an array's type is not supported
};

struct SparseResult {
    int problem;      // SparseProblem
    int64_t at;       // row (CSR) or tested column (CSC) at fault
    int64_t index;    // the index at fault
};

// An array's numbers as NumPy describes them: its kind (i, u or f) and the bytes of each.
struct Numbers {
    const void* first;
    char kind;
    int bytes;
};

// A matrix's entries. Indices are int32 or int64, data integers or native floats; neither is trusted.
struct SparseEntries {
    Numbers indices, data;
    int64_t n;
    bool refuses;    // whether the value `refused` is an error
    double refused;
};

// Dense rows of floats or doubles, filled with the value of absent entries.
struct DenseRows {
    void* first;
    bool is_double;
    int64_t n, n_tested;
};

// Writes rows [start, start + n) of CSR to out [n][n_tested]. column_of [n_columns]: the place of a column among the tested ones,
// or -1. seen [n_tested] is scratch, and must not hold the number of any of these rows.
SparseResult scatter_rows(const int64_t* bounds, const SparseEntries& entries, int64_t start, int64_t n_columns,
                          const int32_t* column_of, int64_t* seen, const DenseRows& out);

// Checks that tested columns of CSC hold rows in [0, n_rows), in strictly ascending order; bounds [n_tested][2].
SparseResult check_columns(const int64_t* bounds, const Numbers& indices, int64_t n_entries, int64_t n_rows, int64_t n_tested);

// Writes rows [start, start + n) of a CSC that passed check_columns to out [n_tested][n].
SparseResult scatter_columns(const int64_t* bounds, const SparseEntries& entries, int64_t start, const DenseRows& out);

}  // namespace gpuqs
