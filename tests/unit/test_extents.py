"""Memory extents of arrays agree with NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from gpuqs.devices.extents import is_aligned, reach, shares_memory


def drawn(rng: np.random.Generator, memory: np.ndarray, dtype: str) -> np.ndarray:
    """Documents with any strides anywhere in memory, even starting in the middle of an element."""
    shape = tuple(rng.integers(0 if rng.random() < 0.05 else 1, 6, 2).tolist())
    steps = rng.integers(-9, 10, 2) * rng.choice([1, 2, 4, 8])
    steps = np.where(rng.random(2) < 0.1, 0, steps)
    ends = [(n - 1) * step for n, step in zip(shape, steps.tolist(), strict=True)] if 0 not in shape else [0, 0]
    low, high = -sum(e for e in ends if e < 0), sum(e for e in ends if e > 0) + np.dtype(dtype).itemsize
    at = int(rng.integers(low, len(memory) - high + 1))
    return np.ndarray(shape, dtype, memory, at, tuple(steps.tolist()))


@pytest.mark.parametrize("dtype", ["u1", "f2", "f4", "f8", "c16"])
def test_what_shares_memory_and_what_is_aligned(dtype: str) -> None:
    rng, memory = np.random.default_rng(5), np.zeros(800, np.uint8)
    shared, aligned = [], []
    for _ in range(3000):
        X = drawn(rng, memory, dtype)
        size = int(rng.integers(0, 9))
        out = np.ndarray(size, "f8", memory, int(rng.integers(0, len(memory) - 8 * size + 1)))
        shared.append(np.shares_memory(X, out))
        assert shares_memory(X, X.ctypes.data, out, out.ctypes.data) == shared[-1]
        if X.size:
            places = X.ctypes.data + np.add.outer(*(np.arange(n) * s for n, s in zip(X.shape, X.strides, strict=True)))
            aligned.append(not (places % X.itemsize).any())
            assert is_aligned(X, X.ctypes.data) == aligned[-1]
            low, high = reach(X)
            assert (low, high) == (places.min() - X.ctypes.data, places.max() - X.ctypes.data + X.itemsize)
    assert 0.02 < np.mean(shared) < 0.98
    assert dtype == "u1" or 0.01 < np.mean(aligned) < 0.98
