"""CUDA devices through CuPy: memory, kernels, streams.

This module imports without CuPy; `cuda_device` reports a missing package, driver or device.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuqs.devices import foreign, nvrtc, pipeline, sources
from gpuqs.devices.bindings import bindings, checked
from gpuqs.devices.cuda_attributes import read_attributes
from gpuqs.devices.cuda_kernel import CudaKernel
from gpuqs.devices.kernel_cache import MachineCode, cached
from gpuqs.devices.model_memory import ModelMemory
from gpuqs.devices.recording import Recorder, Recording
from gpuqs.devices.replay import Replay
from gpuqs.errors import DeviceError, InputError
from gpuqs.forks import Lock

#: One launch's scratch memory may take 1 / SCRATCH_SHARE of the memory that is free at first use ...
SCRATCH_SHARE = 4
#: ... but no more than SCRATCH_BYTES.
SCRATCH_BYTES = 2 << 30
#: Upper limit of a recorded call's scratch bytes: a replay allocates them all at once, not one array after another.
RECORDED_BYTES = 512 << 20

#: CUDA's error codes (``cudaError_t``): memory is short ...
_OUT_OF_MEMORY = 2
#: ... the driver is too old, or there is none ...
_INSUFFICIENT_DRIVER = 35
#: ... the driver finds no device ...
_NO_DEVICE = 100
#: ... the default stream is queried while a stream that waits for it is being captured.
_IMPLICIT_CAPTURE = 906


def cuda_device(device: int | str | None = None) -> CudaDevice:
    """A CUDA device, checked.

    Parameters
    ----------
    device : int or str, optional
        Its number, a name such as "cuda:1", or "cuda" (the same as None) for CuPy's current device.

    Raises
    ------
    DeviceError
        CuPy, cuda-python, the driver or the device is missing; the message says which, and how to get it.
    ValueError
        ``device`` is neither a number nor a name.
    """
    index = _parse(device)
    cupy = _import_cupy()
    count = _count_devices(cupy)
    if index is None:
        index = cupy.cuda.runtime.getDevice()
    if not 0 <= index < count:
        raise DeviceError(
            f"there is no device cuda:{index}: this process sees {count}; choose one below that, "
            "or look at CUDA_VISIBLE_DEVICES"
        )
    return _device(index)


_devices: dict[int, CudaDevice] = {}


def _device(index: int) -> CudaDevice:
    """The only object of a device, shared by all threads: it owns the device's kernels and memory."""
    return _devices.get(index) or _devices.setdefault(index, CudaDevice(index))


def _parse(device: int | str | None) -> int | None:
    if device is None or device == "cuda":
        return None
    if isinstance(device, str) and device.startswith("cuda:") and device[5:].isdecimal():
        return int(device[5:])
    if isinstance(device, (int, np.integer)) and not isinstance(device, bool):
        return int(device)
    raise ValueError(f'device must be "cpu", "cuda", "cuda:<number>" or a number, not {device!r}')


def _import_cupy() -> Any:
    try:
        # If it is missing, every `import` would take a lock, and a child forked meanwhile would wait for ever.
        if "cupy" not in sys.modules and find_spec("cupy") is None:
            raise ModuleNotFoundError("No module named 'cupy'")
        import cupy
    except ImportError as error:
        raise DeviceError(
            f"GPU scoring needs CuPy, which cannot be imported ({error}); install it with "
            "pip install 'gpuqs[cuda13]' (or 'gpuqs[cuda12]' for an older driver)"
        ) from error
    return cupy


def _count_devices(cupy: Any) -> int:
    runtime = cupy.cuda.runtime
    try:
        return int(runtime.getDeviceCount())
    except runtime.CUDARuntimeError as error:
        if error.status == _NO_DEVICE:
            raise DeviceError(
                "the NVIDIA driver finds no CUDA device; look at nvidia-smi and at CUDA_VISIBLE_DEVICES, "
                "or score on the CPU with device='cpu'"
            ) from error
        if error.status != _INSUFFICIENT_DRIVER:
            raise DeviceError(f"CUDA does not start: {error}; look at nvidia-smi") from error
        version = runtime.driverGetVersion()
        if version == 0:
            raise DeviceError(
                "there is no NVIDIA driver on this machine (or it is not visible in this container); install "
                "one (on Ubuntu: sudo ubuntu-drivers install), or score on the CPU with device='cpu'"
            ) from error
        raise DeviceError(
            f"the NVIDIA driver serves CUDA {version // 1000}.{version % 1000 // 10}, older than this CuPy "
            "needs; update the driver, or pip install 'gpuqs[cuda12]'"
        ) from error


