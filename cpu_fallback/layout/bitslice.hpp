// What the bit-sliced kernels read: gpuqs/layout/bitslice.py as C structs.
#pragma once
#include <cstdint>

#include "layout/programs.hpp"
#include "layout/ranks.hpp"

namespace gpuqs {

struct Segment {
    uint32_t column;
    uint16_t high;  // bits of the predicates' ranks above the lowest nibble; with by_byte, the lowest nibble of this is 0
    uint8_t last;   // number of predicates after the first
    uint8_t flags;

    bool nan_left() const { return flags & 1; }
    bool by_byte() const { return flags & 2; }
};

struct BitsliceLayout {
    RankTables ranks;
    int32_t n_blocks;
    const int32_t* block_offsets;
    const int64_t* block_segments;
    const Segment* segments;
    const uint8_t* low;
    const int64_t* block_low;
    int32_t n_predicates;
    const int64_t* level_offsets;  // levels of oblivious trees; other trees have none
    const uint16_t* levels;        // the predicate of each level, the deepest first
    const uint16_t* tree_leaves;
    int32_t leaf_bytes;  // 1 if all trees have at most 256 leaves, else 2

    // Tree programs: as nodes, to be compiled, or, if `nodes` is null, as treelets, to be interpreted.
    const int64_t* node_offsets = nullptr;
    const TreeNode* nodes = nullptr;
    int32_t trees_merged = 0;
    int32_t n_slots = 0;
    const int64_t* group_runs = nullptr;
    const Run* runs = nullptr;
    const int64_t* group_treelets = nullptr;
    const Treelet* treelets = nullptr;
    const uint16_t* tree_slot = nullptr;
};

}  // namespace gpuqs
