// Asking for memory before it is read. Static: each instruction set has its own, made of its own instructions.
#pragma once
#include <cstdint>

namespace gpuqs {

static inline void prefetch(const void* at) {
    __builtin_prefetch(at);
    asm volatile("");  // else compilers drop calls of a function that only prefetches
}

// The cache lines of so many bytes, from the first one's.
static inline void prefetch_bytes(const void* first, int64_t bytes) {
    for (int64_t at = 0; at < bytes; at += 64) prefetch(static_cast<const char*>(first) + at);
}

}  // namespace gpuqs
