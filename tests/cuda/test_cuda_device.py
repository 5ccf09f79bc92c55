"""`CudaDevice` as far as it can be tested without a GPU: CuPy's allocators, cuda-python's answers."""

from __future__ import annotations

import pickle
import sys
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from driver import profiled, resident_blocks
from emulated_cupy import Runtime, lazy_device
from made_up_device import CudaError, MadeUpModule, made_up_device

from gpuqs.devices import cuda
from gpuqs.devices.cuda import cuda_device
from gpuqs.devices.cuda_attributes import read_attribute
from gpuqs.devices.cuda_kernel import CudaKernel
from gpuqs.devices.kernel_cache import MachineCode
from gpuqs.devices.recording import Recorder
from gpuqs.errors import DeviceError

try:
    cuda_device()
    HAS_GPU = True
except DeviceError:
    HAS_GPU = False


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
    with pytest.raises(DeviceError, match=r"cannot have 1,048,576 bytes of shared memory: CUDA_ERROR_INVALID_VALUE"):
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
    with pytest.raises(DeviceError, match="cuda:0 does not report its L2CacheSize: cudaError"):
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


def test_an_upload_is_complete_when_it_returns() -> None:
    device, cupy = lazy_device()
    for values in (np.arange(6.0).reshape(2, 3), np.arange(6.0).reshape(2, 3).T):
        with cupy.cuda.Stream(non_blocking=True):
            copy = device.upload(values)
        np.testing.assert_array_equal(copy.values, values)


def test_a_copy_goes_back_when_queued_work_has_read_it() -> None:
    device, cupy = lazy_device()
    with device.active():
        copy = device.upload(np.arange(6.0))
    read: list[float] = []

    def read_and(fail: bool, values: np.ndarray = copy.values) -> None:
        with cupy.cuda.Stream(non_blocking=True), device.active(), device.active():
            cupy.queues.current.queue(lambda: read.append(values.sum()))
            if fail:
                raise KeyboardInterrupt

    read_and(fail=False)
    with pytest.raises(KeyboardInterrupt):
        read_and(fail=True)
    gone = weakref.ref(copy.data.mem)
    del copy
    assert gone() is None and read == []
    device.upload(np.arange(3.0))  # may get the same memory
    assert read == [15.0, 15.0]


def test_what_a_call_has_used_stays_until_the_call_is_noted() -> None:
    device, cupy = lazy_device()
    copy, read = device.upload(np.arange(6.0)), []
    gone = weakref.ref(copy.data.mem)
    with cupy.cuda.Stream(non_blocking=True), device.active():
        with device.active():
            device.retain(copy)
            cupy.queues.current.queue(lambda values=copy.values: read.append(values.sum()))
            del copy
            assert gone() is not None
        assert gone() is None and read == []
        device.upload(np.arange(3.0))
        assert read == [15.0]


def test_a_stream_that_the_caller_uses_stays_the_current_one() -> None:
    """CuPy's ``use`` and ``with`` record the current stream separately."""
    device, cupy = lazy_device()
    copy, read = device.upload(np.arange(6.0)), []
    theirs = cupy.cuda.Stream(non_blocking=True)
    theirs.use()
    with device.active():
        theirs.stream.queue(lambda values=copy.values: read.append(values.sum()))
        device.upload(np.arange(3.0))
        with device.lend_streams(1) as (lane,), device.on(lane):
            assert cupy.cuda.get_current_stream() is lane
        with pytest.raises(KeyboardInterrupt), device.on(lane):
            raise KeyboardInterrupt
        assert cupy.cuda.get_current_stream() is theirs
    del copy
    cupy.queues.default.use()
    device.upload(np.arange(3.0))
    assert read == [15.0]


def test_a_call_is_noted_on_the_stream_on_which_it_began() -> None:
    device, cupy = lazy_device()
    copy, read = device.upload(np.arange(6.0)), []
    with cupy.cuda.Stream(non_blocking=True), device.active():
        cupy.queues.current.queue(lambda values=copy.values: read.append(values.sum()))
        cupy.cuda.Stream(non_blocking=True).use()
    del copy
    device.upload(np.arange(3.0))
    assert read == [15.0]


def test_adopting_is_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    device, _ = lazy_device()
    noted: list[object] = []
    monkeypatch.setattr(device._model_memory, "note", noted.append)
    monkeypatch.setattr(cuda.foreign, "adopt", lambda cupy, X: None)
    device.adopt("X")
    assert noted == []


def test_a_copy_does_not_wait_for_the_default_stream() -> None:
    device, cupy = lazy_device()
    notes: list[str] = []
    cupy.queues.default.queue(lambda: notes.append("work that reads no model"))
    device.upload(np.arange(3.0))
    assert notes == []


