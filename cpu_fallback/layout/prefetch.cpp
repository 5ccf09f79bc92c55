#include "layout/prefetch.hpp"

#ifdef GPUQS_X86
#include <cpuid.h>
#endif

namespace gpuqs {
namespace {

bool is_zen4() {
#ifdef GPUQS_X86
    unsigned signature, b, c, d;
    if (!__builtin_cpu_is("amd") || !__get_cpuid(1, &signature, &b, &c, &d)) return false;
    // Zen 3, of the same family, has no AVX-512.
    return (signature >> 8 & 0xf) + (signature >> 20 & 0xff) == 0x19 && __builtin_cpu_supports("avx512f");
#else
    return false;
#endif
}

}  // namespace

const bool prefetches_to_l2 = is_zen4();

}  // namespace gpuqs
