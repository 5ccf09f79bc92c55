// Sums over a warp and over a block of threads, in the order of CUB's warp reductions: a fixed order,
// so the same bits every time. Also prefix sums over lanes.
//
//   foreach offset in 1, 2, 4, 8, 16: parallel_lane: value += the value of lane + offset
//   lane 0 of each warp: scratch[warp] <- value
//   barrier
//   a thread for each sum: value <- scratch[0] + scratch[1] ..., warp after warp
#pragma once
#include "common.cuh"

constexpr u32 ALL_LANES = 0xffffffffu;

// The same word in every lane, in a way that lets the compiler know: branches on its bits are uniform in the warp.
__device__ __forceinline__ u32 uniform(u32 word, u32 lane_bit) { return __ballot_sync(ALL_LANES, word & lane_bit); }

// The sum over the warp's lanes, in lane 0.
template <class Sum>
__device__ __forceinline__ Sum warp_sum(Sum value) {
#pragma unroll
    for (int offset = 1; offset < WARP; offset <<= 1) value += __shfl_down_sync(ALL_LANES, value, offset);
    return value;
}

// The sum over the lanes up to each lane's own.
__device__ __forceinline__ u32 warp_scan(u32 value) {
#pragma unroll
    for (u32 offset = 1; offset < WARP; offset <<= 1) {
        const u32 before = __shfl_up_sync(ALL_LANES, value, offset);
        if (threadIdx.x % WARP >= offset) value += before;
    }
    return value;
}

__device__ __forceinline__ u32 last_lane(u32 value) { return __shfl_sync(ALL_LANES, value, WARP - 1); }

// Sums over the block of each of COUNT values: thread k < COUNT gets the k-th; `scratch` holds COUNT sums a warp.
template <int COUNT, class Sum>
__device__ __forceinline__ Sum block_sums(const Sum (&value)[COUNT], Sum* scratch) {
    const u32 n_warps = blockDim.x / WARP;
#pragma unroll
    for (int k = 0; k < COUNT; ++k) {
        const Sum sum = warp_sum(value[k]);
        if (threadIdx.x % WARP == 0) scratch[k * n_warps + threadIdx.x / WARP] = sum;
    }
    __syncthreads();
    if (threadIdx.x >= COUNT) return 0;
    const Sum* mine = scratch + threadIdx.x * n_warps;
    Sum sum = mine[0];
#pragma unroll 1
    for (u32 warp = 1; warp < n_warps; ++warp) sum += mine[warp];
    return sum;
}
