"""The emulation as a device of gpuqs: the host code that drives CuPy drives it unchanged."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from importlib.resources import as_file
from typing import Any

import numpy as np
import numpy.typing as npt

from emulation.module import EmulatedKernel, EmulatedModule
from gpuqs.devices.base import DeviceAttributes
from gpuqs.devices.sources import source_folder
from gpuqs.engines.gpu.kernels import every_kernel

#: A GeForce RTX 3090, by its data sheet.
RTX3090 = DeviceAttributes(
    name="emulated RTX 3090",
    compute_capability=(8, 6),
    multiprocessors=82,
    threads_per_multiprocessor=1536,
    blocks_per_multiprocessor=16,
    shared_per_multiprocessor=100 << 10,
    shared_per_block=99 << 10,
    shared_reserved=1024,
    l2_bytes=6 << 20,
)


class DeviceArray(np.ndarray):
    """An array in the emulated device's memory: told from host arrays by its type.

    NumPy's functions of it do as CuPy's, which are compiled with ``-ftz=true``: float32 denormals count as zeros.
    """

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        answer = _flushed(getattr(ufunc, method)(*map(_flushed, inputs), **options))
        if out is not None:
            np.copyto(out[0].view(np.ndarray), answer)
            return out[0]
        return answer.view(DeviceArray) if isinstance(answer, np.ndarray) else answer


def _flushed(x: Any) -> Any:
    """``x`` as a plain array, float32 denormals as zeros of their sign."""
    if not isinstance(x, np.ndarray):
        return x
    plain = x.view(np.ndarray)
    if plain.dtype != np.float32:
        return plain
    return np.where(np.abs(plain) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), plain), plain)


class EmulatedStream:
    """Work is done when it is queued."""

    def __enter__(self) -> EmulatedStream:
        return self

    def __exit__(self, *exception: object) -> None:
        return None

    def synchronize(self) -> None:
        return None


class EmulatedDevice:
    """A device whose kernels run on the CPU.

    Parameters
    ----------
    order : {"forward", "reverse", "random"}
        Order in which threads run.
    sanitizer : {"", "thread", "address"}
    only : set of (file, name), optional
        Kernels to compile; all that there are by default.
    scratch_bytes : int
        Small, to see documents cut into chunks.
    flush : bool
        The kernels, too, take denormals for zeros.
    """

    def __init__(
        self,
        order: str = "forward",
        sanitizer: str = "",
        only: set[tuple[str, str]] | None = None,
        scratch_bytes: int = 64 << 20,
        attributes: DeviceAttributes = RTX3090,
        flush: bool = False,
    ) -> None:
        self.key = ("emulated", order, sanitizer, attributes.name, flush)
        self.attributes, self.scratch_bytes = attributes, scratch_bytes
        self.launched: list[tuple[str, str]] = []
        self._only, self._order, self._sanitizer, self._flush = only, order, sanitizer, flush
        self._kernels: dict[tuple[str, str], EmulatedKernel] = {}
        self._noise = np.random.default_rng(0)

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = (self._order, self._sanitizer, self._only, self.scratch_bytes, self.attributes, self._flush)
        return EmulatedDevice, arguments

    def active(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def retain(self, used: Any) -> None:
        return None

    def holds(self, array: Any) -> bool:
        return isinstance(array, DeviceArray)

    def upload(self, array: np.ndarray) -> DeviceArray:
        copy = np.array(array, order="C").view(DeviceArray)
        copy.setflags(write=False)
        return copy

    def empty(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> DeviceArray:
        array = np.empty(shape, dtype)
        array.reshape(-1).view(np.uint8)[:] = self._noise.integers(0, 256, array.nbytes, np.uint8)
        return array.view(DeviceArray)

    def kernel(self, file: str, name: str) -> EmulatedKernel:
        self.launched.append((file, name))
        if (file, name) not in self._kernels:
            with as_file(source_folder()) as folder:
                names = [
                    n for n in every_kernel()[file] if not self._only or (file, n) in self._only
                ]
                source = folder.resolve() / file
                module = EmulatedModule(source, names, self._order, 1, self._sanitizer, self._flush)
            self._kernels[file, name] = module.get_function(name)
        return self._kernels[file, name]

    def from_host(self, array: np.ndarray) -> DeviceArray:
        """The array as device memory, strides and all."""
        return array.view(DeviceArray)

    def to_host(self, array: DeviceArray) -> np.ndarray:
        return np.array(array)

    def pinned(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> np.ndarray:
        return np.empty(shape, dtype)

    def lend_streams(self, n: int) -> AbstractContextManager[list[EmulatedStream]]:
        return nullcontext([EmulatedStream() for _ in range(n)])

    def wait(self) -> None:
        return None

    def stage(self, name: str) -> AbstractContextManager[Any]:
        return nullcontext()

    def copy_in(self, target: DeviceArray, source: np.ndarray) -> None:
        target[...] = source

    def copy_out(self, target: np.ndarray, source: DeviceArray) -> None:
        target[...] = source

    def adopt(self, X: Any) -> DeviceArray | None:
        return X if isinstance(X, DeviceArray) else None

    def hand_back(self, array: DeviceArray, X: Any) -> DeviceArray:
        return array
