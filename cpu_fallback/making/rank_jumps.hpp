// Words of trees through which documents jump (RankJumps of layout/rankwalk.hpp).
#pragma once
#include <cstdint>
#include <vector>

#include "layout/rankwalk.hpp"
#include "making/one_tree.hpp"

namespace gpuqs {

// What RankJumps points to; words are zeros, to be filled.
struct JumpArrays {
    int64_t n_words;
    JumpWord* words;
    const int32_t* trees;
    const uint8_t* root;
};

// Places trees of at most kJumpPlaces - 1 nodes, as many trees of a tree block in a word as it has places for: each word's first
// tree, and the end, and each tree's place.
std::vector<int32_t> place_trees(const Trees& trees, int64_t tree_block, uint8_t* root);

// Fills a tree's places, from its root's on; `tests` are its nodes', as the tree has them.
void fill_places(JumpWord& word, int32_t root, const Tree& tree, const Pairs& pairs, const RankTest* tests);

}  // namespace gpuqs
