// SSE4.2: Nehalem and later.
#include "generic/kernel_table.inl"

namespace gpuqs {

extern const Kernels kernels_sse42 = kernel_table<Word16>("sse4.2", Encoding::none);

}  // namespace gpuqs
