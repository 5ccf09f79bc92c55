// add_values reads this: gpuqs/layout/leaves.py as a C struct.
#pragma once
#include <cstdint>

namespace gpuqs {

// The leaf values of so many trees stay in the L1 cache while all documents of a block take them.
constexpr int kTrees = 16;

enum class ValueKind : int { float64, float32, fixed };

struct LeafValues {
    ValueKind kind;
    const void* value;           // [leaves][width]: double, float or int32
    int32_t width;               // 1, or n_outputs for vector leaves
    const int64_t* offsets;      // first leaf of each tree
    const int32_t* tree_output;  // output that a tree adds to, where width is 1
    const int32_t* leaf_id;      // the source library's number of each leaf
    int32_t n_outputs;
    int32_t n_trees;
    const void* start;           // [n_outputs]: double, float or int64
    const void* tables;          // [tree][part of a value][64 leaves], or null: one output, at most 64 leaves
    int32_t table_leaves;        // 32 or 64: most leaves of a tree
};

// What is read next of each exit leaf.
struct LeafRecords {
    const void* first;       // null: something else, which is asked for as it is read
    int64_t bytes;           // of a leaf's
    const int64_t* offsets;  // first leaf of each tree

    void ask(int tree, int64_t leaf) const { ask_at(bytes * (offsets[tree] + leaf)); }
    // Of all leaves of a tree, where these are numbers: vectors would be more than caches want at once.
    void ask(int tree) const {
        if (bytes > static_cast<int64_t>(sizeof(double))) return;
        for (int64_t at = bytes * offsets[tree]; at < bytes * offsets[tree + 1]; at += 64) ask_at(at);
    }

private:
    void ask_at(int64_t at) const {
        __builtin_prefetch(static_cast<const char*>(first) + at);
        asm volatile("");  // else compilers drop calls of a function that only prefetches
    }
};

}  // namespace gpuqs
