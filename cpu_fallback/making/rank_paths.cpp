#include "making/rank_paths.hpp"

#include <algorithm>
#include <cstring>

namespace gpuqs {
namespace {

uint16_t path(int32_t place, int32_t label) { return static_cast<uint16_t>(place | label << kLabelShift); }

}  // namespace

int64_t path_words(const Trees& trees, int32_t* word) {
    int64_t last = 0, used = 0;
    for (int64_t t = 0; t < trees.n_trees; t++) {
        const int64_t n = trees.node_offsets[t + 1] - trees.node_offsets[t];
        if (used + n >= kPathPlaces) last++, used = 0;
        used += n;
        word[t] = static_cast<int32_t>(last);
    }
    return trees.n_trees ? last + 1 : 0;
}

void PathMaker::open(int64_t word) {
    word_ = word, used_ = 0;
    std::memset(to_.tests[word].entry, 0, kPathPlaces);
    std::memset(to_.tests[word].position, 255, kPathPlaces);  // which no byte exceeds
    to_.turned[word] = 0;
    to_.ends[word] = uint64_t{1} << (kPathPlaces - 1);
}

void PathMaker::add(int64_t t, const Tree& tree, const Pairs& pairs, const RankTest* tests) {
    if (to_.word[t] != word_) open(to_.word[t]);
    where_.resize(tree.n_items());
    Where* const where = where_.data();
    if (tree.n) where[tree.item(0)] = {used_, 0};
    PathTests& asked = to_.tests[word_];
    uint64_t turned = 0, ends = 0;
    int32_t most = 0, end[kPathPlaces];
    int64_t others[kPathPlaces];
    for (int64_t k = 0; k < tree.n; k++) {
        const int64_t i = pairs.node(k), item = tree.item(i);
        const int64_t left = tree.item(tree.left[i]), right = tree.item(tree.right[i]);
        const bool turns = pairs.leaves(right) > pairs.leaves(left);
        const int64_t next = turns ? right : left, other = turns ? left : right;
        const auto [place, changes] = where[item];
        where[next] = {place + 1, changes};
        where[other] = {place + pairs.leaves(next), changes + 1};
        most = std::max(most, changes + 1);
        others[place] = other;
        end[place] = pairs.label(next);  // if it is a leaf
        turned |= static_cast<uint64_t>(turns) << place;
        ends |= static_cast<uint64_t>(tree.is_leaf(next)) << place;
        const RankTest test = tests[pairs.before(item)];
        asked.entry[place] = static_cast<uint8_t>(test.entry - 1);
        asked.position[place] = static_cast<uint8_t>(kSigned - test.position);
    }
    // From the last place on: where paths lead has been seen.
    uint16_t* const light = to_.light + word_ * kPathPlaces;
    for (int32_t place = used_ + static_cast<int32_t>(tree.n); place-- > used_;) {
        if (!(ends >> place & 1)) end[place] = end[place + 1];
        const int64_t other = others[place];
        const int32_t first = where[other].place;
        light[place] = tree.is_leaf(other) ? path(kPathPlaces - 1, pairs.label(other)) : path(first, end[first % kPathPlaces]);
    }
    to_.heavy[t] = tree.n ? path(used_, end[used_]) : path(kPathPlaces - 1, 0);
    to_.turned[word_] |= turned;
    to_.ends[word_] |= ends;
    uint8_t& of_block = to_.most[t / to_.tree_block];
    of_block = std::max(of_block, static_cast<uint8_t>(most));
    used_ += static_cast<int32_t>(tree.n);
}

}  // namespace gpuqs
