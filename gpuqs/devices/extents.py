"""Where the bytes of a device array lie: GPU array libraries do not say whether kernels may read them."""

from __future__ import annotations

from typing import Any

import numpy as np


def reach(array: Any) -> tuple[int, int]:
    """Begin and end of an array's bytes, relative to its first element."""
    steps = [(n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True)]
    return sum(s for s in steps if s < 0), sum(s for s in steps if s > 0) + array.dtype.itemsize


def is_aligned(array: Any, address: int) -> bool:
    """Whether all elements lie at multiples of their size; else kernels that read them fail, and all later work."""
    size = array.dtype.itemsize  # a power of two
    bits = address
    for step in array.strides:
        bits |= step
    if not bits & (size - 1):  # nearly always; a fast path, as even calls of one document ask
        return True
    steps = (stride for n, stride in zip(array.shape, array.strides, strict=True) if n > 1)
    return 0 in array.shape or (address % size == 0 and not any(step % size for step in steps))


def shares_memory(X: Any, address: int, out: Any, address_of_out: int) -> bool:
    """Whether documents [D, n_features] share bytes with the contiguous ``out``, which may lie in gaps between them."""
    size = X.dtype.itemsize
    low, high = reach(X)
    # An element shares bytes with `out` if it begins in [first, end).
    first, end = address_of_out - size + 1, address_of_out + out.nbytes
    if 0 in X.shape or 0 in out.shape or not (address + low < end and first <= address + high - size):
        return False
    (n, n_features), (step, across) = X.shape, X.strides
    lowest = address + min(0, (n - 1) * step) + across * np.arange(n_features)  # lowest address of each feature
    if step == 0:
        n, step = 1, 1
    step = abs(step)
    at = np.maximum(0, -((lowest - first) // step))  # the first element that does not begin before `first`
    return bool(((at < n) & (lowest + at * step < end)).any())
