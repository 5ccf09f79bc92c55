// walk: from the root to a leaf, sixteen walks side by side so that their waits overlap.
//
//   at[walk] = root
//   repeat: for each walk:
//       at a leaf (distance 0): leaf[tree] = position of at; the next document walks in its place
//       else: at += distance to the left child of at, + 1 if x[column of at] > threshold of at
//
// Many documents: sixteen documents through one tree. Few: one document through sixteen trees.
#pragma once
#include <cstdint>

#include "layout/walk.hpp"

namespace gpuqs {
namespace {

constexpr int kWalks = 16;

template <class Value> const Item<Value>* items_of(const WalkLayout& layout);
template <> const Item<float>* items_of<float>(const WalkLayout& layout) { return layout.item32; }
template <> const Item<double>* items_of<double>(const WalkLayout& layout) { return layout.item64; }

// The position of a leaf stands in the payload of its threshold, a NaN: no value exceeds it.
inline int32_t position(float threshold) {
    uint32_t bits;
    __builtin_memcpy(&bits, &threshold, sizeof bits);
    return static_cast<int32_t>(bits & (kWalkLeaves - 1));
}
inline int32_t position(double threshold) {
    uint64_t bits;
    __builtin_memcpy(&bits, &threshold, sizeof bits);
    return static_cast<int32_t>(bits & (kWalkLeaves - 1));
}

// Walk k is a document x[k], at items[at[k]].
template <bool has_missing, class Value> struct Walks {
    explicit Walks(const WalkLayout& of) : layout(of) {}

    const WalkLayout& layout;
    const Item<Value>* items = items_of<Value>(layout);
    const uint32_t column_mask = (1u << layout.column_bits) - 1, nan_left = 1u << layout.column_bits;
    const int shift = layout.column_bits + 1;
    int64_t at[kWalks];
    const Value* x[kWalks];

    // One step; false: the walk is at a leaf and stays there.
    bool step(int k) {
        const Item<Value> item = items[at[k]];
        const Value value = x[k][item.link & column_mask];
        uint32_t right = value > item.threshold;
        if (has_missing) right |= (value != value) & !(item.link & nan_left);
        const uint32_t distance = item.link >> shift;
        at[k] += distance + right;
        return distance;
    }

    int32_t leaf(int k) const { return position(items[at[k]].threshold); }

    void to_the_end() {
        bool moved;
        do {
            moved = false;
#pragma GCC unroll 16
            for (int k = 0; k < kWalks; k++) moved |= step(k);
        } while (moved);
    }
};

// At least kWalks documents, rows of x, through a tree.
template <bool has_missing, class Value>
void walk_tree(const WalkLayout& layout, int64_t root, const Value* x, int n, int32_t* leaf) {
    Walks<has_missing, Value> walks(layout);
    int32_t document[kWalks];
    int next = 0;
    const auto begin = [&](int k) {
        walks.x[k] = x + static_cast<int64_t>(next) * layout.columns.n;
        walks.at[k] = root;
        document[k] = next++;
    };
    for (int k = 0; k < kWalks; k++) begin(k);
    while (next < n) {
#pragma GCC unroll 16
        for (int k = 0; k < kWalks; k++)
            if (!walks.step(k) && next < n) {
                leaf[document[k]] = walks.leaf(k);
                begin(k);
            }
    }
    walks.to_the_end();
    for (int k = 0; k < kWalks; k++) leaf[document[k]] = walks.leaf(k);
}

// Brings a tree into the cache in the order of memory, many times faster than in the order of walks.
constexpr int64_t kItemsTouched = 64;  // most items of a tree for each document: a walk reads about as many
template <class Value> void touch(const Item<Value>* first, const Item<Value>* end) {
    uint32_t seen = 0;
    for (const Item<Value>* item = first; item < end; item += 64 / sizeof(Item<Value>)) seen |= item->link;
    asm volatile("" ::"r"(seen));
}

template <bool has_missing, class Value>
void walk_documents(const WalkLayout& layout, int block, const Value* x, int n, int stride, int32_t* leaf) {
    const Item<Value>* items = items_of<Value>(layout);
    for (int t = layout.block_offsets[block]; t < layout.block_offsets[block + 1]; t++, leaf += stride) {
        const int64_t first = layout.tree_offsets[t], end = layout.tree_offsets[t + 1];
        if (end - first <= kItemsTouched * n) touch(items + first, items + end);
        walk_tree<has_missing>(layout, first, x, n, leaf);
    }
}

template <bool has_missing, class Value>
void walk_trees(const WalkLayout& layout, int block, const Value* x, int n, int stride, int32_t* leaf) {
    Walks<has_missing, Value> walks(layout);
    const int first = layout.block_offsets[block], end = layout.block_offsets[block + 1];
    for (int t = first; t < end; t += kWalks)
        for (int d = 0; d < n; d++) {
            for (int k = 0; k < kWalks; k++) {
                walks.at[k] = layout.tree_offsets[t + k < end ? t + k : t];
                walks.x[k] = x + static_cast<int64_t>(d) * layout.columns.n;
            }
            walks.to_the_end();
            for (int k = 0; k < kWalks && t + k < end; k++) leaf[static_cast<int64_t>(t + k - first) * stride + d] = walks.leaf(k);
        }
}

// x is [documents][columns].
template <class Value>
void walk(const WalkLayout& layout, int block, const Value* x, bool has_missing, int n, int stride, int32_t* leaf) {
    if (n < kWalks)
        (has_missing ? walk_trees<true, Value> : walk_trees<false, Value>)(layout, block, x, n, stride, leaf);
    else
        (has_missing ? walk_documents<true, Value> : walk_documents<false, Value>)(layout, block, x, n, stride, leaf);
}

}  // namespace
}  // namespace gpuqs
