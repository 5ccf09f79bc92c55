// Planes of leaf numbers -> bytes, as one transposes bits: eight words of a bit a document, eight words of four documents' bytes.
#pragma once
#include "common.cuh"

enum { BYTE = 8 };

// Bits of words i and i + S that lie S apart change places.
template <int S>
__device__ __forceinline__ void exchange(u32 (&x)[BYTE]) {
    constexpr u32 MASK = S == 4 ? 0x0f0f0f0fu : S == 2 ? 0x33333333u : 0x55555555u;
#pragma unroll
    for (int i = 0; i < BYTE; ++i) {
        if (i & S) continue;
        const u32 low = x[i], high = x[i + S];
        x[i] = (low & MASK) | (high << S & ~MASK);
        x[i + S] = (low >> S & MASK) | (high & ~MASK);
    }
}

// Byte b of word r becomes the bits of document 8 * b + r, the first word's lowest.
__device__ __forceinline__ void to_bytes(u32 (&x)[BYTE]) {
    exchange<4>(x);
    exchange<2>(x);
    exchange<1>(x);
}

// Planes first, first + 1, ... of n_planes, `stride` words apart, as bits `shift` ... 7 of bytes; to_bytes follows.
__device__ __forceinline__ void load_planes(const u32* plane, i64 stride, int first, int n_planes, int shift, u32 (&x)[BYTE]) {
#pragma unroll
    for (int k = 0; k < BYTE; ++k) x[k] = k >= shift && first + k - shift < n_planes ? plane[(first + k - shift) * stride] : 0;
}

// The trees of a launch, n of them, and which of them add to an output.
struct OutputTrees {
    int first_tree, n_trees;        // of the launch
    const int *offsets, *trees;     // of each output: the trees that add to it alone; null: all do
    __device__ int begin(int output) const { return offsets ? offsets[output] : 0; }
    __device__ int end(int output) const { return offsets ? offsets[output + 1] : n_trees; }
    __device__ int at(int i) const { return offsets ? trees[i] - first_tree : i; }
};
