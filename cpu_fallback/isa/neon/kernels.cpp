// NEON: every AArch64 processor.
#include "generic/kernel_table.inl"

namespace gpuqs {

extern const Kernels kernels_neon = kernel_table<Word16>("neon", Encoding::none);

}  // namespace gpuqs
