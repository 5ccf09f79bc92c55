"""A CPU emulation of the CUDA constructs that gpuqs's kernels use, in the call form of `cupy.RawKernel`."""
