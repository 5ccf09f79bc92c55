"""CUDA devices as gpuqs sees them, as far as that shows with no GPU: CuPy's allocators, cuda-python's answers."""

from __future__ import annotations

import pickle
import sys
from types import SimpleNamespace

import pytest
from made_up_device import made_up_device

from gpuqs.devices import cuda
from gpuqs.devices.cuda import CudaKernel, cuda_device, read_attribute
from gpuqs.errors import DeviceError

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
    kernel = CudaKernel("update_scores<...>", SimpleNamespace(ptr=4096))
    answer: tuple = (bindings.CUresult.CUDA_SUCCESS, 12)
    assert made_up_device().resident_blocks(kernel, 256, 9000) == 12
    assert asked == [(bindings.CUfunction, 4096, 256, 9000)]
    answer = (bindings.CUresult.CUDA_ERROR_INVALID_VALUE, None)
    with pytest.raises(DeviceError, match=r"occupancy of update_scores.*CUDA_ERROR_INVALID_VALUE"):
        made_up_device().resident_blocks(kernel, 256, 9000)


def test_a_kernel_may_have_more_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    bindings = pytest.importorskip("cuda.bindings.driver")
    kernel, bytes_of = CudaKernel("update_scores<...>", SimpleNamespace(ptr=4096)), {}
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

    CudaKernel("transpose<...>", function)((2, 3), (32, 8), (1,), shared_mem=64)
    assert launched == [(((2, 3), (32, 8), (1,)), {"shared_mem": 64})]


@pytest.mark.skipif(HAS_GPU, reason="there is a GPU")
def test_what_cuda_python_says_without_a_driver() -> None:
    pytest.importorskip("cuda.bindings.runtime")
    with pytest.raises(DeviceError, match="cuda:0 does not tell its L2CacheSize: cudaError"):
        read_attribute(0, "L2CacheSize")
    with pytest.raises(DeviceError, match="the profiler does not start: cudaError"), made_up_device().profiled():
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
