// walk over nodes and leaves: from the root to a leaf, some walks side by side so that their waits overlap.
//
//   at[walk] = root
//   repeat: several times for each walk:
//               at += distance to the left child of at, + 1 if x[column of at] > key of at    (at a leaf: + 0)
//           for each walk at a leaf: leaf[tree][document] = position of at; the next walk takes its place
//
// All documents go through one tree of a block, then through the next. Walks may begin below the trees' tops (WalkStarts).
#pragma once
#include <algorithm>
#include <cstdint>

#include "generic/walked_items.inl"
#include "layout/walk.hpp"
#include "registers.inl"

namespace gpuqs {
namespace {

constexpr int kWalks = 12;  // side by side, most of them in registers
constexpr int kFewestTouching = 2;  // documents: a single one visits few of a tree's cache lines
constexpr int64_t kItemsTouched = 128;  // of a tree, per document: a walk over some of their lines takes as long as reading all

// Comparing integers takes two instructions less than comparing floats: the carry is added to the distance.
template <class Value> void to_keys(int64_t n, Value* x) {
    using Key = WalkKey<Value>;
    constexpr int kSign = 8 * sizeof(Value) - 1;
    for (int64_t i = 0; i < n; i++) {
        const Value value = x[i] + Value{0};  // 0 and -0 are equal
        Key bits;
        __builtin_memcpy(&bits, &value, sizeof bits);
        const Key key = value == value ? bits ^ ((Key{0} - (bits >> kSign)) | Key{1} << kSign) : 0;
        __builtin_memcpy(x + i, &key, sizeof key);
    }
}

// A leaf's position is the end of its key.
inline int32_t position(uint32_t key) { return static_cast<int32_t>(key & (kWalkLeaves - 1)); }
inline int32_t position(uint64_t key) { return static_cast<int32_t>(key & (kWideLeaves - 1)); }

// How many steps to take before checking which walks have ended, because a walk's end is hard to predict: about half of its length.
inline int steps_in_a_row(int64_t n_items) {
    const int bits = 64 - __builtin_clzll(static_cast<uint64_t>(n_items));
    return bits > 2 ? bits / 2 : 1;
}

// kWalks walks side by side.
template <bool has_missing, class Value> class Walks {
    using Key = WalkKey<Value>;

public:
    explicit Walks(const WalkLayout& layout)
        : items_(items_of<Value>(layout)), nan_left_(Key{1} << layout.column_bits), shift_(layout.column_bits + 1) {}

    void begin(int k, int64_t root, const Key* x) { at_[k] = items_ + root, x_[k] = x; }
    int32_t leaf(int k) const { return position(at_[k]->key); }

    // Takes `steps` steps with all walks. Bit k of the result: walk k is at a leaf, where it stays.
    uint32_t go(int steps) {
        const Item<Value>* at[kWalks];  // in registers: all loops over it are unrolled
#pragma GCC unroll 16
        for (int k = 0; k < kWalks; k++) at[k] = at_[k];
#pragma GCC unroll 1
        for (; steps > 0; steps--) {
            asm volatile("" ::: "memory");  // otherwise compilers also try to keep x_ in registers
#pragma GCC unroll 16
            for (int k = 0; k < kWalks; k++) {
                at[k] = next(at[k], x_[k]);
                if (kRegisterBytes > 32) asm("" : "+r"(at[k]));  // otherwise GCC moves walks to such registers and back
            }
        }
        uint32_t ended = 0;
#pragma GCC unroll 16
        for (int k = 0; k < kWalks; k++) {
            at_[k] = at[k];
            ended |= static_cast<uint32_t>(at[k]->link >> shift_ == 0) << k;
        }
        return ended;
    }
    void to_the_end() {
        while (go(1) + 1 < uint32_t{1} << kWalks) {}
    }

private:
    const Item<Value>* next(const Item<Value>* at, const Key* x) const {
        const Key link = at->link, key = x[link & (nan_left_ - 1)];
        Key distance = link >> shift_;
        distance += key > at->key;
        if (has_missing) distance += (key == 0) & !(link & nan_left_);
        return at + distance;
    }

    const Item<Value>* const items_;
    const Key nan_left_;  // the bit above the column's bits
    const int shift_;
    const Item<Value>* at_[kWalks];
    const Key* x_[kWalks];
};

// The item at which the walk of a document over a tree of a block begins.
struct AtRoots {
    static constexpr int64_t kShorter = 1;
    const int64_t* root;

