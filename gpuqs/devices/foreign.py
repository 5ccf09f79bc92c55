"""Arrays of other libraries in CUDA memory: told from host arrays, taken over, given back; nothing is copied."""

from __future__ import annotations

from typing import Any

import numpy as np

#: DLPack's device types (``DLDeviceType``) of CUDA memory: plain and managed.
_DLPACK_CUDA = (2, 13)


def is_on_device(X: Any) -> bool:
    """Whether an array of any library lies in CUDA memory; CuPy need not be there."""
    if isinstance(X, np.ndarray):
        return False
    if hasattr(X, "__cuda_array_interface__"):
        return True
    place = getattr(X, "__dlpack_device__", None)
    return place is not None and place()[0] in _DLPACK_CUDA


def adopt(cupy: Any, X: Any) -> Any:
    """``X`` as CuPy's array; None where it lies on the host."""
    if isinstance(X, cupy.ndarray):
        return X
    if not is_on_device(X):
        return None
    return cupy.from_dlpack(X) if hasattr(X, "__dlpack__") else cupy.asarray(X)


def _library(X: Any) -> str:
    return type(X).__module__.partition(".")[0]


def is_jax(X: Any) -> bool:
    """Whether an array is JAX's: immutable, in memory that is others' as soon as the array is gone."""
    return _library(X) in ("jax", "jaxlib")


def hand_back(array: Any, X: Any) -> Any:
    """CuPy's array as one of the library that ``X`` belongs to."""
    library = _library(X)
    if library == "torch":
        import torch

        return torch.from_dlpack(array)
    if is_jax(X):
        import jax

        return jax.dlpack.from_dlpack(array)
    if library == "numba":
        from numba import cuda

        return cuda.as_cuda_array(array)
    return array
