// Which instruction sets this processor has, best first.
#include <cstring>

#include "kernels.hpp"

namespace gpuqs {
namespace {

bool always() { return true; }

#ifdef GPUQS_X86
bool has_sse42() { return __builtin_cpu_supports("sse4.2"); }
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2"); }
bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd");
}
#endif

struct Entry {
    const Kernels* kernels;
    bool (*runs)();
};

const Entry entries[] = {
#ifdef GPUQS_X86
    {&kernels_avx512, has_avx512},
    {&kernels_avx2, has_avx2},
    {&kernels_sse42, has_sse42},
#endif
    {&kernels_portable, always},
};

}  // namespace

const Kernels& best_kernels() {
    for (const Entry& entry : entries)
        if (entry.runs()) return *entry.kernels;
    return kernels_portable;
}

const Kernels* find_kernels(const char* isa) {
    for (const Entry& entry : entries)
        if (std::strcmp(entry.kernels->isa, isa) == 0 && entry.runs()) return entry.kernels;
    return nullptr;
}

}  // namespace gpuqs
