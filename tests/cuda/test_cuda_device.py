"""CUDA devices as gpuqs sees them, as far as that shows with no GPU: CuPy's allocators, cuda-python's answers."""

from __future__ import annotations

import ctypes
import pickle
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from driver import profiled, resident_blocks
from emulation.streams import Queues, Stream
from made_up_device import made_up_device

from gpuqs.devices import cuda
from gpuqs.devices.cuda import CudaDevice, CudaKernel, cuda_device, read_attribute
from gpuqs.devices.recording import Recorder
from gpuqs.errors import DeviceError
from gpuqs.forks import Lock

try:
    cuda_device()
    HAS_GPU = True
except DeviceError:
    HAS_GPU = False


@pytest.mark.parametrize("capturing", [True, False])
def test_what_a_captured_graph_uses_stays(capturing: bool) -> None:
    cupy = pytest.importorskip("cupy")
    device, made = made_up_device(cupy, capturing), []

    def allocate(n_bytes: int) -> object:
        made.append(n_bytes)
        return ("memory", n_bytes)

    with cupy.cuda.using_allocator(allocate):
        with device.active():
            assert cupy.cuda.get_allocator()(512) == ("memory", 512)
            device.retain("a forest")
        assert cupy.cuda.get_allocator()(1024) == ("memory", 1024)
    assert made == [512, 1024]
    assert device._captured == ([("memory", 512), "a forest"] if capturing else [])


def test_the_driver_is_asked_for_the_occupancy(monkeypatch: pytest.MonkeyPatch) -> None:
    bindings = pytest.importorskip("cuda.bindings.driver")
    asked = []

    def count(function, threads: int, shared: int) -> tuple:
        asked.append((type(function), int(function), threads, shared))
        return answer

    monkeypatch.setattr(bindings, "cuOccupancyMaxActiveBlocksPerMultiprocessor", count)
    kernel = CudaKernel("update_scores<...>", SimpleNamespace(ptr=4096), Recorder())
    answer: tuple = (bindings.CUresult.CUDA_SUCCESS, 12)
    assert resident_blocks(made_up_device(), kernel, 256, 9000) == 12
    assert asked == [(bindings.CUfunction, 4096, 256, 9000)]
    answer = (bindings.CUresult.CUDA_ERROR_INVALID_VALUE, None)
    with pytest.raises(DeviceError, match=r"occupancy of update_scores.*CUDA_ERROR_INVALID_VALUE"):
        resident_blocks(made_up_device(), kernel, 256, 9000)


def test_a_kernel_may_have_more_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    bindings = pytest.importorskip("cuda.bindings.driver")
    kernel = CudaKernel("update_scores<...>", SimpleNamespace(ptr=4096), Recorder())
    bytes_of: dict = {}
    success, refused = bindings.CUresult.CUDA_SUCCESS, bindings.CUresult.CUDA_ERROR_INVALID_VALUE

    def allow(function, attribute, value: int) -> tuple:
        bytes_of[int(function), attribute.name] = value
        return (success if value <= 100 << 10 else refused,)

    monkeypatch.setattr(bindings, "cuFuncSetAttribute", allow)
    monkeypatch.setattr(
        bindings, "cuFuncGetAttribute", lambda kind, function: (success, bytes_of[int(function), kind.name])
    )
    kernel.max_dynamic_shared_size_bytes = 64 << 10
    assert bytes_of == {(4096, "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"): 64 << 10}
    assert kernel.max_dynamic_shared_size_bytes == 64 << 10
    with pytest.raises(DeviceError, match="no 1,048,576 bytes of shared memory: CUDA_ERROR_INVALID_VALUE"):
        kernel.max_dynamic_shared_size_bytes = 1 << 20


def test_a_kernel_is_launched_as_cupys_are() -> None:
    launched = []

    def function(*arguments: object, **options: object) -> None:
        launched.append((arguments, options))

    CudaKernel("transpose<...>", function, Recorder())((2, 3), (32, 8), (1,), shared_mem=64)
    assert launched == [(((2, 3), (32, 8), (1,)), {"shared_mem": 64})]


