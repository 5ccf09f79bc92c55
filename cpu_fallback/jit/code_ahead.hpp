// How machine code that lies beyond the L2 cache gets there before it runs: processors read ahead of it less than they need.
#pragma once

namespace gpuqs {

enum class CodeAhead {
    asked,  // it prefetches itself
    read,   // each tree block's is read as data before a thread's first documents pass it
};

// What suits this processor. Of AMD's, Zen 5 drops prefetches to the L2 cache that memory would have to answer, and Zen 4 answers
// them more slowly than reads in order.
inline CodeAhead code_ahead_here() {
#ifdef GPUQS_X86
    if (__builtin_cpu_is("amd")) return CodeAhead::read;
#endif
    return CodeAhead::asked;
}

}  // namespace gpuqs
