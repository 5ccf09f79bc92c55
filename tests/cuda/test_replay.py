"""Recorded launches as the driver is told them: no GPU, and a driver that reads what it is given."""

from __future__ import annotations

import ctypes
import gc
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpuqs.devices import replay
from gpuqs.devices.recording import DOCUMENTS, OUT, SCRATCH, Moving, Recorder, Recording
from gpuqs.devices.replay import Replay
from gpuqs.errors import DeviceError


class Array:
    """Memory at an address, as CuPy's arrays have it."""

    def __init__(self, address: int, shape: tuple[int, ...] = (4,), dtype: str = "f4", strides: tuple | None = None):
        like = np.zeros(shape, dtype)
        self.data, self.shape, self.dtype = SimpleNamespace(ptr=address), shape, like.dtype
        self.strides, self.nbytes = strides or like.strides, like.nbytes


class Kernel:
    def __init__(self, pointer: int) -> None:
        self.pointer = pointer


class Driver:
    """What `replay` calls of cuda-python; reads arguments when it is given them, as CUDA does."""

    class CUDA_KERNEL_NODE_PARAMS(SimpleNamespace):
        pass

    def __init__(self, sizes: dict[int, int]) -> None:
        self.n_arguments, self.launched, self.told = sizes, [], 0
        self.nodes: dict[int, list[Any]] = {}
        self.gone: list[str] = []
        self.fails = ""

    CUfunction = CUstream = staticmethod(int)

    def _status(self, name: str, *values: Any) -> tuple[Any, ...]:
        failed = SimpleNamespace(name="CUDA_ERROR_INVALID_VALUE")
        return (failed,) if self.fails == name else (0, *values)

    def read(self, function: int, places: int) -> list[int]:
        pointers = (ctypes.c_void_p * self.n_arguments[function]).from_address(places)
        return [ctypes.c_uint64.from_address(pointer).value for pointer in pointers]

    def cuGraphCreate(self, flags: int) -> tuple[Any, ...]:
        return self._status("cuGraphCreate", {"nodes": []})

    def cuGraphAddKernelNode(self, graph: dict, before: list | None, n: int, node: Any) -> tuple[Any, ...]:
        last = graph["nodes"][-1:]
        assert n == len(last) and (before or []) == last
        graph["nodes"].append([self._launch(node)])
        return self._status("cuGraphAddKernelNode", graph["nodes"][-1])

    def _launch(self, node: Any) -> tuple[Any, ...]:
        sizes = node.gridDimX, node.gridDimY, node.gridDimZ, node.blockDimX, node.blockDimY, node.blockDimZ
        return node.func, sizes, node.sharedMemBytes, self.read(node.func, node.kernelParams)

    def cuGraphInstantiate(self, graph: dict, flags: int) -> tuple[Any, ...]:
        return self._status("cuGraphInstantiate", graph)

    def cuGraphExecKernelNodeSetParams(self, made: dict, of: list, node: Any) -> tuple[Any, ...]:
        assert any(of is known for known in made["nodes"])
        of[0] = self._launch(node)
        self.told += 1
        return self._status("cuGraphExecKernelNodeSetParams")

    def cuGraphLaunch(self, made: dict, stream: int) -> tuple[Any, ...]:
        self.launched += [(*node[0], stream) for node in made["nodes"]]
        return self._status("cuGraphLaunch")

    def cuGraphExecDestroy(self, made: dict) -> None:
        self.gone.append("made")

    def cuGraphDestroy(self, graph: dict) -> None:
        self.gone.append("graph")


class Cupy:
    """CuPy's part: memory, the current stream, a launch."""

    def __init__(self, driver: Driver) -> None:
        self.scratch, self.stream, self.asked = 0x9000, 7, []

        def launch(function: int, *more: int) -> None:
            *sizes, shared_mem, stream, places, extra = more
            assert extra == 0
            driver.launched.append((function, tuple(sizes), shared_mem, driver.read(function, places), stream))

        self.cuda = SimpleNamespace(
            driver=SimpleNamespace(launchKernel=launch),
            alloc=lambda n: self.asked.append(n) or SimpleNamespace(ptr=self.scratch),
            get_current_stream=lambda: SimpleNamespace(ptr=self.stream),
        )


def address(array: Array) -> int:
    return array.data.ptr


X, ANSWER = Array(0x1000, (3, 4)), Array(0x2000, (3,), "f8")
WEIGHTS = Array(0x5000)


def recorded(n: int) -> Recording:
    """Documents to scratch, scratch to more of it, that to the answer: the first ``n`` of these launches."""
    def fill(documents: Array, out: Array) -> None:
        recording = recorder.recording
        assert recording is not None
        first, second = Array(0x7000, (5,)), Array(0x3000, (600,))
        recording.made(first)
        recording.made(second)
        launches = [
            (Kernel(11), (2, 3), (32,), (documents, np.int32(-5), WEIGHTS, first), 64),
            (Kernel(12), (1,), (64, 2), (Array(first.data.ptr + 8), second, np.float64(0.5), np.int64(1 << 40)), 0),
            (Kernel(13), (np.int64(9), 1, 4), (8,), (second, Array(out.data.ptr + 16, (1,), "f8"), np.float32(2)), 1),
        ]  # fmt: skip
        for launch in launches[:n]:
            recording.launched(*launch)

    recorder = Recorder()
    recording = recorder.record(fill, X, ANSWER, address)
    assert recorder.recording is None
    return recording


def bits(number: np.generic) -> int:
    return int.from_bytes(number.tobytes(), "little")


