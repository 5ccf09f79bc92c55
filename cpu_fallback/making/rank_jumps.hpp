// Words of trees through which documents jump (RankJumps of layout/rankwalk.hpp).
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "layout/rankwalk.hpp"
#include "making/one_tree.hpp"

namespace gpuqs {

// The arrays that RankJumps points to; words start as zeros and are filled.
struct JumpArrays {
    int64_t n_words;  // or pairs of words
    int words_together;
    JumpWord* words;
    const int32_t* trees;
    const uint8_t* root;
};

// Whether tests can name n_entries entries, including the leaves'.
inline bool can_name(size_t n_entries) { return n_entries <= kJumpEntries + 1; }

// Places trees in words, or pairs of words: each gets as many trees of a tree block as it has places for. Returns the first tree of
// each word or pair, and the end; root gets each tree's place. No tree may have more nodes than there are places.
std::vector<int32_t> place_trees(const Trees& trees, int64_t tree_block, int words_together, uint8_t* root);

// Fills a tree's places, from its root's on, in a word or a pair of words; `tests` are its nodes' tests, in the tree's order.
void fill_places(JumpWord* words, int32_t root, const Tree& tree, const Pairs& siblings, const RankTest* tests);

}  // namespace gpuqs