@pytest.mark.skipif(HAS_GPU, reason="there is a GPU")
def test_what_cuda_python_says_without_a_driver() -> None:
    pytest.importorskip("cuda.bindings.runtime")
    with pytest.raises(DeviceError, match="cuda:0 does not tell its L2CacheSize: cudaError"):
        read_attribute(0, "L2CacheSize")
    with pytest.raises(DeviceError, match="the profiler does not start: cudaError"), profiled(made_up_device()):
        pytest.fail("nothing runs where no profiler starts")


def test_without_cuda_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.runtime", None)
    with pytest.raises(DeviceError, match=r"needs cuda-python.*pip install 'gpuqs\[cuda13\]'"):
        read_attribute(0, "L2CacheSize")


def test_a_pickled_device_is_looked_for_where_it_is_unpickled(monkeypatch: pytest.MonkeyPatch) -> None:
    pickled = pickle.dumps(made_up_device())
    monkeypatch.setattr(cuda, "_import_cupy", lambda: SimpleNamespace(cuda=None))
    monkeypatch.setattr(cuda, "_count_devices", lambda cupy: 0)
    with pytest.raises(DeviceError, match="no device cuda:0: this process sees 0"):
        pickle.loads(pickled)


class EmulatedCupy:
    """What `CudaDevice` calls of CuPy for streams, memory and copies, on the emulation's lazy streams."""

    class Stream:
        """A CuPy stream: as the emulation's, by number."""

        def __init__(self, cupy: EmulatedCupy, stream: Stream) -> None:
            self.cupy, self.stream, self.ptr = cupy, stream, len(cupy.streams)
            cupy.streams.append(stream)

        def __enter__(self) -> None:
            self.stream.__enter__()

        def __exit__(self, *exception: object) -> None:
            self.stream.__exit__()

        def synchronize(self) -> None:
            self.stream.synchronize()

        def is_capturing(self) -> bool:
            return self.stream.capturing

    class ndarray:
        """Memory with an address."""

        def __init__(self, values: np.ndarray) -> None:
            self.values, self.data = values, SimpleNamespace(ptr=values.ctypes.data)

    def __init__(self, schedule: str) -> None:
        self.queues = Queues(schedule)
        self.streams: list[Stream] = []
        default = self.Stream(self, self.queues.default)
        self.numbered = [default]
        self.runtime = SimpleNamespace(
            memcpyHostToDevice=1,
            memcpyDeviceToHost=2,
            memcpyAsync=self._copy,
            deviceSynchronize=self.queues.synchronize,
        )
        self.cuda = SimpleNamespace(
            Device=lambda index: nullcontext(),
            Stream=self._stream,
            get_current_stream=lambda: next(s for s in self.numbered if s.stream is self.queues.current),
            get_allocator=lambda: None,
            using_allocator=lambda allocator: nullcontext(),
            runtime=self.runtime,
        )
        self.on_device: list[EmulatedCupy.ndarray] = []

    def _stream(self, non_blocking: bool = False) -> EmulatedCupy.Stream:
        self.numbered.append(self.Stream(self, Stream(self.queues, not non_blocking)))
        return self.numbered[-1]

    def asarray(self, array: np.ndarray) -> EmulatedCupy.ndarray:
        copy = self.empty(array)
        self.queues.current.queue(lambda: np.copyto(copy.values, array))
        return copy

    def asnumpy(self, array: EmulatedCupy.ndarray) -> np.ndarray:
        self.queues.current.synchronize()
        return array.values.copy()

    def empty(self, like: np.ndarray) -> EmulatedCupy.ndarray:
        self.on_device.append(self.ndarray(np.full_like(like, 111, order="C")))
        return self.on_device[-1]

    def _copy(self, target: int, source: int, n_bytes: int, kind: int, stream: int) -> None:
        there = [array.data.ptr for array in self.on_device]
        assert (target in there, source in there) == ((True, False) if kind == 1 else (False, True))
        self.streams[stream].queue(lambda: ctypes.memmove(target, source, n_bytes))


