"""Arrays of other libraries in CUDA memory: told from host arrays, taken over, given back; nothing is copied."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from gpuqs.errors import InputError

#: DLPack's device types (``DLDeviceType``) of CUDA memory: plain and managed.
_DLPACK_CUDA = (2, 13)


def is_on_device(X: Any) -> bool:
    """Whether an array of any library lies in CUDA memory; CuPy need not be there."""
    if isinstance(X, np.ndarray):
        return False
    place = getattr(X, "__dlpack_device__", None)
    if place is not None:
        return place()[0] in _DLPACK_CUDA
    return hasattr(X, "__cuda_array_interface__")


def adopt(cupy: Any, X: Any) -> Any:
    """``X`` as CuPy's array; None where it lies on the host."""
    if isinstance(X, cupy.ndarray):
        return X
    if not is_on_device(X):
        return None
    try:
        return cupy.from_dlpack(X) if hasattr(X, "__dlpack__") else cupy.asarray(X)
    except (BufferError, NotImplementedError, TypeError, ValueError) as error:  # of types that NumPy lacks
        kind = type(X)
        raise InputError(
            f"{kind.__module__}.{kind.__qualname__} is not taken over by CuPy: {str(error)[:300]}; "
            "cast it to float32 on one device"
        ) from error


#: Libraries whose arrays are given back as theirs, and CuPy; JAX's arrays are of classes of either name.
_LIBRARIES = ("cupy", "torch", "numba", "jax", "jaxlib")


@lru_cache(maxsize=64)  # a call asks several times
def _library_of(kind: type) -> str:
    """The library of a class of arrays, or of one that it derives from; empty for others."""
    modules = (base.__module__.partition(".")[0] for base in kind.__mro__)
    return next((module for module in modules if module in _LIBRARIES), "")


def _library(X: Any) -> str:
    kind: type = type(X)
    return _library_of(kind)


def is_jax(X: Any) -> bool:
    """Whether an array is JAX's, and so immutable."""
    return _library(X) in ("jax", "jaxlib")


def follows_streams(X: Any) -> bool:
    """Whether the library's memory is given to later work of a stream; work with others' arrays is waited for."""
    return _library(X) in ("cupy", "torch")


def reads_on(X: Any) -> bool:
    """Whether the library may let go of an answer of CuPy's before its own streams have read it."""
    return is_jax(X) or _library(X) == "numba"


def is_read_only(X: Any) -> bool:
    """Whether an array says by CUDA's array interface that it is not to be written to."""
    interface = getattr(X, "__cuda_array_interface__", None)
    return interface is not None and bool(interface["data"][1])


def is_torch(X: Any) -> bool:
    """Whether an array is PyTorch's."""
    return _library(X) == "torch"


def torch_memory(X: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """A tensor of PyTorch's, beside ``X``: memory of CuPy's would be taken again while PyTorch's stream reads it."""
    import torch

    return torch.empty(shape, dtype=getattr(torch, dtype.name), device=X.device)


def hand_back(array: Any, X: Any) -> Any:
    """CuPy's array as one of the library that ``X`` belongs to, if that is a known one.

    What PyTorch does next follows what is queued here; the others' arrays are complete.
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
