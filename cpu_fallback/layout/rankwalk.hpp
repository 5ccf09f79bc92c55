// What the rankwalk kernels read: gpuqs/layout/rankwalk.py as C structs.
#pragma once
#include <cstdint>

#include "layout/columns.hpp"

namespace gpuqs {

constexpr int32_t kEntryThresholds = 255;

// A byte of a coded document: the value's rank among up to kEntryThresholds thresholds of a column, from `first` on.
struct RankEntry { int32_t column, first, nan_left; };

// A node's item holds, from the lowest bit: the entry, 255 - position of the threshold (in a leaf's item: the leaf's label), and
// the distance to the left child. A code has its byte in the bits where an item has the position, so that their sum carries
// into the distance exactly if the walk turns right.
constexpr uint32_t kEntryMask = 0xffff;
constexpr int kPositionShift = 16, kDistanceShift = 24;

constexpr int kRankLeaves = 128;  // upper limit of leaves in a tree
constexpr int kRankWalks = 12;    // trees walked side by side: as many as registers can hold
constexpr int kItemsOfLine = 16;

// A node's test, for many documents at once: a document goes right if the entry's byte exceeds the position; `first` is the
// label of the subtree's leftmost leaf. With nodes counted in preorder from 1, the leftmost leaf of the right subtree of node
// i has label i; the tree's leftmost leaf has label 0.
struct RankTest {
    uint16_t entry;
    int8_t position;
    uint8_t first;
};
constexpr int kSigned = 127;  // bytes and positions are stored as this minus their value, because compares are signed

// Upper limit of bytes in a register of documents: compares of wider registers go through masks, which is slower.
constexpr int kMaxRankLanes = 32;
// Upper limits of documents that walk, or that jump where the instruction set has jumps. More documents evaluate every test,
// which takes as long for one as for a register full. With registers of 16 bytes (and other instructions) that takes longer,
// hence kWalkingNarrow.
constexpr int kWalking = 4, kWalkingNarrow = 8, kJumping = 16;
static constexpr int max_walking(int lanes) { return lanes > 16 ? kWalking : kWalkingNarrow; }
// Places of documents that go through a tree together: one, two or four registers full.
constexpr int kRegistersTogether = 4;
static constexpr int places_together(int n, int lanes) { return lanes * (n <= lanes ? 1 : n <= 2 * lanes ? 2 : kRegistersTogether); }

// Trees in words: a document evaluates all tests of a word at once, and then finds its exit leaves by pointer jumping. Nodes have
// places in a word in preorder, so that a node's left child has the next place; several trees may share a word. A tree without
// nodes has one place, whose test no document passes. If some tree has more nodes than a word has places, words come in pairs, and
// the places of the second word continue those of the first.
constexpr int kJumpPlaces = 64, kJumpEntries = 256;
constexpr uint8_t kLeafOnRight = 128;
// Usable places of one word, or of a pair. Labels, which reach the place after the last one, stay below kLeafOnRight.
static constexpr int places_of(int words_together) { return words_together == 1 ? kJumpPlaces : 2 * kJumpPlaces - 1; }
static_assert(places_of(2) < kLeafOnRight && kRankLeaves - 1 <= places_of(2));

struct JumpWord {
    uint8_t entry[kJumpPlaces];     // number of the entry - 1, because no node tests the leaves' entry 0
    uint8_t position[kJumpPlaces];
    // If the left child is a leaf: root's place + that leaf's label, at most the node's own place. A right child then has the next
    // place. Else: the right child's place, two or more on, or the next place if that child is a leaf. + kLeafOnRight if it is one.
    uint8_t onward[kJumpPlaces];
};

struct RankJumps {
    int32_t n_words = 0;                 // words, or pairs of words; 0: there are no jumps
    int32_t words_together = 1;
    const JumpWord* words = nullptr;
    const int32_t* trees = nullptr;      // first tree of each word or pair, and the end
    const int32_t* blocks = nullptr;     // first word or pair of each tree block, and the end
    const uint8_t* root = nullptr;       // place of each tree's root
    const uint8_t* doublings = nullptr;  // for each tree block: doublings that take a walk from any root to the deepest node
};

// A column's thresholds in blocks, the last one padded with infinity. Samples are the last threshold of each block except the
// last; they are in blocks, too. The thresholds below a value are counted among the samples first, then in one block.
constexpr int kBlockThresholds = 16;

template <class Value> struct ThresholdBlocks { const Value *threshold, *sample; };

struct RankWalkLayout {
    Columns columns;
    bool single;              // documents are cast to float32 first
    const int64_t* offsets;   // where each column's thresholds start
    const float* threshold32;  // rounded down
    const double* threshold64;
    const int64_t* block;         // first block of each column, and the end
    const int64_t* sample_block;  // first block of samples of each column, and the end
    ThresholdBlocks<float> blocks32;
    ThresholdBlocks<double> blocks64;
    int32_t n_entries;
    const RankEntry* entries;  // entry 0 is the leaves'
    int32_t n_blocks;
    const int32_t* block_offsets;
    const int32_t* tree;   // [group][kRankWalks]: number within the tree block, -1: none
    const uint32_t* root;  // [group][kRankWalks]
    const uint8_t* steps;  // [group]
    const int64_t* group_items;  // [groups + 1]: where each group's items start, in order
    const uint32_t* items;        // empty if there are jumps
    const int64_t* node_offsets;  // where each tree's tests start
    const RankTest* tests;        // in preorder
    RankJumps jumps;
};

}  // namespace gpuqs
