// add_values reads this: gpuqs/layout/leaves.py as a C struct.
#pragma once
#include <cstdint>

#include "layout/prefetch.hpp"

namespace gpuqs {

// The leaf values of so many trees stay in the L1 cache while all documents of a block take them.
constexpr int kTrees = 16;

enum class ValueKind : int { float64, float32, fixed };

// Leaves whose values are linear models: each one's terms, the first its constant, by engine order; none: its value is all.
struct LinearBounds { int64_t first, end; };
struct LinearTerms {
    const LinearBounds* bounds;  // [leaf]; null: no leaf has a model
    const int32_t* feature;
    const double* coefficient;
};

struct LeafValues {
    ValueKind kind;
    const void* value;           // [leaves][width]: double, float or int32
    int32_t width;               // 1, or n_outputs for vector leaves
    const int32_t* row;          // of `value`, for each leaf, where leaves share vectors; null: its own
    const int64_t* offsets;      // first leaf of each tree
    const int32_t* tree_output;  // output that a tree adds to, where width is 1
    const int32_t* leaf_id;      // the source library's number of each leaf
    // Where width is 1 and there are several outputs: the tree of the same output before each (-1: none), and after it (the number
    // of all trees: none).
    const int32_t *before, *after;
    int32_t n_outputs;
    int32_t first_tree, n_trees;  // the range of trees that are scored; the arrays are of all
    const void* start;           // [n_outputs]: double, float or int64
    const void* tables;          // [tree][width][part of a value][64 leaves], or null: trees have more leaves, or vectors are long
    int32_t table_leaves;        // 32 or 64: most leaves of a tree
    LinearTerms linear;
};

// What is read next of each exit leaf.
struct LeafRecords {
    const void* first;       // null: something else, which is asked for as it is read
    int64_t bytes;           // of a leaf's
    const int64_t* offsets;  // first leaf of each tree
};

static inline const void* record_at(const LeafRecords& records, int64_t leaf) {
    return static_cast<const char*>(records.first) + records.bytes * leaf;
}

// Of a leaf of a tree.
static inline void prefetch_record(const LeafRecords& records, int tree, int64_t leaf) {
    prefetch(record_at(records, records.offsets[tree] + leaf));
}

// Of all leaves of a tree, where these are numbers: vectors would be more than caches want at once.
static inline void prefetch_records(const LeafRecords& records, int tree) {
    const int64_t first = records.offsets[tree], end = records.offsets[tree + 1];
    if (records.bytes <= static_cast<int64_t>(sizeof(double))) prefetch_bytes(record_at(records, first), records.bytes * (end - first));
}

}  // namespace gpuqs
