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
    uint8_t* most;  // zeros
    int64_t tree_block;
};

// The first of n_trees trees, from tree t on, that has no word's other trees before it.
inline int64_t first_of_word(const PathArrays& paths, int64_t n_trees, int64_t t) {
    while (t > 0 && t < n_trees && paths.word[t] == paths.word[t - 1]) t++;
    return t;
}

// Fills the arrays with one tree after another; several may have the trees of different words at once.
class PathMaker {
public:
    explicit PathMaker(const PathArrays& to) : to_(to) {}

    // Tree t: puts its nodes' tests into preorder, and tells each leaf's label.
    void add(int64_t t, const Tree& tree, const RankTest* of_nodes, RankTest* tests, int32_t* label);

private:
    void open(int64_t word);

    const PathArrays to_;
    int64_t word_ = -1;
    int32_t used_ = 0;  // places of the word
    ParentsFirst order_;
    std::vector<int32_t> under_;
    std::vector<uint32_t> where_;  // each item is
};

}  // namespace gpuqs
