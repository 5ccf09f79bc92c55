// AVX-512 F, BW, DQ, VL, CD: Skylake-X and later, Zen 4 and later.
#include "generic/kernel_table.inl"

namespace gpuqs {

extern const Kernels kernels_avx512 = kernel_table<Word16, Word32, Word64>("avx512", Encoding::evex);

}  // namespace gpuqs
