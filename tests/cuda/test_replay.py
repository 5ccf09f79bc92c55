"""Recorded launches as the driver gets them, without a GPU: a stand-in for the driver reads what it is given."""

from __future__ import annotations

import ctypes
import gc
import threading
import weakref
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
    """The part of cuda-python that `replay` calls; reads arguments when it is given them, as CUDA does."""

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
    """Records the first ``n`` of three launches: documents to scratch, scratch to more scratch, that to the answer."""
    noted: list[Recording] = []

    def fill(documents: Array, out: Array) -> None:
        recording = recorder.recording
        assert recording is not None
        noted.append(recording)
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
    recorder.record(Recording(X, ANSWER, address, 1 << 20), fill, X, ANSWER)
    assert recorder.recording is None
    return noted[0]


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


def test_memory_that_is_made_stays_while_a_call_is_recorded() -> None:
    """Otherwise memory made next might get the same address, and two arrays would be taken for one."""
    recording, made = Recording(X, ANSWER, address, 1 << 20), Array(0x7000)
    recording.made(made)
    alive = weakref.ref(made)
    del made
    gc.collect()
    assert alive() is not None
    del recording
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("strides", [(16, 4), (-16, 4), (16, -4), (4, 12), (-4, -12), (0, 4)])
def test_documents_of_any_strides_are_found(strides: tuple[int, int]) -> None:
    documents = Array(0x1000, (3, 4), strides=strides)
    recording = Recording(documents, ANSWER, address, 0)
    for row in range(3):
        for column in range(4):
            offset = row * strides[0] + column * strides[1]
            recording.launched(None, (1,), (1,), (Array(0x1000 + offset, (1,)),), 0)
            assert recording.launches[-1].arguments == (Moving(DOCUMENTS, offset, np.dtype("f4")),)
    outside = [Array(0x1000 + offset) for offset in (-64, 64)]
    recording.launched(None, (1,), (1,), tuple(outside), 0)
    assert list(recording.launches[-1].arguments) == outside


def test_what_lies_between_documents_is_not_theirs() -> None:
    """An answer between the rows of a wider memory, and other arrays made there."""
    documents = Array(0x1000, (3, 4), strides=(4, 400))
    recording = Recording(documents, Array(0x1000 + 200, (3,), "f8"), address, 1 << 20)
    recording.made(Array(0x1000 + 600, (8,)))
    arrays = (Array(0x1000 + 400, (1,)), Array(0x1000 + 208, (1,), "f8"), Array(0x1000 + 604, (1,)))
    recording.launched(None, (1,), (1,), arrays, 0)
    within = [(argument.within, argument.offset) for argument in recording.launches[0].arguments]
    assert within == [(DOCUMENTS, 400), (OUT, 8), (SCRATCH, 4)]


def test_calls_that_take_too_much_memory_are_not_recorded() -> None:
    """And whatever was kept of them is dropped at once."""
    recording = Recording(X, ANSWER, address, 4000)
    made = [Array(0x10000 * i, (500,)) for i in range(1, 4)]
    alive = [weakref.ref(array) for array in made]
    for array in made[:2]:
        recording.made(array)
        recording.launched(None, (1,), (1,), (array,), 0)
    del array
    assert recording.whole == (2048 + 2000 <= 4000) is False
    made.clear()
    gc.collect()
    assert [one() for one in alive[:2]] == [None, None] and recording.launches == []


