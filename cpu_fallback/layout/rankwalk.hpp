// The rankwalk kernels read this: gpuqs/layout/rankwalk.py as C structs.
#pragma once
#include <cstdint>

#include "layout/columns.hpp"

namespace gpuqs {

constexpr int32_t kEntryThresholds = 255;

// A byte of a coded document: the value's rank among so many thresholds of a column, from `first` on.
struct RankEntry { int32_t column, first, nan_left; };

// A node's item: the entry, from the lowest bit, then 255 - position of the threshold (of a leaf: its position in the
// tree), then the distance to the left child. A code has its byte where an item has the position: their sum carries into
// the distance exactly if the walk turns right.
constexpr uint32_t kEntryMask = 0xffff;
constexpr int kPositionShift = 16, kDistanceShift = 24;

constexpr int kRankLeaves = 128;  // of a tree, at most
constexpr int kRankWalks = 12;    // trees walked side by side: as many as there are registers for
constexpr int kItemsOfLine = 16;

// A node as it is asked of many documents at once: the entry whose byte must exceed the position on the way to the right, and
// the label of the subtree's leftmost leaf. A leaf's label counts nodes in preorder, from 1: it is that of the
// node to whose right it comes first; 0 is the leftmost leaf's.
struct RankTest {
    uint16_t entry;
    int8_t position;
    uint8_t first;
};
constexpr int kSigned = 127;  // bytes and positions are taken from it: they are compared with their signs

// Bytes of the registers that hold documents: no more than 32, for compares of wider ones go through masks, which takes longer.
constexpr int kMostRankLanes = 32;
// So few documents walk, or jump where they can; more of them are asked every test, which takes as long for one
// as for a register full of them. Sets with registers of 16 bytes, of other instructions, too, take longer for it.
constexpr int kWalking = 4, kWalkingNarrow = 8, kJumping = 12;
constexpr int most_walking(int lanes) { return lanes > 16 ? kWalking : kWalkingNarrow; }
// Places of documents that pass a tree together: one, two or four registers full.
constexpr int kRegistersTogether = 4;
constexpr int places_together(int n, int lanes) { return lanes * (n <= lanes ? 1 : n <= 2 * lanes ? 2 : kRegistersTogether); }

// Trees whose tests a document is asked all at once, and which it goes through by pointer jumping. Nodes lie in places of words in
// preorder, so that a node's left child has the next place; some trees may share a word. A tree without nodes has a place, too,
// whose test none passes. Where a tree has more nodes than a word has places, words go in twos, whose places count on.
constexpr int kJumpPlaces = 64, kJumpEntries = 256;
constexpr uint8_t kLeafOnLeft = 128;
// Of so many words together. Labels, up to the place after the last one, are below kLeafOnLeft.
constexpr int places_of(int words_together) { return words_together == 1 ? kJumpPlaces : 2 * kJumpPlaces - 1; }
static_assert(places_of(2) < kLeafOnLeft && kRankLeaves - 1 <= places_of(2));

struct JumpWord {
    uint8_t entry[kJumpPlaces];     // its number less one, for no node asks the leaves'
    uint8_t position[kJumpPlaces];
    uint8_t right[kJumpPlaces];     // the right child's place; if that is a leaf, the node's own
    uint8_t first[kJumpPlaces];     // root's place + label of the leftmost leaf below (+ kLeafOnLeft, if that is the left child)
};

struct RankJumps {
    int32_t n_words = 0;                 // or twos of words; 0: there are no jumps
    int32_t words_together = 1;
    const JumpWord* words = nullptr;
    const int32_t* trees = nullptr;      // of each word, or two: its first tree, and the end
    const int32_t* blocks = nullptr;     // of each tree block: its first word, or two, and the end
    const uint8_t* root = nullptr;       // of each tree: its place
    const uint8_t* doublings = nullptr;  // of each tree block: so many lead from roots to its deepest node
};

// A column's thresholds in blocks, the last filled up with infinity. Samples are the last threshold of each block but the
// last; they fill blocks, too. What lies below a value is counted in samples first, then in one block.
constexpr int kBlockThresholds = 16;

template <class Value> struct ThresholdBlocks { const Value *threshold, *sample; };

struct RankWalkLayout {
    Columns columns;
    bool single;              // documents are cast to float32 first
    const int64_t* offsets;   // of a column's thresholds
    const float* threshold32;  // rounded down
    const double* threshold64;
    const int64_t* block;         // of blocks: each column's first, and the end
    const int64_t* sample_block;  // of blocks of samples: likewise
    ThresholdBlocks<float> blocks32;
    ThresholdBlocks<double> blocks64;
    int32_t n_entries;
    const RankEntry* entries;  // the first is the leaves'
    int32_t n_blocks;
    const int32_t* block_offsets;
    const int32_t* tree;   // [group][kRankWalks]: within the tree block, -1: none
    const uint32_t* root;  // [group][kRankWalks]
    const uint8_t* steps;  // [group]
    const int64_t* group_items;  // [groups + 1]: where each group's items start, in order
    const uint32_t* items;        // none where there are jumps
    const int64_t* node_offsets;  // of each tree's tests
    const RankTest* tests;        // in preorder
    RankJumps jumps;
};

}  // namespace gpuqs
