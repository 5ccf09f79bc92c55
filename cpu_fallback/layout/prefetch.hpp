// Asking for memory before it is read. Static: each instruction set has its own, made of its own instructions.
#pragma once
#include <cstdint>

namespace gpuqs {

// Whether `prefetch` asks this processor for lines to its L2 cache alone. Lines to the L1 cache each take one of its places for
// misses until they come: AMD's Zen 4 has 24, and read wide rows at half the speed through them. Zen 5 drops what it is asked for
// to the L2 cache if memory would have to answer.
extern const bool prefetches_to_l2;

static inline void prefetch(const void* at) {
    if (prefetches_to_l2)
        __builtin_prefetch(at, 0, 2);
    else
        __builtin_prefetch(at);
    asm volatile("");  // else compilers drop calls of a function that only prefetches
}

// The cache lines of so many bytes, from the first one's.
static inline void prefetch_bytes(const void* first, int64_t bytes) {
    for (int64_t at = 0; at < bytes; at += 64) prefetch(static_cast<const char*>(first) + at);
}

}  // namespace gpuqs