def test_what_is_recorded_is_one_calls() -> None:
    """A failed call leaves no recording active; launches of other threads and of calls inside it are not recorded."""
    recorder, outer, inner = Recorder(), *(Recording(X, ANSWER, address, 0) for _ in range(2))
    with pytest.raises(KeyboardInterrupt):
        recorder.record(outer, lambda documents, out: (_ for _ in ()).throw(KeyboardInterrupt), X, ANSWER)
    assert recorder.recording is None
    seen: list[Any] = []

    def fill(documents: Array, out: Array) -> None:
        other = threading.Thread(target=lambda: seen.append(recorder.recording))
        other.start()
        other.join()
        with recorder.paused():
            seen.append(recorder.recording)
            recorder.record(inner, lambda documents, out: seen.append(recorder.recording), X, ANSWER)
            seen.append(recorder.recording)
        seen.append(recorder.recording)

    recorder.record(outer, fill, X, ANSWER)
    assert seen == [None, None, inner, None, outer] and recorder.recording is None


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver({11: 4, 12: 4, 13: 3})
    monkeypatch.setattr(replay, "bindings", {"driver": made}.__getitem__)
    return made


def note_nothing(stream: Any) -> None:
    """Stands in for `ModelMemory.note`."""


def expected(documents: int, out: int, scratch: int, stream: int) -> list[tuple[Any, ...]]:
    return [
        (11, (2, 3, 1, 32, 1, 1), 64, [documents, bits(np.int32(-5)), 0x5000, scratch], stream),
        (12, (1, 1, 1, 64, 2, 1), 0, [scratch + 8, scratch + 512, bits(np.float64(0.5)), 1 << 40], stream),
        (13, (9, 1, 4, 8, 1, 1), 1, [scratch + 512, out + 16, bits(np.float32(2))], stream),
    ]


@pytest.mark.parametrize("n", [1, 3])
def test_launches_are_told_where_arrays_lie_now(driver: Driver, n: int) -> None:
    cupy, noted = Cupy(driver), []
    again = Replay(cupy, recorded(n), lambda stream: noted.append((stream.ptr, len(driver.launched))))
    for documents, out, scratch, stream in (
        (0x10000, 0x20000, 0x9000, 7), (0x10000, 0x20000, 0x9000, 8), (0x30000, 0x20000, 0x9000, 7),
        (0x30000, 0x40000, 0x9000, 7), (0x10000, 0x20000, 0xA000, 9),
    ):  # fmt: skip
        cupy.scratch, cupy.stream, driver.launched = scratch, stream, []
        again(Array(documents), Array(out))
        assert driver.launched == expected(documents, out, scratch, stream)[:n]
        assert noted.pop() == (stream, n) and not noted
    assert set(cupy.asked) == {512 + 2560} and len(cupy.asked) == 5
    # Each stream has a graph: those of 8 and 9 are new, that of 7 gets the new documents, then the new answer.
    assert driver.told == (0 if n == 1 else 1 + 1)


