// How machine code gets into the L2 cache before it runs: processors do not fetch code far enough ahead by themselves.
#pragma once

namespace gpuqs {

enum class CodeAhead {
    prefetched,  // it prefetches itself
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

}  // namespace gpuqs
