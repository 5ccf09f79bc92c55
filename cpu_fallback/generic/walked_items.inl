// What both kinds of walks share: a layout's items by type, and bringing a tree into the cache.
#pragma once
#include <cstdint>

#include "layout/walk.hpp"

namespace gpuqs {
namespace {

template <class Value> const Item<Value>* items_of(const WalkLayout& layout);
template <> const Item<float>* items_of<float>(const WalkLayout& layout) { return layout.item32; }
template <> const Item<double>* items_of<double>(const WalkLayout& layout) { return layout.item64; }

// The limit of items per document in touch_tree for forests of more than kFarBytes, which no cache keeps until the next call: there,
// each step of a walk waits for memory, which is faster to read in order.
constexpr int64_t kItemsTouchedFar = 384, kFarBytes = 32 << 20;

// Brings a tree that n documents will walk into the cache, if it has at most `most` items per document. It is read in the order of
// memory, which is many times faster than in the order of walks.
template <class Value> void touch_tree(const WalkLayout& layout, int tree, int n, int64_t most) {
    const Item<Value>* items = items_of<Value>(layout);
    const int64_t n_items = layout.tree_offsets[layout.block_offsets[layout.n_blocks]];
    const int64_t touched = n_items * static_cast<int64_t>(sizeof *items) > kFarBytes ? kItemsTouchedFar : most;
    const Item<Value>*item = items + layout.tree_offsets[tree], *end = items + layout.tree_offsets[tree + 1];
    if (end - item > touched * n) return;
    WalkKey<Value> seen = 0;
    for (; item < end; item += 64 / sizeof *item) seen |= item->link;
    asm volatile("" ::"r"(seen));
}

}  // namespace
}  // namespace gpuqs
