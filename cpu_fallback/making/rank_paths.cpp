#include "making/rank_paths.hpp"

#include <algorithm>
#include <cstring>

namespace gpuqs {

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
    const int64_t root = tree.n ? tree.item(0) : tree.leaf(0);
    at_.resize(tree.n_items());
    for (int64_t l = 0; l <= tree.n; l++) at_[tree.leaf(l)].end = pairs.label(tree.leaf(l));
    at_[root].place = used_, at_[root].changes = 0;
    int32_t most = 0;
    for (int64_t k = 0; k < tree.n; k++) {
        const int64_t i = pairs.node(k), item = tree.item(i);
        const int64_t left = tree.item(tree.left[i]), right = tree.item(tree.right[i]);
        const bool turned = pairs.leaves(right) > pairs.leaves(left);
        const int64_t on = turned ? right : left, off = turned ? left : right;
        const int32_t place = at_[item].place, changes = at_[item].changes;
        at_[on].place = place + 1, at_[on].changes = changes;
        at_[off].place = place + pairs.leaves(on), at_[off].changes = changes + 1;
        most = std::max(most, changes + 1);
        const RankTest test = tests[pairs.before(item)];
        to_.tests[word_].entry[place] = static_cast<uint8_t>(test.entry - 1);
        to_.tests[word_].position[place] = static_cast<uint8_t>(kSigned - test.position);
        to_.turned[word_] |= static_cast<uint64_t>(turned) << place;
        to_.ends[word_] |= static_cast<uint64_t>(pairs.leaves(on) == 1) << place;
    }
    for (int64_t k = tree.n; k-- > 0;) {
        const int64_t i = pairs.node(k), item = tree.item(i);
        const int64_t left = tree.item(tree.left[i]), right = tree.item(tree.right[i]);
        const bool turned = pairs.leaves(right) > pairs.leaves(left);
        const int64_t on = turned ? right : left, off = turned ? left : right;
        at_[item].end = at_[on].end;
        to_.light[word_ * kPathPlaces + at_[item].place] = path(off, pairs.leaves(off) == 1);
    }
    to_.heavy[t] = path(root, tree.n == 0);
    uint8_t& of_block = to_.most[t / to_.tree_block];
    of_block = std::max(of_block, static_cast<uint8_t>(most));
    used_ += static_cast<int32_t>(tree.n);
}

}  // namespace gpuqs
