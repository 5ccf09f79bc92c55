// Words of document bits: a warp's tile is 1,024 * W documents, W words of 32 in each lane.
#pragma once
#include "common.cuh"

template <int W>
struct __align__(4 * W) Words {
    u32 of[W];
};

template <int W>
__device__ __forceinline__ Words<W> all(u32 word) {
    Words<W> words;
#pragma unroll
    for (int w = 0; w < W; ++w) words.of[w] = word;
    return words;
}

// The lane's words of row `row` of tile `tile`, of arrays [tile][row][32 * W]; neighbouring rows lie WARP apart.
template <int W>
__device__ __forceinline__ const Words<W>* row_of(const u32* words, i64 tile, int n_rows, int row) {
    return reinterpret_cast<const Words<W>*>(words) + (tile * n_rows + row) * WARP + threadIdx.x % WARP;
}
template <int W>
__device__ __forceinline__ Words<W>* row_of(u32* words, i64 tile, int n_rows, int row) {
    return const_cast<Words<W>*>(row_of<W>(const_cast<const u32*>(words), tile, n_rows, row));
}
