"""CUDA devices through CuPy: memory, kernels, streams, and the arrays of other libraries that lie there.

This module imports without CuPy; `cuda_device` is where a missing package, driver or device is told.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuqs.engines import gpu_kernels
from gpuqs.engines.occupancy import DeviceAttributes
from gpuqs.errors import DeviceError, InputError
from gpuqs.forks import Lock

#: Share of the memory free at first use, and bytes, that one launch's scratch may take.
SCRATCH_SHARE, SCRATCH_BYTES = 4, 1 << 30

#: CUDA's error codes (``cudaError_t``) that say why there is no device.
_INSUFFICIENT_DRIVER, _NO_DEVICE = 35, 100
#: DLPack's device types (``DLDeviceType``) of CUDA memory: plain and managed.
_DLPACK_CUDA = (2, 13)


def cuda_device(device: int | str | None = None) -> CudaDevice:
    """A CUDA device, checked.

    Parameters
    ----------
    device : int or str, optional
        Its number, "cuda:1", or "cuda" (as None): CuPy's current one.

    Raises
    ------
    DeviceError
        CuPy, cuda-python, the driver or the device is missing; says which, and how to get it.
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


@cache
def _device(index: int) -> CudaDevice:
    return CudaDevice(index)


def _parse(device: int | str | None) -> int | None:
    if device is None or device == "cuda":
        return None
    if isinstance(device, str) and device.startswith("cuda:") and device[5:].isdecimal():
        return int(device[5:])
    if isinstance(device, int) and not isinstance(device, bool):
        return device
    raise ValueError(f'device must be a number, "cuda" or "cuda:<number>", not {device!r}')


def _import_cupy() -> Any:
    try:
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
        return runtime.getDeviceCount()
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


def _bindings(name: str) -> Any:
    """A module of cuda-python: "runtime" or "driver"."""
    try:
        return import_module(f"cuda.bindings.{name}")
    except ImportError as error:
        raise DeviceError(
            f"GPU scoring needs cuda-python, which cannot be imported ({error}); install it with "
            "pip install 'gpuqs[cuda13]' (or 'gpuqs[cuda12]' for an older driver)"
        ) from error


def _checked(result: tuple[Any, ...], what: str) -> Any:
    """The value of a call into cuda-python, whose first result is its status."""
    status, *values = result
    if status != 0:
        raise DeviceError(f"{what}: {status.name}; look at nvidia-smi")
    return values[0] if values else None


def read_attribute(index: int, attribute: str) -> int:
    """What a device says of itself; ``attribute`` as in CUDA's ``cudaDevAttr...``."""
    runtime = _bindings("runtime")
    kind = getattr(runtime.cudaDeviceAttr, f"cudaDevAttr{attribute}")
    told = runtime.cudaDeviceGetAttribute(kind, index)
    return int(_checked(told, f"cuda:{index} does not tell its {attribute}"))


def _read_attributes(index: int, name: str) -> DeviceAttributes:
    def read(attribute: str) -> int:
        return read_attribute(index, attribute)

    return DeviceAttributes(
        name=name,
        compute_capability=(read("ComputeCapabilityMajor"), read("ComputeCapabilityMinor")),
        multiprocessors=read("MultiProcessorCount"),
        threads_per_multiprocessor=read("MaxThreadsPerMultiProcessor"),
        blocks_per_multiprocessor=read("MaxBlocksPerMultiprocessor"),
        shared_per_multiprocessor=read("MaxSharedMemoryPerMultiprocessor"),
        shared_per_block=read("MaxSharedMemoryPerBlockOptin"),
        shared_reserved=read("ReservedSharedMemoryPerBlock"),
        l2_bytes=read("L2CacheSize"),
        registers_per_multiprocessor=read("MaxRegistersPerMultiprocessor"),
    )