class _Entered(threading.local):
    """A thread's state on a device: whether it has a context, and what it used since entering `CudaDevice.active`."""

    def __init__(self) -> None:
        self.has_context = False
        self.used: list[Any] = []


class CudaDevice:
    """One GPU; implements `gpuqs.devices.base.GpuDevice`. Made by `cuda_device`."""

    kind = "cuda"

    def __init__(self, index: int) -> None:
        self._cupy = cupy = _import_cupy()
        self.index, self.key = index, ("cuda", index)
        name = cupy.cuda.runtime.getDeviceProperties(index)["name"].decode()
        self.attributes = read_attributes(index, name)
        with cupy.cuda.Device(index):
            free, _ = cupy.cuda.runtime.memGetInfo()
            models = cupy.cuda.Stream(non_blocking=True)
        self.scratch_bytes = min(free // SCRATCH_SHARE, SCRATCH_BYTES)
        self._model_memory = ModelMemory(
            models,
            lambda: cupy.cuda.Event(disable_timing=True),
            lambda: cupy.cuda.Device(index),
        )
        self._kernels: dict[tuple[str, str], CudaKernel] = {}
        self._recorder, self._entered = Recorder(), _Entered()
        self._idle: list[Any] = []
        self._lock = Lock()
        self._captured: list[Any] = []

    def __repr__(self) -> str:
        return f"<cuda:{self.index}: {self.attributes.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return cuda_device, (self.index,)

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        cuda = self._cupy.cuda
        with cuda.Device(self.index), self._recorder.paused():
            if self._is_capturing():
                with self._may_allocate(), cuda.using_allocator(self._allocate_for_good):
                    yield
                return
            before, self._entered.used = self._entered.used, []
            stream = cuda.get_current_stream()
            try:
                yield
            finally:
                try:
                    self._model_memory.note(stream)
                finally:
                    self._entered.used = before

    @contextlib.contextmanager
    def on(self, stream: Any) -> Iterator[None]:
        # `with stream:` would restore the stream of the enclosing `with`, not one that a caller's `use` made current.
        before = self._cupy.cuda.get_current_stream()
        stream.use()
        try:
            yield
        finally:
            before.use()

    def _allocate_for_good(self, n_bytes: int) -> Any:
        """Memory that only a graph uses: what a pool hands out may still be in use by work that was queued before."""
        memory = self._outside_of_pool("a captured call", n_bytes)
        self._captured.append(memory)
        return memory

    def _outside_of_pool(self, what: str, n_bytes: int) -> Any:
        cuda = self._cupy.cuda
        try:
            return cuda.MemoryPointer(cuda.Memory(n_bytes), 0)
        except cuda.runtime.CUDARuntimeError as error:
            if error.status != _OUT_OF_MEMORY:
                raise
            raise DeviceError(
                f"there are no {n_bytes:,} bytes left for {what}, which cannot use CuPy's pool; "
                "call cupy.get_default_memory_pool().free_all_blocks() first"
            ) from error

    @contextlib.contextmanager
    def _may_allocate(self) -> Iterator[None]:
        """Let this thread allocate while it captures, whatever the capture's mode; see ``cudaStreamCaptureMode``."""
        runtime = bindings("runtime")

        def exchange(mode: Any) -> Any:
            told = runtime.cudaThreadExchangeStreamCaptureMode(mode)
            return checked(told, "the mode of captures is not changed")

        before = exchange(runtime.cudaStreamCaptureMode.cudaStreamCaptureModeRelaxed)
        try:
            yield
        finally:
            exchange(before)

    def _is_capturing(self) -> bool:
        runtime = self._cupy.cuda.runtime
        try:
            return bool(self._cupy.cuda.get_current_stream().is_capturing())
        except runtime.CUDARuntimeError as error:
            if error.status != _IMPLICIT_CAPTURE:
                raise
            raise DeviceError(
                "the default stream may not be used while another stream, which waits for it, is being captured; "
                "score on a stream of your own (with cupy.cuda.Stream(non_blocking=True): ...)"
            ) from error

    def _refuse_capture(self, what: str, mend: str = "make the same call once before the capture") -> None:
        """Refuse an operation that waits while work is captured: CUDA forbids it, but fails later and elsewhere."""
        if self._is_capturing():
            raise DeviceError(f"{what} cannot be captured in a CUDA graph; {mend}")

    def retain(self, used: Any) -> None:
        (self._captured if self._is_capturing() else self._entered.used).append(used)

    def holds(self, array: Any) -> bool:
        return isinstance(array, self._cupy.ndarray)

    def address(self, array: Any) -> int:
        return int(array.data.ptr)

    def upload(self, array: np.ndarray) -> Any:
        self._refuse_capture("copying the model to the device")
        cupy, stream, source = self._cupy, self._model_memory.stream, np.ascontiguousarray(array)
        with self.on(stream):
            copy = cupy.empty(source.shape, source.dtype)  # not `asarray`, which may adopt memory of the host
            copy.set(source)
        stream.synchronize()  # other streams may read it from now on
        memory = cupy.cuda.UnownedMemory(copy.data.ptr, copy.nbytes, self._model_memory.lend(copy), self.index)
        return cupy.ndarray(copy.shape, copy.dtype, cupy.cuda.MemoryPointer(memory, 0))

    def empty(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> Any:
        array = self._cupy.empty(shape, dtype)
        if self._recorder.recording is not None:
            self._recorder.recording.made(array)
        return array

    def kernel(self, file: str, name: str, registers: int) -> CudaKernel:
        found = self._kernels.get((file, name))
        if found is None:
            self._refuse_capture(f"compiling {name}")
            code = self._compile(file, name, registers)
            module = self._load(code.cubin)
            # If threads load it at once, all use the first one: replacing it could unload what queued work uses.
            kernel = CudaKernel(name, module.get_function(code.symbol), self._recorder)
            found = self._kernels.setdefault((file, name), kernel)
        return found

    def _load(self, cubin: bytes) -> Any:
        module = self._cupy.cuda.Module()
        try:
            module.load(cubin)
        except self._cupy.cuda.driver.CUDADriverError as error:
            compiler = ".".join(map(str, nvrtc.version()))
            served = self._cupy.cuda.runtime.driverGetVersion()
            raise DeviceError(
                f"the driver, which serves CUDA {served // 1000}.{served % 1000 // 10}, does not load what NVRTC "
                f"{compiler} compiled ({error}); update the driver, or pip install 'gpuqs[cuda12]' and let "
                "LD_LIBRARY_PATH name no newer NVRTC"
            ) from error
        return module

    def _compile(self, file: str, name: str, registers: int) -> MachineCode:
        """The kernel's machine code: from the cache on disk, or from NVRTC with options of our own (see `nvrtc`)."""
        architecture = nvrtc.architecture(self.attributes.compute_capability)
        source = sources.source(file)
        options = sources.compile_options(architecture, registers)

        def compile_kernel() -> MachineCode:
            with nvrtc.Program(source, file, [name], options) as program:
                return MachineCode(program.symbol(name), program.read("CUBIN"))

        return cached((nvrtc.version(), options, name, source), compile_kernel)

    def pinned(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> np.ndarray:
        import cupyx

        memory: np.ndarray = cupyx.empty_pinned(shape, dtype)
        return memory

    @contextlib.contextmanager
    def lend_streams(self, n: int) -> Iterator[list[Any]]:
        self._refuse_capture("scoring documents of the host")
        with self._lock.held():  # reused by later calls, as CuPy's pool keeps memory per stream
            streams = [self._idle.pop() for _ in range(min(n, len(self._idle)))]
        streams += [self._cupy.cuda.Stream(non_blocking=True) for _ in range(n - len(streams))]
        try:
            yield streams
        finally:
            with self._lock.held():
                self._idle += streams

    def to_host(self, array: Any) -> np.ndarray:
        self._refuse_capture("copying from the device", "end the capture first")
        copy: np.ndarray = self._cupy.asnumpy(array)  # which waits
        return copy

    def synchronize(self) -> None:
        self._refuse_capture("waiting for the device", "end the capture first")
        self._cupy.cuda.get_current_stream().synchronize()

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        nvtx = self._cupy.cuda.nvtx
        nvtx.RangePush(f"gpuqs.{name}")
        try:
            yield
        finally:
            nvtx.RangePop()

    def copy_in(self, target: Any, source: np.ndarray) -> None:
        self._copy(
            target.data.ptr, source.ctypes.data, source.nbytes, self._cupy.cuda.runtime.memcpyHostToDevice
        )

    def copy_out(self, target: np.ndarray, source: Any) -> None:
        self._copy(
            target.ctypes.data, source.data.ptr, target.nbytes, self._cupy.cuda.runtime.memcpyDeviceToHost
        )

    def _copy(self, target: int, source: int, n_bytes: int, kind: int) -> None:
        stream = self._cupy.cuda.get_current_stream()
        self._cupy.cuda.runtime.memcpyAsync(target, source, n_bytes, kind, stream.ptr)

    def adopt(self, X: Any) -> Any:
        if not self.holds(X) and foreign.is_on_device(X) and not foreign.follows_streams(X):
            self._refuse_capture(
                "scoring arrays of libraries other than CuPy and PyTorch", "pass an array of one of these"
            )
        with self._cupy.cuda.Device(self.index):
            array = foreign.adopt(self._cupy, X)
        if array is not None and array.device.id != self.index:
            raise InputError(
                f"X is on cuda:{array.device.id}, the model on cuda:{self.index}; "
                f"use model.to('cuda:{array.device.id}')"
            )
        return array

    def run(self, fill: Callable[[Any, Any], None], documents: Any, out: Any) -> None:
        pipeline.run(self, fill, documents, out)

    def is_ready(self, X: Any) -> bool:
        cuda = self._cupy.cuda
        if not cuda.runtime.getDevice() == self.index == X.data.device_id:
            return False
        if self._recorder.recording is not None or self._is_capturing():
            return False
        if not self._entered.has_context:  # replays call the driver, which needs one in each thread
            cuda.Device(self.index).use()
            self._entered.has_context = True
        return True

    def recorded(self, fill: Callable[[Any, Any], None], documents: Any, out: Any) -> Replay | None:
        most = min(self.scratch_bytes, RECORDED_BYTES)
        recording = Recording(documents, out, self.address, most)
        self._recorder.record(recording, fill, documents, out)
        return Replay(self._cupy, recording, self._model_memory.note) if recording.whole else None

    def own_answer(self, X: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        if self._is_capturing():  # a graph's memory must outlive the tensor
            return None
        if foreign.is_torch(X):
            return foreign.torch_memory(X, shape, dtype)
        return None

    def answer_beside(self, X: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        if not foreign.reads_on(X) or self._is_capturing():
            return self.empty(shape, dtype)
        # Not from CuPy's pool, which would reuse freed memory in the next call; CUDA first waits for the device.
        library = partial(self._outside_of_pool, "an answer to JAX or Numba")
        with self._cupy.cuda.Device(self.index), self._cupy.cuda.using_allocator(library):
            return self.empty(shape, dtype)

    def hand_back(self, array: Any, X: Any) -> Any:
        if not foreign.follows_streams(X):
            self.synchronize()  # what is queued reads X, which may be gone when the caller returns
        return foreign.hand_back(array, X)


def device_of(X: Any) -> CudaDevice:
    """The device that an array lies on; `foreign.is_on_device` must hold for it.

    Raises
    ------
    DeviceError
        As `cuda_device`.
    """
    place = getattr(X, "__dlpack_device__", None)
    if place is not None:
        return cuda_device(int(place()[1]))
    address, _ = X.__cuda_array_interface__["data"]
    if not address:  # no elements
        return cuda_device()
    # `cupy.asarray` would wait for the array's stream.
    return cuda_device(int(_import_cupy().cuda.runtime.pointerGetAttributes(address).device))
