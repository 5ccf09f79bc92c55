// What add_values reads: gpuqs/layout/leaves.py as a C struct.
#pragma once
#include <cstdint>

#include "layout/prefetch.hpp"

namespace gpuqs {

// Trees added at a time: their leaf values stay in the L1 cache while all documents of a block look them up.
constexpr int kTrees = 16;

enum class ValueKind : int { float64, float32, fixed };

// Leaves with linear models, in engine order: each one's terms, the first of which is the constant. A leaf without terms has
// only its value.
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
    const int32_t* row;          // each leaf's row of `value`, if leaves share vectors; null: each leaf has its own
    const int64_t* offsets;      // first leaf of each tree
    const int32_t* tree_output;  // output that a tree adds to, if width is 1
    const int32_t* leaf_id;      // the source library's number of each leaf
    // If width is 1 and there are several outputs: for each tree, the previous tree of the same output (-1: none) and the next one
    // (the number of all trees: none).
    const int32_t *before, *after;
    int32_t n_outputs;
    int32_t first_tree, n_trees;  // the range of trees that are scored; the arrays cover all trees
    const void* start;           // [n_outputs]: double, float or int64
    const void* tables;          // [tree][width][part of a value][64 leaves]; null if trees have more leaves or vectors are long
    int32_t table_leaves;        // 32 or 64: upper limit of leaves in a tree
    LinearTerms linear;
};

// What the next stage reads of each exit leaf.
struct LeafRecords {
    const void* first;       // null: the next stage reads something else, which it prefetches itself
    int64_t bytes;           // of one leaf's record
    const int64_t* offsets;  // first leaf of each tree
    void* sum = nullptr;     // of a single document, to which find adds the records, which are of its type; null: it adds nothing
};

static inline const void* record_at(const LeafRecords& records, int64_t leaf) {
    return static_cast<const char*>(records.first) + records.bytes * leaf;
}

// Prefetches the record of one leaf of a tree.
static inline void prefetch_record(const LeafRecords& records, int tree, int64_t leaf) {
    prefetch(record_at(records, records.offsets[tree] + leaf));
}

// Prefetches the records of all leaves of a tree, if they are single numbers: vectors would be too much for the caches at once.
static inline void prefetch_records(const LeafRecords& records, int tree) {
    const int64_t first = records.offsets[tree], end = records.offsets[tree + 1];
    if (records.bytes <= static_cast<int64_t>(sizeof(double))) prefetch_bytes(record_at(records, first), records.bytes * (end - first));
}

}  // namespace gpuqs