def test_threads_that_ask_for_a_device_at_once_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    class Asked:
        def __init__(self, index: int) -> None:
            if not made:  # as if another thread asked while this one is made
                made.append(self)
                made.append(cuda._device(index))

    monkeypatch.setattr(cuda, "CudaDevice", Asked)
    monkeypatch.setattr(cuda, "_devices", {})
    assert cuda._device(3) is made[1] is cuda._device(3)


def test_what_a_captured_graph_uses_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    (device, cupy), runtime = lazy_device(), Runtime()
    monkeypatch.setattr(cuda, "bindings", {"runtime": runtime}.__getitem__)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        with device.active():
            assert cupy.allocators == [] and runtime.mode == 0
            device.retain("a forest that is not captured")
        stream.stream.begin_capture()
        with device.active():
            assert runtime.mode == 2  # else a capture in another mode than CuPy's would forbid allocating
            memory = cupy.allocators[-1](512)
            device.retain("a forest")
        assert cupy.allocators == [] and runtime.mode == 0
    assert len(memory.mem.bytes) == 512  # not from a pool, whose memory earlier work may still use
    assert device._captured == [memory, "a forest"]


def test_a_capture_for_which_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    device, cupy = lazy_device()

    def refuse(n_bytes: int) -> None:
        raise CudaError(status)

    monkeypatch.setattr(cupy.cuda, "Memory", refuse)
    status = 2
    with pytest.raises(DeviceError, match=r"no 4,096 bytes left for a captured call.*free_all_blocks"):
        device._allocate_for_good(4096)
    status = 700
    with pytest.raises(CudaError):
        device._allocate_for_good(4096)


def test_the_default_stream_while_another_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    device, cupy = lazy_device()
    status = 906

    def refuse() -> bool:
        raise CudaError(status)

    monkeypatch.setattr(cupy.numbered[0], "is_capturing", refuse)
    with pytest.raises(DeviceError, match="default stream may not be used while another stream"), device.active():
        pytest.fail("nothing is queued on it")
    status = 700
    with pytest.raises(CudaError), device.active():
        pytest.fail("there is another error")


def test_a_kernel_that_is_loaded_while_it_is_loaded_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    device, loaded = made_up_device(), []

    def compile_while_another_does(*what: object) -> MachineCode:
        monkeypatch.setattr(device, "_compile", lambda *what: MachineCode("symbol", b"code"))
        loaded.append(device.kernel("finish_scores.cu", "add_tree_blocks<double>", 40))
        return MachineCode("symbol", b"code")

    monkeypatch.setattr(device, "_compile", compile_while_another_does)
    loaded.append(device.kernel("finish_scores.cu", "add_tree_blocks<double>", 40))
    assert loaded[0] is loaded[1] is device.kernel("finish_scores.cu", "add_tree_blocks<double>", 40)


def test_code_that_the_driver_does_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(module: MadeUpModule, cubin: bytes) -> None:
        raise CudaError(200)

    monkeypatch.setattr(MadeUpModule, "load", refuse)
    monkeypatch.setattr(cuda.nvrtc, "version", lambda: (13, 5))
    device = made_up_device()
    monkeypatch.setattr(device, "_compile", lambda *what: MachineCode("symbol", b"code"))
    told = r"serves CUDA 12\.4, does not load what NVRTC 13\.5 compiled \(CUDA says 200\)"
    with pytest.raises(DeviceError, match=told):
        device.kernel("finish_scores.cu", "add_tree_blocks<double>", 40)


def test_copies_are_queued_on_the_current_stream() -> None:
    device, cupy = lazy_device()
    here, back = np.arange(5.0), np.zeros(5)
    there = cupy.empty(5)
    with device.lend_streams(2) as (first, second):
        with first:
            device.copy_in(there, here)
            device.copy_out(back, there)
        second.synchronize()
        assert (back == 0).all() and (there.values.view("u1") == 111).all()
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
        there = cupy.empty(3)
        there.set(np.arange(3.0))
        np.testing.assert_array_equal(device.to_host(there), np.arange(3.0))


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
        ):
            with pytest.raises(DeviceError, match="cannot be captured in a CUDA graph; make the same call once before"):
                call()
        for call in (device.synchronize, lambda: device.to_host(cupy.empty(3))):
            with pytest.raises(DeviceError, match="cannot be captured in a CUDA graph; end the capture first"):
                call()
        stream.stream.end_capture()
        np.testing.assert_array_equal(device.upload(np.zeros(3)).values, np.zeros(3))
