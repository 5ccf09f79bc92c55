// What every kernel shares. Sources compile without CUDA toolkit headers.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

enum { WARP = 32 };

// All shared memory is dynamic, and named through this macro so that an emulation can supply it.
#ifndef DYNAMIC_SHARED
#define DYNAMIC_SHARED(name) extern __shared__ __align__(256) unsigned char name[]
#endif

// The pivot that means "this value is missing".
template <class Pivot>
__device__ constexpr Pivot missing_pivot() {
    return static_cast<Pivot>(~static_cast<Pivot>(0));
}
