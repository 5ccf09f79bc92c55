"""What a model, and what GPU engines need of a device; CuPy's is `gpuqs.devices.cuda.CudaDevice`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class DeviceAttributes:
    """What a CUDA device offers; the fields of ``cudaDeviceProp`` of the same meaning.

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
        Bytes that the system takes of each block's.
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
        """Shared memory is given to blocks in multiples of so many bytes."""
        return 128 if self.compute_capability[0] >= 8 else 256


class Kernel(Protocol):
    """A kernel; called as a `cupy.RawKernel` is."""

    max_dynamic_shared_size_bytes: int

    def __call__(
        self, grid: tuple[int, ...], block: tuple[int, ...], args: tuple[Any, ...], *, shared_mem: int = 0
    ) -> None: ...


class Stream(Protocol):
    """A queue of work."""

    def synchronize(self) -> None: ...


class Device(Protocol):
    """What scores: the host, or a GPU.

    Attributes
    ----------
    kind : {"cpu", "cuda"}
        Engines of the same `Engine.device` run here.
    key : hashable
        Tells devices apart.
    """

    kind: str
    key: Any

    def active(self) -> AbstractContextManager[Any]:
        """Make it the device that the calls below, and launches, go to.

        While a GPU's current stream is captured, all memory that is allocated inside stays: the graph
        uses it at every replay.
        """

    def adopt(self, X: Any) -> Any:
        """``X`` as an array of this device, without a copy; None where it is not device memory.

        Raises
        ------
        InputError
            It lies on another device.
        """

    def holds(self, array: Any) -> bool:
        """Whether an array lies in the device's memory."""

    def empty(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> Any:
        """Uninitialised memory, given back for the current stream's later work once unreferenced."""

    def run(self, fill: Callable[[Any, Any], None], documents: Any, out: Any) -> None:
        """Run ``fill(documents, out)`` here.

        Where both lie on the host and this is a GPU, chunks are copied there and back, and ``out`` is filled when
        this returns; else what ``fill`` does is queued, or done.
        """

    def own_answer(self, X: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Memory for an answer, of the library that ``X`` belongs to; None where `empty`'s serves it as well."""

    def answer_beside(self, X: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """This device's memory for an answer that `hand_back` gives to the library of ``X``."""

    def hand_back(self, array: Any, X: Any) -> Any:
        """An array of this device as an array of the library that ``X`` belongs to, without a copy."""

    def to_host(self, array: Any) -> np.ndarray:
        """An array of this device on the host, complete when this returns."""

    def synchronize(self) -> None:
        """Wait for the work that was queued on the current stream."""


class GpuDevice(Device, Protocol):
    """One GPU: its memory, its kernels, its streams.

    While the current stream is captured, whatever waits (`upload`, a kernel's first use, `lend_streams`,
    `synchronize`) raises a DeviceError: a call is made once before it is captured.

    Attributes
    ----------
    attributes : DeviceAttributes
    scratch_bytes : int
        Memory that one launch may use beyond the model, the input and the output.
    """

    attributes: DeviceAttributes
    scratch_bytes: int

    def retain(self, used: Any) -> None:
        """Keep ``used`` until `active` ends, what is queued being known then.

        For good if the current stream is being captured, as `active` does with memory.
        """

    def address(self, array: Any) -> int:
        """Where the first element of an array of this device lies."""

    def upload(self, array: np.ndarray) -> Any:
        """A copy on the device, complete when this returns.

        Its memory is another's when what was queued has read it: by calls that `retain` what keeps it.
        """

    def is_ready(self, X: Any) -> bool:
        """Whether a recorded call may run.

        ``X``, for which `holds` is true, lies on this device, which is the current one, and nothing is captured, or
        recorded in this thread.
        """

    def recorded(self, fill: Callable[[Any, Any], None], documents: Any, out: Any) -> Callable[[Any, Any], bool] | None:
        """Run ``fill(documents, out)``, which only launches kernels; gives what launches them again.

        That is with the same numbers, for other arrays of these types, shapes and strides; it gives False, and does
        nothing, where its memory is not to be had at once. None where it would take too much memory. ``documents`` and
        ``out`` share no memory.
        """

    def kernel(self, file: str, name: str, registers: int) -> Kernel:
        """The instantiation ``name`` of a kernel in ``file``; compiled at first use, or found on the disk.

        ``registers``: most that a thread of it takes.
        """

    def pinned(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> np.ndarray:
        """Host memory that the device can copy from and to while the CPU goes on."""

    def lend_streams(self, n: int) -> AbstractContextManager[list[Stream]]:
        """Streams of the caller's own for the length of a ``with`` block."""

    def on(self, stream: Stream) -> AbstractContextManager[None]:
        """Make a stream this thread's current one, and then the one before it again."""

    def stage(self, name: str) -> AbstractContextManager[Any]:
        """A named range in a profiler's timeline."""

    def copy_in(self, target: Any, source: np.ndarray) -> None:
        """Queue a copy of pinned memory to the device on the current stream."""

    def copy_out(self, target: np.ndarray, source: Any) -> None:
        """Queue a copy of device memory to pinned memory on the current stream."""
