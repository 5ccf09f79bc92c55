// How machine code that lies beyond the L2 cache gets there before it runs: processors read ahead of it less than they need.
#pragma once
#include "layout/prefetch.hpp"

namespace gpuqs {

enum class CodeAhead {
    asked,  // it prefetches itself
    read,   // each tree block's is read as data before a thread's first documents pass it
};

// What suits this processor, for words of so many bytes. Of AMD's, Zen 5 drops prefetches to the L2 cache that memory would have
// to answer. Zen 4 answers them, which is the quicker way for words of few documents; code that runs for one document block after
// another it runs more quickly without them.
inline CodeAhead code_ahead_here([[maybe_unused]] int word_bytes) {
#ifdef GPUQS_X86
    if (__builtin_cpu_is("amd") && (word_bytes == 64 || !prefetches_to_l2)) return CodeAhead::read;
#endif
    return CodeAhead::asked;
}

}  // namespace gpuqs
