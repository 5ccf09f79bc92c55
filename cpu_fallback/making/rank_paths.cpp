#include "making/rank_paths.hpp"

#include <algorithm>
#include <cstring>

namespace gpuqs {
namespace {

// `yes` if chosen is 1, `no` if it is 0: without a branch, for nobody could predict it.
template <class Value> Value either(uint64_t chosen, Value yes, Value no) { return no ^ ((no ^ yes) & -static_cast<Value>(chosen)); }

// Other threads may have trees of the same block.
void raise_to(uint8_t* at, uint8_t value) {
    uint8_t found = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (found < value && !__atomic_compare_exchange_n(at, &found, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
}

uint16_t path(int32_t place, int32_t label) { return static_cast<uint16_t>(place | label << kLabelShift); }

// Where an item is, in the bytes of a word, for what is written in parts is read late as a whole: nodes before it in preorder,
// the label of its leftmost leaf, its place, and how often walks have changed paths by then. All are below kPathPlaces.
constexpr uint32_t where_is(int64_t before, int64_t first, int64_t place, int64_t changes) {
    return static_cast<uint32_t>(before | first << 8 | place << 16 | changes << 24);
}
constexpr uint8_t before(uint32_t where) { return static_cast<uint8_t>(where); }
constexpr uint8_t first_label(uint32_t where) { return static_cast<uint8_t>(where >> 8); }
constexpr uint8_t place_of(uint32_t where) { return static_cast<uint8_t>(where >> 16); }
constexpr uint8_t changes_of(uint32_t where) { return static_cast<uint8_t>(where >> 24); }

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

void PathMaker::add(int64_t t, const Tree& tree, const RankTest* of_nodes, RankTest* tests, int32_t* label) {
    if (to_.word[t] != word_) open(to_.word[t]);
    order_.find(tree);
    count_leaves(tree, order_, under_);
    where_.resize(tree.n_items());
    const int32_t* const under = under_.data();
    uint32_t* const where = where_.data();
    where[tree.n ? tree.item(0) : tree.leaf(0)] = where_is(0, 0, used_, 0);
    uint8_t* const entry = to_.tests[word_].entry;
    uint8_t* const position = to_.tests[word_].position;
    uint64_t turned = 0, ends = 0;
    uint32_t furthest = 0;
    uint8_t end[kPathPlaces] = {};
    int32_t others[kPathPlaces];
    for (int64_t k = 0; k < tree.n; k++) {
        const int32_t i = order_[k];
        const int64_t left = tree.item(tree.left[i]), right = tree.item(tree.right[i]);
        const int32_t on_left = under[left], on_right = under[right], on_path = std::max(on_left, on_right);
        const int32_t turns = on_right > on_left;
        const uint32_t here = where[tree.item(i)], next = where_is(0, 0, place_of(here) + 1, changes_of(here)),
                       other = where_is(0, 0, place_of(here) + on_path, changes_of(here) + 1);
        const uint8_t at = before(here), first = first_label(here), place = place_of(here);
        // The left subtree has a node less than leaves.
        where[left] = where_is(at + 1, first, 0, 0) | either(turns, other, next);
        where[right] = where_is(at + on_left, at + 1, 0, 0) | either(turns, next, other);
        furthest = std::max(furthest, other >> 24);
        others[place] = either(turns, static_cast<int32_t>(left), static_cast<int32_t>(right));
        end[place] = static_cast<uint8_t>(either(turns, at + 1, +first));  // if the path goes on to a leaf
        turned |= static_cast<uint64_t>(turns) << place;
        ends |= static_cast<uint64_t>(on_path == 1) << place;
        const RankTest test = of_nodes[i];
        tests[at] = {test.entry, test.position, first};
        entry[place] = static_cast<uint8_t>(test.entry - 1);
        position[place] = static_cast<uint8_t>(kSigned - test.position);
    }
    for (int64_t l = 0; l <= tree.n; l++) label[l] = first_label(where[tree.leaf(l)]);
    // From the last place on: where paths lead has been seen.
    uint16_t* const light = to_.light + word_ * kPathPlaces;
    for (int32_t place = used_ + static_cast<int32_t>(tree.n); place-- > used_;) {
        const uint8_t further = end[(place + 1) % kPathPlaces];
        end[place] = static_cast<uint8_t>(either(ends >> place & 1, +end[place], +further));
        const uint32_t other = where[others[place]];
        const int32_t is_leaf = tree.is_leaf(others[place]), of_path = end[place_of(other) % kPathPlaces];
        light[place] = path(either(is_leaf, kPathPlaces - 1, +place_of(other)), either(is_leaf, +first_label(other), of_path));
    }
    to_.heavy[t] = tree.n ? path(used_, end[used_]) : path(kPathPlaces - 1, 0);
    to_.turned[word_] |= turned;
    to_.ends[word_] |= ends;
    raise_to(to_.most + t / to_.tree_block, static_cast<uint8_t>(furthest));
    used_ += static_cast<int32_t>(tree.n);
}

}  // namespace gpuqs
