// AVX2, BMI and BMI2: Haswell and later, Zen and later.
#include "generic/kernel_table.inl"

namespace gpuqs {

extern const Kernels kernels_avx2 = kernel_table<Word16, Word32>("avx2", Encoding::vex);

}  // namespace gpuqs
