#include "driver/instruction_sets.hpp"

#include <cstring>
#include <iterator>

#ifdef GPUQS_X86
#include <cpuid.h>
#endif

namespace gpuqs {

// Defined in isa/*/kernels.cpp.
extern const Kernels kernels_portable;
#ifdef GPUQS_X86
extern const Kernels kernels_sse42;
extern const Kernels kernels_avx2;
extern const Kernels kernels_avx512;
#ifdef GPUQS_VBMI
extern const Kernels kernels_avx512vbmi;
#endif
#endif
#ifdef GPUQS_AARCH64
extern const Kernels kernels_neon;
#endif

namespace {

bool always() { return true; }

#ifdef GPUQS_X86
bool has_sse42() { return __builtin_cpu_supports("sse4.2"); }
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2"); }
bool has_all_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd");
}
#ifdef GPUQS_VBMI
bool has_avx512vbmi() { return has_all_avx512() && __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2"); }
bool has_avx512() { return has_all_avx512() && !has_avx512vbmi(); }  // both sets are named avx512
#else
bool has_avx512() { return has_all_avx512(); }
#endif
#endif

// clang-format off
const InstructionSet instruction_sets[] = {
#ifdef GPUQS_X86
#ifdef GPUQS_VBMI
    {&kernels_avx512vbmi, has_avx512vbmi},
#endif
    {&kernels_avx512, has_avx512},
    {&kernels_avx2, has_avx2},
    {&kernels_sse42, has_sse42},
#endif
#ifdef GPUQS_AARCH64
    {&kernels_neon, always},
#endif
    {&kernels_portable, always},
};
// clang-format on

}  // namespace

bool InstructionSet::gathers() const {
#ifdef GPUQS_X86
    // Intel's processors without AVX512-FP16 (before Sapphire Rapids) gather slowly where Gather Data Sampling is mitigated, and
    // AMD's load the values of a gather one at a time.
    constexpr unsigned kFp16 = 1u << 23;
    unsigned a, b, c, features;
    return kernels->walks_nodes_alone() && !__builtin_cpu_is("amd") && __get_cpuid_count(7, 0, &a, &b, &c, &features) &&
           features & kFp16;
#else
    return false;
#endif
}

const InstructionSet* begin_instruction_sets() { return std::begin(instruction_sets); }
const InstructionSet* end_instruction_sets() { return std::end(instruction_sets); }

bool has_quickscorer() { return begin_instruction_sets()->kernels->of_float.qs; }

const Kernels* find_kernels(const char* isa) {
    for (const InstructionSet& set : instruction_sets)
        if (std::strcmp(set.name(), isa) == 0 && set.is_here()) return set.kernels;
    return nullptr;
}

}  // namespace gpuqs
