"""Faults that are planted in copies of gpuqs, to see that the GPU tests find them."""