class CudaDevice:
    """One GPU, as `gpuqs.engines.gpu_device.GpuDevice`; made by `cuda_device`."""

    def __init__(self, index: int) -> None:
        self._cupy = cupy = _import_cupy()
        self.index, self.key = index, ("cuda", index)
        name = cupy.cuda.runtime.getDeviceProperties(index)["name"].decode()
        self.attributes = _read_attributes(index, name)
        with self.active():
            free, _ = cupy.cuda.runtime.memGetInfo()
        self.scratch_bytes = min(free // SCRATCH_SHARE, SCRATCH_BYTES)
        self._kernels: dict[tuple[str, str], Any] = {}
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
        with cuda.Device(self.index):
            if not self._is_capturing():
                yield
                return
            allocate = cuda.get_allocator()

            def allocate_for_good(n_bytes: int) -> Any:
                memory = allocate(n_bytes)
                self._captured.append(memory)
                return memory

            with cuda.using_allocator(allocate_for_good):
                yield

    def _is_capturing(self) -> bool:
        return self._cupy.cuda.get_current_stream().is_capturing()

    def _refuse_capture(self, what: str) -> None:
        """CUDA allows nothing that waits while work is captured, and fails later and elsewhere if it happens."""
        if self._is_capturing():
            raise DeviceError(f"{what} cannot be captured in a CUDA graph; make the same call once before the capture")

    def retain(self, used: Any) -> None:
        if self._is_capturing():
            self._captured.append(used)

    def holds(self, array: Any) -> bool:
        return isinstance(array, self._cupy.ndarray)

    def upload(self, array: np.ndarray) -> Any:
        self._refuse_capture("copying the model to the device")
        copy = self._cupy.asarray(np.ascontiguousarray(array))
        self._cupy.cuda.get_current_stream().synchronize()  # other streams may read it from now on
        return copy

    def empty(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> Any:
        return self._cupy.empty(shape, dtype)

    def kernel(self, file: str, name: str) -> Any:
        found = self._kernels.get((file, name))
        if found is None:
            self._refuse_capture(f"compiling {name}")
            module = self._cupy.RawModule(
                code=gpu_kernels.source(file),
                options=gpu_kernels.compile_options(self.attributes.threads_per_multiprocessor, name),
                name_expressions=(name,),
            )
            found = self._kernels[file, name] = module.get_function(name)
        return found

    def resident_blocks(self, kernel: Any, threads: int, shared: int) -> int:
        """Thread blocks of a kernel that the driver lets run at once on one multiprocessor.

        Parameters
        ----------
        kernel : cupy.RawKernel
            One of `kernel`'s.
        threads : int
            Threads per block.
        shared : int
            Bytes of dynamic shared memory per block.
        """
        driver = _bindings("driver")
        with self.active():
            function = driver.CUfunction(kernel.kernel.ptr)
            counted = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, threads, shared)
        return _checked(counted, f"cuda:{self.index} does not tell the occupancy of {kernel.name}")

    @contextlib.contextmanager
    def profiled(self) -> Iterator[None]:
        """What is queued inside is what a profiler sees that records on request; waits for it."""
        runtime = _bindings("runtime")
        with self.active():
            self.wait()
            _checked(runtime.cudaProfilerStart(), "the profiler does not start")
            try:
                yield
                self.wait()
            finally:
                _checked(runtime.cudaProfilerStop(), "the profiler does not stop")

    def pinned(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> np.ndarray:
        import cupyx

        return cupyx.empty_pinned(shape, dtype)

    @contextlib.contextmanager
    def lend_streams(self, n: int) -> Iterator[list[Any]]:
        self._refuse_capture("scoring documents of the host")
        with self._lock.held():  # kept for the next call: CuPy's memory pool keeps memory by stream
            streams = [self._idle.pop() for _ in range(min(n, len(self._idle)))]
        streams += [self._cupy.cuda.Stream(non_blocking=True) for _ in range(n - len(streams))]
        try:
            yield streams
        finally:
            with self._lock.held():
                self._idle += streams

    def wait(self) -> None:
        with self.active():
            self._refuse_capture("giving back a model that other streams may use")
            self._cupy.cuda.runtime.deviceSynchronize()

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
        cupy = self._cupy
        if isinstance(X, cupy.ndarray):
            array = X
        elif is_on_device(X):
            with self.active():
                array = cupy.from_dlpack(X) if hasattr(X, "__dlpack__") else cupy.asarray(X)
        else:
            return None
        if array.device.id != self.index:
            raise InputError(
                f"X lies on cuda:{array.device.id}, the model on cuda:{self.index}; "
                f"use model.to('cuda:{array.device.id}')"
            )
        return array

    def hand_back(self, array: Any, X: Any) -> Any:
        library = type(X).__module__.partition(".")[0]
        if library == "torch":
            import torch

            return torch.from_dlpack(array)
        if library in ("jax", "jaxlib"):
            import jax

            return jax.dlpack.from_dlpack(array)
        if library == "numba":
            from numba import cuda

            return cuda.as_cuda_array(array)
        return array


def is_on_device(X: Any) -> bool:
    """Whether an array of any library lies in CUDA memory; CuPy need not be there."""
    if isinstance(X, np.ndarray):
        return False
    if hasattr(X, "__cuda_array_interface__"):
        return True
    place = getattr(X, "__dlpack_device__", None)
    return place is not None and place()[0] in _DLPACK_CUDA


def device_of(X: Any) -> CudaDevice:
    """The device that an array for which `is_on_device` holds lies on.

    Raises
    ------
    DeviceError
        As `cuda_device`.
    """
    place = getattr(X, "__dlpack_device__", None)
    if place is not None:
        return cuda_device(int(place()[1]))
    return cuda_device(_import_cupy().asarray(X).device.id)
