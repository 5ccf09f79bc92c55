"""The parts of CuPy and cuda-python that `CudaDevice` calls, on the emulation's lazy streams."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
from emulation.device import RTX3090
from emulation.streams import Event, Queues, Stream
from made_up_device import CudaError

from gpuqs.devices import cuda
from gpuqs.devices.cuda import CudaDevice


class EmulatedCupy:
    """The part of CuPy that `CudaDevice` calls for streams, memory and copies, on the emulation's lazy streams."""

    class Stream:
        """A CuPy stream: one of the emulation's, with a number."""

        def __init__(self, cupy: EmulatedCupy, stream: Stream) -> None:
            self.cupy, self.stream, self.ptr = cupy, stream, len(cupy.streams)
            self.synchronize, self.is_capturing = stream.synchronize, stream.is_capturing
            self.wait_event = stream.wait_event
            cupy.streams.append(stream)

        def __enter__(self) -> None:
            self.stream.__enter__()

        def __exit__(self, *exception: object) -> None:
            self.stream.__exit__()

        def use(self) -> None:
            self.stream.use()

    class Event(Event):
        """A CuPy event."""

        def record(self, stream: EmulatedCupy.Stream) -> None:
            super().record(stream.stream)

    class Memory:
        """Memory that was never used before."""

        def __init__(self, n_bytes: int) -> None:
            self.bytes = np.full(n_bytes, 111, np.uint8)
            self.ptr = self.bytes.ctypes.data

    class UnownedMemory:
        def __init__(self, ptr: int, size: int, owner: object, device_id: int) -> None:
            self.ptr, self.owner = ptr, owner
            assert device_id == 0

    class ndarray:
        """Memory with an address, and its contents."""

        queues: Queues

        def __init__(self, shape: tuple[int, ...], dtype: np.dtype, data: SimpleNamespace) -> None:
            self.shape, self.dtype, self.data = shape, dtype, data
            self.nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
            there = (ctypes.c_char * self.nbytes).from_address(data.ptr)
            self.values = np.frombuffer(there, dtype).reshape(shape)

        def set(self, array: np.ndarray) -> None:
            self.queues.current.queue(lambda: np.copyto(self.values, array))

    def __init__(self, schedule: str) -> None:
        self.queues = Queues(schedule)
        self.streams: list[Stream] = []
        default = self.Stream(self, self.queues.default)
        self.numbered = [default]
        self.runtime = SimpleNamespace(
            memcpyHostToDevice=1,
            memcpyDeviceToHost=2,
            memcpyAsync=self._copy,
            CUDARuntimeError=CudaError,
            getDeviceProperties=lambda index: {"name": b"made up"},
            memGetInfo=lambda: (1 << 30, 1 << 31),
        )
        self.allocators: list[Callable[[int], SimpleNamespace]] = []
        self.cuda = SimpleNamespace(
            Device=lambda index: nullcontext(),
            Stream=self._stream,
            get_current_stream=lambda: next(s for s in self.numbered if s.stream is self.queues.current),
            using_allocator=self._using_allocator,
            Event=lambda disable_timing: EmulatedCupy.Event(),
            Memory=self.Memory,
            UnownedMemory=self.UnownedMemory,
            MemoryPointer=lambda memory, offset: SimpleNamespace(ptr=memory.ptr + offset, mem=memory),
            runtime=self.runtime,
        )
        self.on_device: list[int] = []

    def _stream(self, non_blocking: bool = False) -> EmulatedCupy.Stream:
        self.numbered.append(self.Stream(self, Stream(self.queues, not non_blocking)))
        return self.numbered[-1]

    @contextmanager
    def _using_allocator(self, allocator: Callable[[int], SimpleNamespace]) -> Iterator[None]:
        self.allocators.append(allocator)
        yield
        self.allocators.pop()

    def asarray(self, array: np.ndarray) -> None:
        raise AssertionError("this may adopt memory of the host, where CuPy shares it with the device")

    def asnumpy(self, array: EmulatedCupy.ndarray) -> np.ndarray:
        self.queues.current.synchronize()
        return array.values.copy()

    def empty(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike = float) -> EmulatedCupy.ndarray:
        shape = (shape,) if isinstance(shape, int) else shape
        n_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        memory = self.allocators[-1](n_bytes) if self.allocators else self.cuda.MemoryPointer(self.Memory(n_bytes), 0)
        self.on_device.append(memory.ptr)
        array = self.ndarray(shape, np.dtype(dtype), memory)
        array.queues = self.queues
        return array

    def _copy(self, target: int, source: int, n_bytes: int, kind: int, stream: int) -> None:
        there = self.on_device
        assert (target in there, source in there) == ((True, False) if kind == 1 else (False, True))
        self.streams[stream].queue(lambda: ctypes.memmove(target, source, n_bytes))


def lazy_device(schedule: str = "late") -> tuple[CudaDevice, EmulatedCupy]:
    cupy = EmulatedCupy(schedule)
    with (
        patch.object(cuda, "_import_cupy", lambda: cupy),
        patch.object(cuda, "read_attributes", lambda index, name: RTX3090),
    ):
        return CudaDevice(0), cupy


class Runtime:
    """The part of cuda-python that `CudaDevice` calls while work is captured."""

    cudaStreamCaptureMode = SimpleNamespace(cudaStreamCaptureModeRelaxed=2)

    def __init__(self) -> None:
        self.mode = 0

    def cudaThreadExchangeStreamCaptureMode(self, mode: int) -> tuple[int, int]:
        self.mode, before = mode, self.mode
        return 0, before
