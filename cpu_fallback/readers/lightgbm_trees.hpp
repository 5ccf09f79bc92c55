// The trees of LightGBM's model text, exactly as LightGBM writes them. Text in any other form is left to a reader that says what is
// wrong.
#pragma once
#include <cstdint>
#include <vector>

namespace gpuqs {

struct PlainTrees {
    std::vector<int64_t> starts, n_leaves, n_sets;  // of each tree: where its text starts; its leaves; its category sets
    std::vector<int32_t> feature, left, right;
    std::vector<double> threshold, leaf_value;
    std::vector<uint8_t> decision;
    std::vector<int64_t> set_size;  // of each category set: its words
    std::vector<uint32_t> words;
    std::vector<int64_t> linear;   // trees that have linear leaves
    std::vector<int64_t> n_terms;  // of each leaf of those
    std::vector<int32_t> term_feature;  // of each leaf its constant (-1), then its features
    std::vector<double> coefficient;
    int64_t next = 0;  // where the first tree that was not read starts; -1: there is none
};

// Reads trees whose text ("\nTree=..." up to the next one) starts at `at`, numbered from `tree` on, until a tree is not plain, or
// about `bytes` of text are read. Decision types may be at most `largest_decision`.
PlainTrees read_plain_trees(const char* text, int64_t at, int64_t end, int64_t tree, int64_t bytes, int largest_decision);

}  // namespace gpuqs
