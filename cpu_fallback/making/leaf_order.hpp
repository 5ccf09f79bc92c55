// What leaves hold, put into the order in which engines find leaves.
#pragma once
#include <cstdint>

namespace gpuqs {

// Puts each leaf's item, of so many bytes, at its position in its tree.
void put_in_order(int64_t n_trees, const int64_t* leaf_offsets, const int32_t* position, const void* items, int64_t bytes,
                  void* ordered, int n_threads);

// Puts each item where its place in its tree's Gray code is, or in its tree as it is where that is oblivious; tree t's places
// begin at start[t].
void put_in_gray_code(int64_t n_trees, const int64_t* leaf_offsets, const uint8_t* oblivious, const int64_t* start, const void* items,
                      int64_t bytes, void* ordered, int n_threads);

}  // namespace gpuqs
