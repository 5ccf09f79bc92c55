// Items of leaves, put into the order in which engines number leaves.
#pragma once
#include <cstdint>

namespace gpuqs {

// Puts each leaf's item, of `bytes` bytes, at the leaf's position in its tree.
void put_in_order(int64_t n_trees, const int64_t* leaf_offsets, const int32_t* position, const void* items, int64_t bytes,
                  void* ordered, int n_threads);

// Puts leaf l's item in tree t at start[t] + the Gray code of l, or at start[t] + l if the tree is oblivious.
void put_in_gray_code(int64_t n_trees, const int64_t* leaf_offsets, const uint8_t* oblivious, const int64_t* start, const void* items,
                      int64_t bytes, void* ordered, int n_threads);

}  // namespace gpuqs
