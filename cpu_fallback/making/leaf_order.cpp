#include "making/leaf_order.hpp"

#include <cstring>

#include "making/parts.hpp"

namespace gpuqs {
namespace {

// Moves the item of each leaf of each tree to place(tree)(leaf).
template <class Place>
void move_leaves(int64_t n_trees, const int64_t* leaf_offsets, const void* items, int64_t bytes, void* ordered, int n_threads,
                 Place place) {
    const auto each_leaf = [&](auto move) {
        each_part(n_trees, n_threads, [&](int64_t, int64_t first, int64_t last) {
            for (int64_t t = first; t < last; t++) {
                const auto of_tree = place(t);
                for (int64_t l = leaf_offsets[t]; l < leaf_offsets[t + 1]; l++) move(of_tree(l - leaf_offsets[t]), l);
            }
        });
    };
    const auto by = [&](auto kind) {
        using Kind = decltype(kind);
        each_leaf([=](int64_t to, int64_t from) { static_cast<Kind*>(ordered)[to] = static_cast<const Kind*>(items)[from]; });
    };
    if (bytes == 8) return by(uint64_t{});
    if (bytes == 4) return by(uint32_t{});
    each_leaf([=](int64_t to, int64_t from) {
        std::memcpy(static_cast<char*>(ordered) + to * bytes, static_cast<const char*>(items) + from * bytes, bytes);
    });
}

}  // namespace

void put_in_order(int64_t n_trees, const int64_t* leaf_offsets, const int32_t* position, const void* items, int64_t bytes,
                  void* ordered, int n_threads) {
    move_leaves(n_trees, leaf_offsets, items, bytes, ordered, n_threads, [=](int64_t t) {
        return [of_tree = position + leaf_offsets[t], start = leaf_offsets[t]](int64_t leaf) { return start + of_tree[leaf]; };
    });
}

void put_in_gray_code(int64_t n_trees, const int64_t* leaf_offsets, const uint8_t* oblivious, const int64_t* start, const void* items,
                      int64_t bytes, void* ordered, int n_threads) {
    move_leaves(n_trees, leaf_offsets, items, bytes, ordered, n_threads, [=](int64_t t) {
        return [start = start[t], in_gray = !oblivious[t]](int64_t leaf) { return start + (leaf ^ (in_gray ? leaf >> 1 : 0)); };
    });
}

}  // namespace gpuqs