def lazy_device(schedule: str = "late") -> tuple[CudaDevice, EmulatedCupy]:
    device, cupy = made_up_device(), EmulatedCupy(schedule)
    device._cupy, device._idle, device._lock, device._kernels = cupy, [], Lock(), {}
    return device, cupy


def test_an_upload_is_complete_when_it_returns() -> None:
    device, cupy = lazy_device()
    for values in (np.arange(6.0).reshape(2, 3), np.arange(6.0).reshape(2, 3).T):
        with cupy.cuda.Stream(non_blocking=True):
            copy = device.upload(values)
        np.testing.assert_array_equal(copy.values, values)


def test_copies_are_queued_on_the_current_stream() -> None:
    device, cupy = lazy_device()
    here, back = np.arange(5.0), np.zeros(5)
    there = cupy.empty(here)
    with device.lend_streams(2) as (first, second):
        with first:
            device.copy_in(there, here)
            device.copy_out(back, there)
        second.synchronize()
        assert (back == 0).all() and (there.values == 111).all()
        first.synchronize()
    np.testing.assert_array_equal(back, here)


def test_lent_streams_are_the_callers_own_and_stand_aside_from_the_default_one() -> None:
    device, _ = lazy_device()
    with device.lend_streams(2) as ours, device.lend_streams(1) as theirs:
        assert len({stream.ptr for stream in (*ours, *theirs)}) == 3
        assert not any(stream.stream.blocking for stream in (*ours, *theirs))
    with device.lend_streams(2) as again, device.lend_streams(2) as more:
        lent = {stream.ptr for stream in (*again, *more)}
        assert len(lent) == 4 and {stream.ptr for stream in (*ours, *theirs)} < lent


def test_synchronizing_waits_for_the_current_stream_alone() -> None:
    device, cupy = lazy_device()
    notes: list[str] = []
    for name in ("ours", "another's"):
        with cupy.cuda.Stream(non_blocking=True):
            device._cupy.cuda.get_current_stream().stream.queue(lambda name=name: notes.append(name))
            if name == "another's":
                device.synchronize()
    assert notes == ["another's"]


def test_an_array_on_the_host_is_complete() -> None:
    device, cupy = lazy_device()
    with cupy.cuda.Stream(non_blocking=True):
        there = cupy.asarray(np.arange(3.0))
        np.testing.assert_array_equal(device.to_host(there), np.arange(3.0))


def test_waiting_for_the_device_waits_for_every_stream() -> None:
    device, cupy = lazy_device()
    notes: list[int] = []
    for stream in (cupy.cuda.Stream(), cupy.cuda.Stream(non_blocking=True)):
        stream.stream.queue(lambda: notes.append(1))
    device.wait()
    assert notes == [1, 1]


def test_what_waits_is_refused_while_work_is_captured() -> None:
    device, cupy = lazy_device()
    device._kernels["finish_scores.cu", "add_tree_blocks<double>"] = known = object()
    with cupy.cuda.Stream(non_blocking=True):
        stream = cupy.cuda.get_current_stream()
        stream.stream.begin_capture()
        assert device.kernel("finish_scores.cu", "add_tree_blocks<double>", 32) is known
        for call in (
            lambda: device.upload(np.zeros(3)),
            lambda: device.kernel("finish_scores.cu", "add_tree_blocks<float>", 32),
            lambda: device.lend_streams(1).__enter__(),
            device.wait,
        ):
            with pytest.raises(DeviceError, match="cannot be captured in a CUDA graph; make the same call once before"):
                call()
        for call in (device.synchronize, lambda: device.to_host(cupy.empty(np.zeros(3)))):
            with pytest.raises(DeviceError, match="cannot be captured in a CUDA graph; end the capture first"):
                call()
        stream.stream.end_capture()
        np.testing.assert_array_equal(device.upload(np.zeros(3)).values, np.zeros(3))
