"""Arrays of other libraries in CUDA memory: recognise and adopt them, and hand answers back; nothing is copied."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from gpuqs.errors import InputError

#: DLPack's device types (``DLDeviceType``) of CUDA memory: plain and managed.
_DLPACK_CUDA = (2, 13)


def is_on_device(X: Any) -> bool:
    """Whether an array of any library lies in CUDA memory; works without CuPy."""
    if isinstance(X, np.ndarray):
        return False
    place = getattr(X, "__dlpack_device__", None)
    if place is not None:
        return place()[0] in _DLPACK_CUDA
    return hasattr(X, "__cuda_array_interface__")


def adopt(cupy: Any, X: Any) -> Any:
    """``X`` as a CuPy array; None if it lies on the host."""
    if isinstance(X, cupy.ndarray):
        return X
    if not is_on_device(X):
        return None
    try:
        return cupy.from_dlpack(X) if hasattr(X, "__dlpack__") else cupy.asarray(X)
    except (BufferError, NotImplementedError, TypeError, ValueError) as error:  # types that NumPy lacks
        kind = type(X)
        raise InputError(
            f"{kind.__module__}.{kind.__qualname__} cannot be shared with CuPy: {str(error)[:300]}; "
            "cast it to float32 on one device"
        ) from error


#: CuPy and the libraries that get answers as their own arrays; JAX's array classes are in "jax" or in "jaxlib".
_LIBRARIES = ("cupy", "torch", "numba", "jax", "jaxlib")


@lru_cache(maxsize=64)  # called several times per call
def _library_of(kind: type) -> str:
    """The library that an array class, or a base class of it, belongs to; empty for other libraries."""
    modules = (base.__module__.partition(".")[0] for base in kind.__mro__)
    return next((module for module in modules if module in _LIBRARIES), "")


def _library(X: Any) -> str:
    kind: type = type(X)
    return _library_of(kind)


def is_jax(X: Any) -> bool:
    """Whether an array is JAX's, and so immutable."""
    return _library(X) in ("jax", "jaxlib")


def follows_streams(X: Any) -> bool:
    """Whether the library reuses memory in stream order; gpuqs waits for its work on arrays of other libraries."""
    return _library(X) in ("cupy", "torch")


def reads_on(X: Any) -> bool:
    """Whether the library may release an answer in CuPy's memory before its own streams have read it."""
    return is_jax(X) or _library(X) == "numba"


def is_read_only(X: Any) -> bool:
    """Whether an array's CUDA array interface says that it is read-only."""
    interface = getattr(X, "__cuda_array_interface__", None)
    return interface is not None and bool(interface["data"][1])


def is_torch(X: Any) -> bool:
    """Whether an array is PyTorch's."""
    return _library(X) == "torch"


def torch_memory(X: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """A PyTorch tensor on the device of ``X``: CuPy would reuse its memory while PyTorch's stream still reads it."""
    import torch

    return torch.empty(shape, dtype=getattr(torch, dtype.name), device=X.device)


def hand_back(array: Any, X: Any) -> Any:
    """A CuPy array as an array of the library that ``X`` belongs to, if that is a known one.

    PyTorch orders its next work after what is queued here; arrays for JAX and Numba must be complete already.
    """
    if is_torch(X):
        import torch

        return torch.from_dlpack(array)
    if is_jax(X):
        import jax

        return jax.dlpack.from_dlpack(array)
    if _library(X) == "numba":
        from numba import cuda

        return cuda.as_cuda_array(array)
    return array
