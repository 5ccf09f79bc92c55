// Sums over a warp and over a block of threads, in the order of CUB's warp reductions: a fixed order,
// so the same bits every time.
//
//   foreach offset in 1, 2, 4, 8, 16: parallel_lane: value += the value of lane + offset
//   lane 0 of each warp: scratch[warp] <- value
//   barrier
//   thread 0: value += scratch[warp], warp after warp
#pragma once
#include "common.cuh"

constexpr u32 ALL_LANES = 0xffffffffu;

// The sum over the warp's lanes, in lane 0.
template <class Sum>
__device__ __forceinline__ Sum warp_sum(Sum value) {
#pragma unroll
    for (int offset = 1; offset < WARP; offset <<= 1) value += __shfl_down_sync(ALL_LANES, value, offset);
    return value;
}

// Sums over the block of each of COUNT values, in thread 0; `scratch` holds COUNT words a warp.
template <int COUNT, class Sum>
__device__ __forceinline__ void block_sums(Sum (&value)[COUNT], Sum* scratch) {
    const int n_warps = blockDim.x / WARP;
#pragma unroll
    for (int k = 0; k < COUNT; ++k) {
        value[k] = warp_sum(value[k]);
        if (threadIdx.x % WARP == 0) scratch[k * n_warps + threadIdx.x / WARP] = value[k];
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
#pragma unroll
    for (int k = 0; k < COUNT; ++k)
#pragma unroll 1
        for (int warp = 1; warp < n_warps; ++warp) value[k] += scratch[k * n_warps + warp];
}
