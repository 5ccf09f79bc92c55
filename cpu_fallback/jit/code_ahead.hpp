// How machine code gets into the L2 cache before it runs: processors do not fetch code far enough ahead by themselves.
#pragma once

namespace gpuqs {

enum class CodeAhead {
    prefetched,  // it says what comes next when it calls `Spread`
    read,        // each tree block's code is read as data before a thread's first documents pass it
};

// What suits this processor. Code is read on all of AMD's, for what two of them do: Zen 5 drops prefetches to the L2 cache that
// would have to go to memory, and on Zen 4 they are slower than sequential reads. Older and later ones are taken to be alike.
inline CodeAhead code_ahead_here() {
#ifdef GPUQS_X86
    if (__builtin_cpu_is("amd")) return CodeAhead::read;
#endif
    return CodeAhead::prefetched;
}

// Calls prefetch this many cache lines, about a tree of 64 leaves, or a multiple: processors mispredict numbers that differ from each
// call to the next, mostly when other code ran in between.
constexpr int kLinesTogether = 16;

// Prefetches a multiple of kLinesTogether lines into the L2 cache.
static inline void prefetch_code(const void* code, int lines) {
    constexpr int line = 64;
    for (const char* at = static_cast<const char*>(code); lines > 0; lines -= kLinesTogether, at += kLinesTogether * line) {
#pragma GCC unroll 16
        for (int i = 0; i < kLinesTogether; i++) __builtin_prefetch(at + i * line, 0, 2);
    }
    asm volatile("");  // see prefetch.hpp
}

}  // namespace gpuqs