def test_nothing_is_launched_where_memory_is_short(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = Cupy(driver)
    again = Replay(cupy, recorded(3), note_nothing)
    assert again(Array(0x10000), Array(0x20000)) is True
    with monkeypatch.context() as short:
        short.setattr(cupy.cuda, "alloc", lambda n: (_ for _ in ()).throw(MemoryError))
        driver.launched = []
        assert again(Array(0x30000), Array(0x40000)) is False and driver.launched == []
    assert again(Array(0x30000), Array(0x40000)) is True
    assert driver.launched == expected(0x30000, 0x40000, 0x9000, 7) and driver.told == 2  # by the graph that was there


def test_each_thread_has_arguments_of_its_own(driver: Driver) -> None:
    """A launch reads them while another thread may write its own."""
    cupy, inside, go = Cupy(driver), threading.Event(), threading.Event()
    again, launch = Replay(cupy, recorded(1), note_nothing), cupy.cuda.driver.launchKernel

    def slowly(*told: int) -> None:
        if threading.current_thread() is not threading.main_thread():
            inside.set()
            go.wait(10)
        launch(*told)

    again(Array(0x50000), Array(0x60000))  # now there are arguments that both might take
    driver.launched = []
    cupy.cuda.driver.launchKernel = slowly
    other = threading.Thread(target=again, args=(Array(0x10000), Array(0x20000)))
    other.start()
    assert inside.wait(10)
    again(Array(0x30000), Array(0x40000))
    go.set()
    other.join()
    assert [told[3][0] for told in driver.launched] == [0x30000, 0x10000]


@pytest.mark.parametrize("fails", ["Create", "AddKernelNode", "Instantiate"])
def test_what_becomes_no_graph_is_launched_one_by_one(driver: Driver, fails: str) -> None:
    again = Replay(Cupy(driver), recorded(3), note_nothing)
    driver.fails = f"cuGraph{fails}"
    for documents in (0x10000, 0x30000):
        driver.launched = []
        again(Array(documents), Array(0x20000))
        assert driver.launched == expected(documents, 0x20000, 0x9000, 7)
        driver.fails = ""
    gc.collect()
    assert driver.gone == [] if fails == "Create" else ["graph"]


@pytest.mark.parametrize("fails", ["Launch", "ExecKernelNodeSetParams"])
def test_what_the_driver_refuses_is_told_and_not_used_again(driver: Driver, fails: str) -> None:
    again = Replay(Cupy(driver), recorded(3), note_nothing)
    again(Array(0x10000), Array(0x20000))
    driver.fails = f"cuGraph{fails}"
    with pytest.raises(DeviceError, match=r"graph.*CUDA_ERROR_INVALID_VALUE"):
        again(Array(0x30000), Array(0x20000))
    driver.fails, driver.launched = "", []
    again(Array(0x10000), Array(0x20000))
    assert driver.launched == expected(0x10000, 0x20000, 0x9000, 7)


def test_each_stream_has_a_graph_of_its_own(driver: Driver) -> None:
    """A graph waits for its last launch, in whatever stream; for streams that come and go, few graphs are kept."""
    cupy = Cupy(driver)
    again, made = Replay(cupy, recorded(3), note_nothing), []
    instantiate = driver.cuGraphInstantiate
    driver.cuGraphInstantiate = lambda *told: made.append(cupy.stream) or instantiate(*told)
    for cupy.stream in (7, 8, 7, 0, 8, 0):
        again(Array(0x10000), Array(0x20000))
    assert made == [7, 8, 0]
    assert [told[-1] for told in driver.launched[::3]] == [7, 8, 7, 1, 8, 1]  # CuPy's 0 is CUDA's legacy stream
    for cupy.stream in range(100, 140):
        again(Array(0x10000), Array(0x20000))
    gc.collect()
    assert len(made) == 43 and driver.gone.count("made") == 43 - replay.STREAMS


def test_threads_that_share_a_stream_keep_their_graphs(driver: Driver) -> None:
    again, made = Replay(Cupy(driver), recorded(3), note_nothing), []
    instantiate, launch = driver.cuGraphInstantiate, driver.cuGraphLaunch
    driver.cuGraphInstantiate = lambda *told: made.append(1) or instantiate(*told)
    together = threading.Barrier(3, timeout=10)

    def meeting(*told: Any) -> tuple[Any, ...]:
        together.wait()
        return launch(*told)

    driver.cuGraphLaunch = meeting
    threads = [
        threading.Thread(target=lambda i=i: [again(Array(0x10000 * i), Array(0x20000)) for _ in range(5)])
        for i in range(1, 4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 3 and len(driver.launched) == 3 * 15


def test_a_forked_child_leaves_its_parents_graphs(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    again = Replay(Cupy(driver), recorded(3), note_nothing)
    again(Array(0x10000), Array(0x20000))
    monkeypatch.setattr(replay.os, "getpid", lambda: -1)
    del again
    gc.collect()
    assert driver.gone == []


def test_graphs_are_given_back(driver: Driver) -> None:
    again = Replay(Cupy(driver), recorded(3), note_nothing)
    again(Array(0x10000), Array(0x20000))
    assert driver.gone == []
    del again
    gc.collect()
    assert sorted(driver.gone) == ["graph", "made"]