def test_what_lies_where_is_noted() -> None:
    recording = recorded(3)
    f4, f8 = np.dtype("f4"), np.dtype("f8")
    assert [launch.arguments for launch in recording.launches] == [
        (Moving(DOCUMENTS, 0, f4), np.int32(-5), WEIGHTS, Moving(SCRATCH, 0, f4)),
        (Moving(SCRATCH, 8, f4), Moving(SCRATCH, 512, f4), np.float64(0.5), np.int64(1 << 40)),
        (Moving(SCRATCH, 512, f4), Moving(OUT, 16, f8), np.float32(2)),
    ]
    assert recording.scratch_bytes == 512 + 2560


@pytest.mark.parametrize("strides", [(16, 4), (-16, 4), (16, -4), (4, 12), (-4, -12), (0, 4)])
def test_documents_of_any_strides_are_found(strides: tuple[int, int]) -> None:
    documents = Array(0x1000, (3, 4), strides=strides)
    recording = Recording(documents, ANSWER, address)
    for row in range(3):
        for column in range(4):
            offset = row * strides[0] + column * strides[1]
            recording.launched(None, (1,), (1,), (Array(0x1000 + offset, (1,)),), 0)
            assert recording.launches[-1].arguments == (Moving(DOCUMENTS, offset, np.dtype("f4")),)
    outside = [Array(0x1000 + offset) for offset in (-64, 64)]
    recording.launched(None, (1,), (1,), tuple(outside), 0)
    assert list(recording.launches[-1].arguments) == outside


def test_a_failed_call_leaves_nothing_recording() -> None:
    recorder = Recorder()
    with pytest.raises(KeyboardInterrupt):
        recorder.record(lambda documents, out: (_ for _ in ()).throw(KeyboardInterrupt), X, ANSWER, address)
    assert recorder.recording is None
    seen: list[Any] = []

    def fill(documents: Array, out: Array) -> None:
        other = threading.Thread(target=lambda: seen.append(recorder.recording))
        other.start()
        other.join()

    recorder.record(fill, X, ANSWER, address)
    assert seen == [None]  # another thread's launches are its own


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver({11: 4, 12: 4, 13: 3})
    monkeypatch.setattr(replay, "bindings", {"driver": made}.__getitem__)
    return made


def expected(documents: int, out: int, scratch: int, stream: int) -> list[tuple[Any, ...]]:
    return [
        (11, (2, 3, 1, 32, 1, 1), 64, [documents, bits(np.int32(-5)), 0x5000, scratch], stream),
        (12, (1, 1, 1, 64, 2, 1), 0, [scratch + 8, scratch + 512, bits(np.float64(0.5)), 1 << 40], stream),
        (13, (9, 1, 4, 8, 1, 1), 1, [scratch + 512, out + 16, bits(np.float32(2))], stream),
    ]


@pytest.mark.parametrize("n", [1, 3])
def test_launches_are_told_where_arrays_lie_now(driver: Driver, n: int) -> None:
    cupy = Cupy(driver)
    again = Replay(cupy, recorded(n))
    for documents, out, scratch, stream in (
        (0x10000, 0x20000, 0x9000, 7), (0x10000, 0x20000, 0x9000, 8), (0x30000, 0x20000, 0x9000, 7),
        (0x30000, 0x40000, 0x9000, 7), (0x10000, 0x20000, 0xA000, 9),
    ):  # fmt: skip
        cupy.scratch, cupy.stream, driver.launched = scratch, stream, []
        again(Array(documents), Array(out))
        assert driver.launched == expected(documents, out, scratch, stream)[:n]
    assert set(cupy.asked) == {512 + 2560} and len(cupy.asked) == 5
    assert driver.told == (0 if n == 1 else 0 + 0 + 1 + 1 + 3)


def test_each_thread_has_arguments_of_its_own(driver: Driver) -> None:
    """A launch reads them while another thread may write its own."""
    cupy, inside, go = Cupy(driver), threading.Event(), threading.Event()
    again, launch = Replay(cupy, recorded(1)), cupy.cuda.driver.launchKernel

    def slowly(*told: int) -> None:
        if threading.current_thread() is not threading.main_thread():
            inside.set()
            go.wait(10)
        launch(*told)

    cupy.cuda.driver.launchKernel = slowly
    other = threading.Thread(target=again, args=(Array(0x10000), Array(0x20000)))
    other.start()
    assert inside.wait(10)
    again(Array(0x30000), Array(0x40000))
    go.set()
    other.join()
    assert [told[3][0] for told in driver.launched] == [0x30000, 0x10000]


@pytest.mark.parametrize(
    "fails", ["Create", "AddKernelNode", "Instantiate", "Launch", "ExecKernelNodeSetParams"], ids=lambda name: name
)
def test_what_the_driver_refuses_is_told_and_not_used_again(driver: Driver, fails: str) -> None:
    again = Replay(Cupy(driver), recorded(3))
    if fails == "ExecKernelNodeSetParams":
        again(Array(0x10000), Array(0x20000))
    driver.fails = f"cuGraph{fails}"
    with pytest.raises(DeviceError, match=r"graph.*CUDA_ERROR_INVALID_VALUE"):
        again(Array(0x30000), Array(0x20000))
    driver.fails, driver.launched = "", []
    again(Array(0x10000), Array(0x20000))
    assert driver.launched == expected(0x10000, 0x20000, 0x9000, 7)


def test_graphs_are_given_back(driver: Driver) -> None:
    again = Replay(Cupy(driver), recorded(3))
    again(Array(0x10000), Array(0x20000))
    assert driver.gone == []
    del again
    gc.collect()
    assert driver.gone == ["made", "graph"]