    int64_t operator()(int tree, int) const { return root[tree]; }
};
// Below the trees' tops: walks there are as long as those over trees of kShorter times fewer items.
struct BelowTops {
    static constexpr int64_t kShorter = 16;
    const int64_t* root;
    WalkStarts starts;  // `item` begins at the block's first tree
    int n_trees;

    int64_t operator()(int tree, int document) const {
        const int64_t of_word = (static_cast<int64_t>(document >> starts.word_bits) * n_trees + tree) << starts.word_bits;
        const int place = starts.place[document & ((1 << starts.word_bits) - 1)];
        return root[tree] + starts.item[static_cast<int64_t>(tree) * kTopExits + starts.number[of_word + place]];
    }
};

// x is [documents][columns].
template <bool has_missing, class Value, class Start>
void walk_block(const WalkLayout& layout, int block, const WalkKey<Value>* x, int n, int stride, int32_t* leaf, const Start& start) {
    Walks<has_missing, Value> walks(layout);
    const int first = layout.block_offsets[block], n_trees = layout.block_offsets[block + 1] - first;
    const int64_t* const root = layout.tree_offsets + first;
    const int steps = steps_in_a_row(std::max<int64_t>((root[n_trees] - root[0]) / n_trees / Start::kShorter, 1));
    int64_t out[kWalks], left = static_cast<int64_t>(n_trees) * n;  // walks that have not begun yet
    int tree = 0, document = 0;
    const auto begin = [&](int k) {
        if (document == n) document = 0, tree++;
        if (document == 0 && n >= kFewestTouching) touch_tree<Value>(layout, first + tree, n, kItemsTouched);
        walks.begin(k, start(tree, document), x + static_cast<int64_t>(document) * layout.columns.n);
        out[k] = static_cast<int64_t>(tree) * stride + document;
        left--, document++;
    };
    for (int k = 0; k < kWalks; k++) {
        if (left == 0) document--, left++;  // fewer walks than kWalks: the last one is repeated
        begin(k);
    }
    while (left > 0)
        for (uint32_t ended = walks.go(steps); ended && left > 0; ended &= ended - 1) {
            const int k = __builtin_ctz(ended);
            leaf[out[k]] = walks.leaf(k);
            begin(k);
        }
    walks.to_the_end();
    for (int k = 0; k < kWalks; k++) leaf[out[k]] = walks.leaf(k);
}

template <class Value, class Start>
void walk_from(const Start& start, const WalkLayout& layout, int block, const WalkKey<Value>* x, bool has_missing, int n, int stride,
               int32_t* leaf) {
    (has_missing ? walk_block<true, Value, Start> : walk_block<false, Value, Start>)(layout, block, x, n, stride, leaf, start);
}

// starts: null if walks begin at the roots
template <class Value>
void walk(const WalkLayout& layout, int block, const WalkKey<Value>* x, bool has_missing, int n, int stride, int32_t* leaf,
          const WalkStarts* starts) {
    const int first = layout.block_offsets[block], n_trees = layout.block_offsets[block + 1] - first;
    const int64_t* const root = layout.tree_offsets + first;
    if (!starts) return walk_from<Value>(AtRoots{root}, layout, block, x, has_missing, n, stride, leaf);
    BelowTops below = {root, *starts, n_trees};
    below.starts.item += static_cast<int64_t>(first) * kTopExits;
    walk_from<Value>(below, layout, block, x, has_missing, n, stride, leaf);
}

}  // namespace
}  // namespace gpuqs
