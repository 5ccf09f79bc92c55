"""The interface that models and GPU engines need from a device; `gpuqs.devices.cuda.CudaDevice` is the CuPy one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class DeviceAttributes:
    """The properties of a CUDA device, as in the corresponding fields of ``cudaDeviceProp``.

    Parameters
    ----------
    name : str
    compute_capability : (int, int)
    multiprocessors : int
    threads_per_multiprocessor, blocks_per_multiprocessor, registers_per_multiprocessor : int
    shared_per_multiprocessor : int
        Bytes of shared memory.
    shared_per_block : int
        Bytes that one thread block may have, after opting in.
    shared_reserved : int
        Bytes of each block's shared memory that the system reserves.
    l2_bytes : int
    """

    name: str
    compute_capability: tuple[int, int]
    multiprocessors: int
    threads_per_multiprocessor: int
    blocks_per_multiprocessor: int
    shared_per_multiprocessor: int
    shared_per_block: int
    shared_reserved: int
    l2_bytes: int
    registers_per_multiprocessor: int = 65536

    @property
    def shared_granularity(self) -> int:
        """Shared memory is allocated to blocks in multiples of this number of bytes."""
        return 128 if self.compute_capability[0] >= 8 else 256


class Kernel(Protocol):
    """A kernel; called like a `cupy.RawKernel`."""

    max_dynamic_shared_size_bytes: int

    def __call__(
        self, grid: tuple[int, ...], block: tuple[int, ...], args: tuple[Any, ...], *, shared_mem: int = 0
    ) -> None: ...


class Stream(Protocol):
    """A queue of work."""

    def synchronize(self) -> None: ...


class Device(Protocol):
    """A device that scores documents: the host, or a GPU.

    Attributes
    ----------
    kind : {"cpu", "cuda"}
        Engines whose `Engine.device` equals this run here.
    key : hashable
        Identifies the device.
    """

    kind: str
    key: Any

    def active(self) -> AbstractContextManager[Any]:
        """Make this the device that the calls below, and kernel launches, go to.

        While a GPU's current stream is being captured, memory that is allocated inside is never freed: the
        graph uses it at every replay.
        """

    def adopt(self, X: Any) -> Any:
        """``X`` as an array of this device, without a copy; None if it is not device memory.

        Raises
        ------
        InputError
            ``X`` lies on another device.
        """

    def holds(self, array: Any) -> bool:
        """Whether an array lies in the device's memory."""

    def empty(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> Any:
        """Uninitialised memory; once unreferenced, later work on the current stream may reuse it."""

    def run(self, fill: Callable[[Any, Any], None], documents: Any, out: Any) -> None:
        """Run ``fill(documents, out)`` here.

        If both lie on the host and this is a GPU, chunks are copied there and back, and ``out`` is filled when this
        returns. Otherwise the work of ``fill`` has been queued (on a GPU) or done (on the host).
        """

    def own_answer(self, X: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Memory for an answer, allocated by the library that ``X`` belongs to; None if memory of `empty` will do."""

    def answer_beside(self, X: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Memory of this device for an answer that `hand_back` will pass to the library of ``X``."""

    def hand_back(self, array: Any, X: Any) -> Any:
        """An array of this device as an array of the library that ``X`` belongs to, without a copy."""

    def to_host(self, array: Any) -> np.ndarray:
        """An array of this device on the host, complete when this returns."""

    def synchronize(self) -> None:
        """Wait for the work that was queued on the current stream."""


class GpuDevice(Device, Protocol):
    """One GPU: its memory, its kernels, its streams.

    While the current stream is being captured, operations that wait (`upload`, a kernel's first use, `lend_streams`,
    `synchronize`) raise a DeviceError; so a call must be made once before it is captured.

    Attributes
    ----------
    attributes : DeviceAttributes
    scratch_bytes : int
        Memory that one launch may use beyond the model, the input and the output.
    """

    attributes: DeviceAttributes
    scratch_bytes: int

    def retain(self, used: Any) -> None:
        """Keep ``used`` alive until `active` ends, which notes the stream of the queued work.

        If the current stream is being captured, keep it for good, as `active` does with memory.
        """

    def address(self, array: Any) -> int:
        """The address of the first element of an array of this device."""

    def upload(self, array: np.ndarray) -> Any:
        """A copy on the device, complete when this returns.

        Its memory is reused only after queued work has read it, if the calls that queued the work `retain` the
        object that holds it.
        """

    def is_ready(self, X: Any) -> bool:
        """Whether a recorded call may run.

        True if ``X`` (for which `holds` must be true) lies on this device, this device is the current one, the
        current stream is not being captured, and this thread is not recording a call.
        """

    def recorded(self, fill: Callable[[Any, Any], None], documents: Any, out: Any) -> Callable[[Any, Any], bool] | None:
        """Run ``fill(documents, out)``, which only launches kernels; return a function that repeats the launches.

        The function launches with the same scalar arguments, for other arrays of the same types, shapes and strides;
        it returns False, and does nothing, if its scratch memory cannot be allocated in one piece. None is returned
        instead of it if it would need too much memory. ``documents`` and ``out`` must not share memory.
        """

    def kernel(self, file: str, name: str, registers: int) -> Kernel:
        """The instantiation ``name`` of a kernel in ``file``; compiled at first use, or read from the cache on disk.

        ``registers``: upper limit of registers per thread.
        """

    def pinned(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> np.ndarray:
        """Pinned host memory, which the device can copy from and to while the CPU goes on."""

    def lend_streams(self, n: int) -> AbstractContextManager[list[Stream]]:
        """Streams for the caller's exclusive use during a ``with`` block."""

    def on(self, stream: Stream) -> AbstractContextManager[None]:
        """Make a stream this thread's current one, and restore the previous one afterwards."""

    def stage(self, name: str) -> AbstractContextManager[Any]:
        """A named range in a profiler's timeline."""

    def copy_in(self, target: Any, source: np.ndarray) -> None:
        """Queue a copy of pinned memory to the device on the current stream."""

    def copy_out(self, target: np.ndarray, source: Any) -> None:
        """Queue a copy of device memory to pinned memory on the current stream."""
