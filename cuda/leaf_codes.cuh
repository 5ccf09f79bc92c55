// Planes of leaf numbers -> bytes, by transposing bits: eight words with a bit per document become eight with four documents' bytes.
#pragma once
#include "words.cuh"

enum { BYTE = 8 };

// Bits of x where the mask has ones, of y elsewhere: one instruction, which the compiler does not find for constant masks.
__device__ __forceinline__ u32 choose(u32 mask, u32 x, u32 y) {
#ifdef __CUDA_ARCH__
    u32 chosen;
    asm("lop3.b32 %0, %1, %2, %3, 0xCA;" : "=r"(chosen) : "r"(mask), "r"(x), "r"(y));
    return chosen;
#else
    return (mask & x) | (~mask & y);
#endif
}

// In each field of 2 S bits, swaps the upper half of word i with the lower half of word i + S.
template <int S>
__device__ __forceinline__ void exchange(u32 (&x)[BYTE]) {
    constexpr u32 MASK = S == 4 ? 0x0f0f0f0fu : S == 2 ? 0x33333333u : 0x55555555u;
#pragma unroll
    for (int i = 0; i < BYTE; ++i) {
        if (i & S) continue;
        const u32 low = x[i], high = x[i + S];
        x[i] = choose(MASK, low, high << S);
        x[i + S] = choose(MASK, low >> S, high);
    }
}

// Byte b of word r becomes the number of document 8 * b + r; word k gives bit k of it.
__device__ __forceinline__ void to_bytes(u32 (&x)[BYTE]) {
    exchange<4>(x);
    exchange<2>(x);
    exchange<1>(x);
}

// Loads up to N of n_planes planes, in tiles of W words a lane, as bits SHIFT ... SHIFT + N - 1 of the bytes that to_bytes then makes.
template <int N, int SHIFT, int W>
__device__ __forceinline__ void load_planes(const u32* plane, int n_planes, u32 (&x)[BYTE]) {
#pragma unroll
    for (int bit = 0; bit < BYTE; ++bit) {
        const int k = bit - SHIFT;
        x[bit] = k >= 0 && k < N && k < n_planes ? plane[k * WARP * W] : 0;
    }
}

// Byte b of x.
__device__ __forceinline__ u32 byte_of(u32 x, int b) {
#ifdef __CUDA_ARCH__
    return __byte_perm(x, 0, 0x4440 | b);
#else
    return x >> b * BYTE & 0xff;
#endif
}

// The place of a table's entry whose byte offset is byte b of x: one permutation, as tables begin at multiples of 256 bytes.
__device__ __forceinline__ Place entry_place(Place table, u32 x, int b) {
#ifdef __CUDA_ARCH__
    return __byte_perm(x, table, 0x7650 | b);
#else
    return table + (x >> b * BYTE & 0xff);
#endif
}

// Trees of up to 64 leaves have 64 values each; a lane copies two of them, the first at `mine`, the second WARP values further. A value
// has `width` parts, one per output.
enum { TABLE = 64, TABLE_PLANES = 6 };
template <class Leaf>
__device__ __forceinline__ void copy_values(const Leaf* mine, int width, Leaf* table) {
    const int lane = threadIdx.x % WARP;
    table[lane] = *mine;
    table[lane + WARP] = mine[WARP * width];
}

// The trees of a launch, and which of them add to each output.
struct OutputTrees {
    int first_tree, n_trees;        // of the launch
    const int *offsets, *trees;     // for each output, the trees that add to it; null: all do
    __device__ int begin(int output) const { return offsets ? offsets[output] : 0; }
    __device__ int end(int output) const { return offsets ? offsets[output + 1] : n_trees; }
    __device__ int at(int i) const { return offsets ? trees[i] - first_tree : i; }
};
