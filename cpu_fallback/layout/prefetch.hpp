// Prefetching. The functions are static so that each instruction set compiles its own copy, from its own instructions.
#pragma once
#include <cstdint>

namespace gpuqs {

// Whether `prefetch` brings lines only to the L2 cache on this processor. A prefetch to L1 occupies one of L1's miss buffers until
// the line arrives: AMD's Zen 4 has 24 of them, and with such prefetches it read wide rows at half the speed. Zen 5 is excluded: it
// drops prefetches to L2 that would have to go to memory.
extern const bool prefetches_to_l2;

static inline void prefetch(const void* at) {
    if (prefetches_to_l2)
        __builtin_prefetch(at, 0, 2);
    else
        __builtin_prefetch(at);
    asm volatile("");  // otherwise compilers drop calls to a function that only prefetches
}

// Prefetches the cache lines of `bytes` bytes, one every 64 bytes from `first` on.
static inline void prefetch_bytes(const void* first, int64_t bytes) {
    for (int64_t at = 0; at < bytes; at += 64) prefetch(static_cast<const char*>(first) + at);
}

}  // namespace gpuqs
