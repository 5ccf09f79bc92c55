// Words of trees through which documents jump (RankJumps of layout/rankwalk.hpp).
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "layout/rankwalk.hpp"
#include "making/one_tree.hpp"

namespace gpuqs {

// What RankJumps points to; words are zeros, to be filled.
struct JumpArrays {
    int64_t n_words;  // or twos of words
    int words_together;
    JumpWord* words;
    const int32_t* trees;
    const uint8_t* root;
};

// Whether tests can name so many entries, the leaves' among them.
inline bool can_name(size_t n_entries) { return n_entries <= kJumpEntries + 1; }

// Places trees in words, or twos, as many trees of a tree block in each as it has places for: the first tree of each, and the
// end, and each tree's place. No tree has more nodes than there are places.
std::vector<int32_t> place_trees(const Trees& trees, int64_t tree_block, int words_together, uint8_t* root);

// Fills a tree's places, from its root's on, in words that go together; `tests` are its nodes', as the tree has them.
void fill_places(JumpWord* words, int32_t root, const Tree& tree, const Pairs& siblings, const RankTest* tests);

}  // namespace gpuqs
