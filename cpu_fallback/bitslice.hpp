// What the bit-sliced kernels read: gpuqs/layout/ranks.py and gpuqs/layout/bitslice.py as C structs.
#pragma once
#include <cstdint>

#include "documents.hpp"

namespace gpuqs {

// A feature's category sets: for each code a row of bits, one for each set that tests it: does the code go right?
struct CategoryTable {
    int32_t feature, routing;
    int32_t n_columns, n_codes;  // n_codes + 2 rows: the codes, "no code", "missing"
    int64_t row_words;           // 64-bit words a row
    int64_t columns, rows;       // where its columns and rows start
};

struct RankModel {
    Columns columns;    // the numeric ones: categorical columns follow, ranked by tables
    int32_t n_columns;  // all
    bool single;  // documents are cast to float32 first
    const uint8_t* n_bits;
    const uint8_t* marks_missing;
    const int32_t* plane_offsets;  // [columns + 1]
    const int64_t* level_offsets;
    const float* levels;
    const int64_t* offsets;  // of a column's thresholds
    const double* threshold;
    int32_t n_tables;
    const CategoryTable* tables;
    const int32_t* table_columns;
    const uint64_t* table_rows;

    int32_t n_planes() const { return plane_offsets[n_columns]; }
};

struct Segment {
    uint16_t column, high;
    uint8_t nan_left, count;
};

// Predicates and slots are where their words start among the narrowest words, in bytes: processors scale them.
struct Treelet {
    uint32_t predicate[3];  // of the root, its left child, its right child
    uint16_t slot[3];
    uint16_t first, end;  // of the root
    uint16_t zero;
};

constexpr int kNarrowestWord = 16;
constexpr int kPlanes = 12;  // most bits of a leaf's number: slots hold no larger trees

struct Run {
    uint16_t kind;  // bit 0: with the left child, bit 1: with the right
    uint16_t count;
};

// Node j of a tree, between its leaves j - 1 and j. Children by their numbers; 0: a leaf. The root is entry 0's right child.
struct TreeNode {
    uint32_t predicate;
    uint16_t left, right;
};

// How the processor's instructions on vector registers are encoded; none: tree programs are not made into machine code.
enum class Encoding { none, vex, evex };

struct BitsliceModel {
    RankModel ranks;
    int32_t n_trees;
    int32_t n_batches;
    const int32_t* batch_offsets;
    const int64_t* batch_segments;
    const Segment* segments;
    const uint8_t* low;
    const int64_t* batch_low;
    int32_t n_words;
    const int64_t* level_offsets;  // of oblivious trees; no levels of others
    const uint16_t* levels;        // predicates, the deepest first
    const uint16_t* tree_leaves;
    int32_t leaf_bytes;  // 1: at most 256 leaves a tree; 2

    // Programs as treelets, to be interpreted, or (null treelets) as nodes, to be compiled.
    int32_t trees_merged;
    int32_t n_slots;
    const int64_t* group_runs;
    const Run* runs;
    const int64_t* group_treelets;
    const Treelet* treelets;
    const uint16_t* tree_slot;
    const int64_t* node_offsets;
    const TreeNode* nodes;
};

// Documents whose values are laid out feature-major at a time, while their ranks are found: 16, or 128 of many.
constexpr int kRankBlock = 128;
inline int rank_block(int n) { return n <= 16 ? 16 : kRankBlock; }

}  // namespace gpuqs
