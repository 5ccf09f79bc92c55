// Plain C++ for any processor.
#include "generic/kernel_table.inl"

namespace gpuqs {

extern const Kernels kernels_portable = kernel_table<Word16>("portable", Encoding::none);

}  // namespace gpuqs
