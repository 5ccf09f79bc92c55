"""The emulation as a device of gpuqs: the host code that drives CuPy drives it unchanged."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.resources import as_file
from typing import Any

import numpy as np
import numpy.typing as npt

from emulation.memory import DeviceArray, LentBlock, PinnedArray, Pool, empty, to_host
from emulation.module import EmulatedKernel, EmulatedModule, EmulationError
from emulation.streams import Event, Queues, Stream, StreamError
from gpuqs.devices import pipeline
from gpuqs.devices.base import DeviceAttributes
from gpuqs.devices.model_memory import ModelMemory
from gpuqs.devices.recording import Launch, Moving, Recorder, Recording
from gpuqs.devices.sources import source_folder
from gpuqs.engines.gpu.kernels import every_kernel
from gpuqs.errors import DeviceError

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


#: Numbers that tell emulated devices apart.
_NUMBERS = itertools.count()


@dataclass
class ForeignArray:
    """Device memory as another library sees it, whose work goes to a stream of its own."""

    array: DeviceArray
    stream: Stream


@dataclass
class QueuedKernel:
    """A kernel whose launches are queued on the current stream."""

    device: EmulatedDevice
    kernel: EmulatedKernel

    @property
    def max_dynamic_shared_size_bytes(self) -> int:
        return self.kernel.max_dynamic_shared_size_bytes

    @max_dynamic_shared_size_bytes.setter
    def max_dynamic_shared_size_bytes(self, n: int) -> None:
        self.kernel.max_dynamic_shared_size_bytes = n

    def __call__(self, grid: tuple, block: tuple, args: Sequence, *, shared_mem: int = 0) -> None:
        self.device.check_active()
        self.launch(grid, block, args, shared_mem)
        if self.device.recorder.recording is not None:
            self.device.recorder.recording.launched(self, grid, block, tuple(args), shared_mem)

    def launch(self, grid: tuple, block: tuple, args: Sequence, shared_mem: int) -> None:
        for index, value in enumerate(args):
            if isinstance(value, np.ndarray):
                raise EmulationError(f"{self.kernel.name}: argument {index} is an array of the host")
        arrays = [value for value in args if isinstance(value, DeviceArray)]
        values = [value.data if isinstance(value, DeviceArray) else value for value in args]
        launch = self.kernel.prepare(grid, block, values, shared_mem)
        self.device.pool.run_later(self.kernel.name, [array.block for array in arrays], launch)


@dataclass
class Replay:
    """A recorded call, launched again: what `gpuqs.devices.replay.Replay` does with the driver."""

    device: EmulatedDevice
    scratch_bytes: int
    launches: list[Launch]

    def __call__(self, documents: DeviceArray, out: DeviceArray) -> bool:
        scratch = empty(self.device.pool, self.scratch_bytes, np.uint8)
        for launch in self.launches:
            arguments = [
                place(a, (documents, out, scratch)[a.within]) if isinstance(a, Moving) else a for a in launch.arguments
            ]
            launch.kernel.launch(launch.grid, launch.block, arguments, launch.shared_mem)
        self.device.model_memory.note(self.device.queues.current)
        return True


def place(moving: Moving, within: DeviceArray) -> DeviceArray:
    """An array from where a launch's argument points to the end of that memory."""
    memory = within.block.memory.bytes
    at = address(within) + moving.offset - memory.ctypes.data
    whole = memory[at : at + (len(memory) - at) // moving.dtype.itemsize * moving.dtype.itemsize]
    return DeviceArray(within.block, whole.view(moving.dtype))


def address(array: DeviceArray) -> int:
    return array.data.ctypes.data


class EmulatedDevice:
    """A device whose kernels run on the CPU, when somebody waits for them.

    Parameters
    ----------
    order : {"forward", "reverse", "random"}
        Order in which threads run.
    sanitizer : {"", "thread", "address"}
    only : set of (file, name), optional
        Kernels to compile; by default all.
    scratch_bytes : int
        If it is small, documents are cut into chunks.
    flush : bool
        Whether kernels, too, flush denormals to zero.
    schedule : str
        One of `emulation.streams.SCHEDULES`: when the work of streams runs.
    seed : int
        Seed of the random schedule.
    """

    kind = "cuda"

    def __init__(
        self,
        order: str = "forward",
        sanitizer: str = "",
        only: set[tuple[str, str]] | None = None,
        scratch_bytes: int = 64 << 20,
        attributes: DeviceAttributes = RTX3090,
        flush: bool = False,
        schedule: str = "late",
        seed: int = 0,
    ) -> None:
        self._made_by = (order, sanitizer, only, scratch_bytes, attributes, flush, schedule, seed)
        self.key = ("emulated", next(_NUMBERS))
        self.attributes, self.scratch_bytes = attributes, scratch_bytes
        self.queues = Queues(schedule, seed)
        self.pool = Pool(self.queues)
        self.model_memory = ModelMemory(self.stream(), Event, nullcontext)
        self.used: list[Any] = []
        self.launched: list[tuple[str, str]] = []
        self.recorder, self.recorded_bytes = Recorder(), 64 << 20
        self._only, self._order, self._sanitizer, self._flush = only, order, sanitizer, flush
        self._kernels: dict[tuple[str, str], EmulatedKernel] = {}
        self._idle: list[Stream] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return EmulatedDevice, self._made_by

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        self.pool.active += 1
        before, self.used = self.used, []
        stream = self.queues.current
        try:
            with self.recorder.paused():
                yield
        finally:
            self.pool.active -= 1
            if not stream.capturing:
                self.model_memory.note(stream)
            self.used = before

    @contextlib.contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        before = self.queues.current
        stream.use()
        try:
            yield
        finally:
            before.use()

    def check_active(self) -> None:
        if not self.pool.active:
            raise StreamError("outside of active(): this would go to another device")

    def _refuse_capture(self, mend: str = "make the same call once before the capture") -> None:
        if self.queues.current.capturing:
            raise DeviceError(mend)

    def stream(self, blocking: bool = False) -> Stream:
        """A stream of a caller's own."""
        return Stream(self.queues, blocking)

    def retain(self, used: Any) -> None:
        (self.pool.captured if self.queues.current.capturing else self.used).append(used)

    def address(self, array: DeviceArray) -> int:
        return address(array)

    def holds(self, array: Any) -> bool:
        return isinstance(array, DeviceArray)

    def upload(self, array: np.ndarray) -> DeviceArray:
        self.check_active()
        self._refuse_capture()
        with self.on(self.model_memory.stream):
            copy = empty(self.pool, array.shape, array.dtype)
            source, target = np.array(array, order="C"), copy.data
            self.pool.run_later("upload", [copy.block], lambda: np.copyto(target, source))
        self.model_memory.stream.synchronize()
        view = target.view()
        view.setflags(write=False)
        return DeviceArray(LentBlock(copy.block, self.model_memory.lend(copy.block)), view)

    def empty(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> DeviceArray:
        array = empty(self.pool, shape, dtype)
        if self.recorder.recording is not None:
            self.recorder.recording.made(array)
        return array

    def is_ready(self, X: DeviceArray) -> bool:
        idle = self.recorder.recording is None and not self.queues.current.capturing
        return idle and X.block.pool is self.pool

    def recorded(self, fill: Callable[[Any, Any], None], documents: DeviceArray, out: DeviceArray) -> Replay | None:
        recording = Recording(documents, out, address, self.recorded_bytes)
        self.recorder.record(recording, fill, documents, out)
        return Replay(self, recording.scratch_bytes, recording.launches) if recording.whole else None

    def kernel(self, file: str, name: str, registers: int) -> QueuedKernel:
        self.launched.append((file, name))
        if (file, name) not in self._kernels:
            self._refuse_capture()
            with as_file(source_folder()) as folder:
                names = [
                    n for n in every_kernel()[file] if not self._only or (file, n) in self._only
                ]
                source = folder.resolve() / file
                module = EmulatedModule(source, names, self._order, 1, self._sanitizer, self._flush)
            self._kernels[file, name] = module.get_function(name)
        return QueuedKernel(self, self._kernels[file, name])

    def from_host(self, array: np.ndarray) -> DeviceArray:
        """Copy an array to device memory with its strides."""
        if not array.size:
            return empty(self.pool, array.shape, array.dtype)
        reach = [(n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True)]
        before = -sum(r for r in reach if r < 0)
        block = self.pool.lend(before + sum(r for r in reach if r > 0) + array.itemsize, self.queues.current)
        data = np.ndarray(array.shape, array.dtype, block.memory.bytes, before, array.strides)
        values = array.copy()
        self.pool.run_later("from_host", [block], lambda: np.copyto(data, values))
        self.queues.current.synchronize()
        return DeviceArray(block, data)

    def to_host(self, array: DeviceArray) -> np.ndarray:
        return to_host(array)

    def pinned(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> np.ndarray:
        n_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        block = self.pool.lend(n_bytes, None)
        array = block.memory.bytes.view(dtype).reshape(shape).view(PinnedArray)
        array.block = block
        return array

    @contextlib.contextmanager
    def lend_streams(self, n: int) -> Iterator[list[Stream]]:
        self._refuse_capture()
        streams = [self._idle.pop() for _ in range(min(n, len(self._idle)))]
        streams += [self.stream() for _ in range(n - len(streams))]
        try:
            yield streams
        finally:
            self._idle += streams

    def synchronize(self) -> None:
        self._refuse_capture("end the capture first")
        self.queues.current.synchronize()

    def wait(self) -> None:
        self._refuse_capture()
        self.queues.synchronize()

    def stage(self, name: str) -> AbstractContextManager[Any]:
        return nullcontext()

    def copy_in(self, target: DeviceArray, source: np.ndarray) -> None:
        self._copy(target, source, target.data, source)

    def copy_out(self, target: np.ndarray, source: DeviceArray) -> None:
        self._copy(source, target, target, source.data)

    def _copy(self, there: DeviceArray, here: np.ndarray, target: np.ndarray, source: np.ndarray) -> None:
        if not isinstance(here, PinnedArray) or here.block is None:
            raise StreamError("a queued copy of memory that is not pinned")
        if (target.dtype, target.shape) != (source.dtype, source.shape):
            raise StreamError(f"a copy of {source.dtype} {source.shape} to {target.dtype} {target.shape}")
        if not (target.flags.c_contiguous and source.flags.c_contiguous):
            raise StreamError("a copy of bytes that do not lie side by side")
        into, what = (_bytes_of(array) for array in (target, source))
        self.pool.run_later("copy", [there.block, here.block], lambda: np.copyto(into, what))

    def adopt(self, X: Any) -> DeviceArray | None:
        if isinstance(X, ForeignArray):
            self.queues.current.wait_event(X.stream.record())
            return X.array
        return X if isinstance(X, DeviceArray) else None

    def run(self, fill: Callable[[Any, Any], None], documents: Any, out: Any) -> None:
        pipeline.run(self, fill, documents, out)

    def own_answer(self, X: Any, shape: tuple[int, ...], dtype: np.dtype) -> ForeignArray | None:
        if not isinstance(X, ForeignArray):
            return None
        with self.on(X.stream):
            return ForeignArray(empty(self.pool, shape, dtype), X.stream)

    def answer_beside(self, X: Any, shape: tuple[int, ...], dtype: np.dtype) -> DeviceArray:
        return self.empty(shape, dtype)

    def hand_back(self, array: DeviceArray, X: Any) -> DeviceArray | ForeignArray:
        if not isinstance(X, ForeignArray):
            return array
        X.stream.wait_event(self.queues.current.record())
        return ForeignArray(array, X.stream)


def _bytes_of(array: np.ndarray) -> np.ndarray:
    """The array's memory: for pinned memory a view that does not keep it from being given back."""
    if not isinstance(array, PinnedArray):
        return array
    memory = array.block.memory.bytes
    offset = array.ctypes.data - memory.ctypes.data
    return np.ndarray(array.shape, array.dtype, memory, offset)
