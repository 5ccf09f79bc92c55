// Heavy paths of trees (RankPaths of layout/rankwalk.hpp).
#pragma once
#include <cstdint>
#include <vector>

#include "layout/rankwalk.hpp"
#include "making/one_tree.hpp"

namespace gpuqs {

// The word of each tree of at most kPathPlaces - 1 nodes, as many trees to a word as it has places for; returns how many words.
int64_t path_words(const Trees& trees, int32_t* word);

// What RankPaths points to, but to be filled.
struct PathArrays {
    const int32_t* word;
    PathTests* tests;
    uint64_t* turned;
    uint64_t* ends;
    uint16_t* light;
    uint16_t* heavy;
    uint8_t* most;
    int64_t tree_block;
};

// Fills the arrays with one tree after another.
class PathMaker {
public:
    explicit PathMaker(const PathArrays& to) : to_(to) {}

    // Tree t, whose tests are in preorder.
    void add(int64_t t, const Tree& tree, const Pairs& pairs, const RankTest* tests);

private:
    void open(int64_t word);

    // A node's place, and how often walks have changed paths by then.
    struct Where { int32_t place, changes; };

    const PathArrays to_;
    int64_t word_ = -1;
    int32_t used_ = 0;  // places of the word
    std::vector<Where> where_;  // of each item
};

}  // namespace gpuqs
