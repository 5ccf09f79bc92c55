// avx512 on processors that also have VBMI, which looks up bytes in whole registers: Ice Lake and later, Zen 4 and later.
#include "generic/kernel_table.inl"

namespace gpuqs {

extern const Kernels kernels_avx512vbmi = kernel_table<Word16, Word32, Word64>("avx512", Encoding::evex);

}  // namespace gpuqs
