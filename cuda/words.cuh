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

// The lane's words of row `row` of tile `tile`, in an array [tile][row][32 * W]; consecutive rows lie WARP elements apart.
template <int W>
__device__ __forceinline__ const Words<W>* row_of(const u32* words, i64 tile, int n_rows, int row) {
    return reinterpret_cast<const Words<W>*>(words) + (tile * n_rows + row) * WARP + threadIdx.x % WARP;
}
template <int W>
__device__ __forceinline__ Words<W>* row_of(u32* words, i64 tile, int n_rows, int row) {
    return const_cast<Words<W>*>(row_of<W>(const_cast<const u32*>(words), tile, n_rows, row));
}

// Stores for a later kernel, with a hint to evict this first, so that what is read now stays in the caches.
template <int W>
__device__ __forceinline__ void store_for_later(Words<W>* at, const Words<W>& words) {
#ifdef __CUDA_ARCH__
    if constexpr (W == 2)
        __stcs(reinterpret_cast<uint2*>(at), make_uint2(words.of[0], words.of[1]));
    else
        __stcs(reinterpret_cast<u32*>(at), words.of[0]);
#else
    *at = words;
#endif
}

// Keeps a value in a register: otherwise GPU compilers split addresses, and recompute their parts at every use.
__device__ __forceinline__ u32 kept(u32 value) {
#ifdef __CUDA_ARCH__
    asm("" : "+r"(value));
#endif
    return value;
}
template <class T>
__device__ __forceinline__ T* kept_shared(T* at) {
#ifdef __CUDA_ARCH__
    return static_cast<T*>(__cvta_shared_to_generic(kept(static_cast<u32>(__cvta_generic_to_shared(at)))));
#else
    return at;
#endif
}

// A byte address in shared memory.
#ifdef __CUDA_ARCH__
typedef u32 Place;
__device__ __forceinline__ Place place_of(const void* at) { return static_cast<Place>(__cvta_generic_to_shared(at)); }
template <class T>
__device__ __forceinline__ const T* pointer_to(Place at) {
    return static_cast<const T*>(__cvta_shared_to_generic(at));
}
#else
typedef u64 Place;
inline Place place_of(const void* at) { return reinterpret_cast<Place>(at); }
template <class T>
const T* pointer_to(Place at) {
    return reinterpret_cast<const T*>(at);
}
inline Place kept(Place at) { return at; }
#endif

template <class T>
__device__ __forceinline__ T* kept_global(T* at) {
#ifdef __CUDA_ARCH__
    u64 base = __cvta_generic_to_global(at);
    asm("" : "+l"(base));
    return static_cast<T*>(const_cast<void*>(__cvta_global_to_generic(base)));
#else
    return at;
#endif
}

// The address n * bytes further in global memory: one multiply-add, where compilers make two multiplications and a shift.
template <class T>
__device__ __forceinline__ const T* advanced(const T* at, u32 n, u32 bytes) {
#ifdef __CUDA_ARCH__
    u64 place;
    asm("mad.wide.u32 %0, %1, %2, %3;" : "=l"(place) : "r"(n), "r"(bytes), "l"(__cvta_generic_to_global(at)));
    return static_cast<const T*>(const_cast<const void*>(__cvta_global_to_generic(place)));
#else
    return reinterpret_cast<const T*>(reinterpret_cast<const unsigned char*>(at) + static_cast<u64>(n) * bytes);
#endif
}
