"""The host code's waits, streams and buffers: right answers in every order that CUDA may run queued work in."""

from __future__ import annotations

import gc
import shutil
from dataclasses import replace

import numpy as np
import pytest
from agreement import ON_GPU
from emulation.device import RTX3090, EmulatedDevice, ForeignArray
from emulation.memory import to_host
from emulation.streams import SCHEDULES, Stream
from forests import probing_documents, random_forest
from gpu_conformance import expected

from gpuqs.devices.pipeline import run
from gpuqs.engines import ENGINES
from gpuqs.engines.gpu.qs_gpu import QsGpu
from gpuqs.errors import DeviceError
from gpuqs.forest import Forest
from gpuqs.model import Model

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation needs g++")

on_every_engine = pytest.mark.parametrize("engine", ON_GPU)
ORDERS = [(schedule, seed) for schedule in SCHEDULES for seed in range(3 if schedule == "random" else 1)]


@pytest.fixture(params=ORDERS, ids=str)
def device(request: pytest.FixtureRequest) -> EmulatedDevice:
    schedule, seed = request.param
    return EmulatedDevice(schedule=schedule, seed=seed)


def make(n: int = 33, **fields: object) -> tuple[Forest, np.ndarray]:
    rng = np.random.default_rng(30)
    forest = random_forest(rng, **{"n_features": 8, "n_trees": 6, "max_leaves": 12, **fields})
    return forest, probing_documents(rng, forest, n)


@on_every_engine
@pytest.mark.parametrize("rows", [5, 17, 33])
def test_host_documents_in_double_buffers(
    device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch, rows: int, engine: str
) -> None:
    monkeypatch.setattr("gpuqs.devices.pipeline.BUFFER_BYTES", 8 * 8 * rows)
    forest, documents = make()
    placed = ENGINES[engine].prepare(forest, "fast", device=device).forest
    want = expected(forest, documents)
    sums, leaves = np.zeros((33, 1), np.int64), np.zeros((33, forest.n_trees), np.int32)
    for out, fill, right in ((sums, placed.score, want.fast), (leaves, placed.leaves, want.leaves)):
        run(device, fill, documents, out)
        np.testing.assert_array_equal(out, right)
    device.wait()  # nothing is left that uses what was given back


def test_narrow_documents_of_wide_answers_fit_the_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuqs.devices.pipeline.BUFFER_BYTES", 1000)
    device, lent = EmulatedDevice(), []
    lend = device.pinned
    monkeypatch.setattr(device, "pinned", lambda *form: lent.append(lend(*form).nbytes) or lend(*form))
    forest, documents = make(n_features=2, n_trees=50)
    placed = QsGpu().prepare(forest, "fast", device=device).forest
    leaves = np.zeros((33, 50), np.int32)
    run(device, placed.leaves, documents, leaves)
    np.testing.assert_array_equal(leaves, expected(forest, documents).leaves)
    assert max(lent) == 5 * leaves[0].nbytes


@pytest.mark.parametrize("again", [False, True])
def test_an_interrupt_waits_for_the_copies_under_way(
    device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """So does a second interrupt, which comes during that wait."""
    monkeypatch.setattr("gpuqs.devices.pipeline.BUFFER_BYTES", 8 * 8 * 5)
    forest, documents = make()
    placed = QsGpu().prepare(forest, "fast", device=device).forest
    n_calls = 0

    def fill(chunk: object, out: object) -> None:
        nonlocal n_calls
        n_calls += 1
        placed.score(chunk, out)
        if n_calls == 4:
            if again:
                monkeypatch.setattr(Stream, "synchronize", interrupted)
            raise KeyboardInterrupt

    wait = Stream.synchronize

    def interrupted(stream: Stream) -> None:
        monkeypatch.setattr(Stream, "synchronize", wait)
        wait(stream)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(device, fill, documents, np.zeros((33, 1), np.int64))
    gc.collect()
    device.wait()


def test_host_documents_in_many_calls_share_streams_and_memory(
    device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuqs.chunks.GPU_CHUNK_BYTES", 8 * 8 * 20)
    monkeypatch.setattr("gpuqs.devices.pipeline.BUFFER_BYTES", 8 * 8 * 7)
    forest, documents = make(link="sigmoid", n_outputs=2)
    model = Model(forest).to(device)
    want = expected(forest, documents)
    for rows in (slice(None), slice(3, 30), slice(None)):
        np.testing.assert_array_equal(model.predict(documents[rows], "leaf"), want.leaves[rows])
        raw = model.predict(documents[rows], "raw", precision="fast")
        np.testing.assert_array_equal(raw, Model(forest).predict(documents[rows], "raw", precision="fast"))
    device.wait()


@on_every_engine
@pytest.mark.parametrize("output", ["value", "leaf", "class", "per_tree"])
def test_calls_on_several_streams(device: EmulatedDevice, output: str, engine: str) -> None:
    forest, documents = make(link="sigmoid")
    device.scratch_bytes = 1  # chunks: scratch goes from one to the next
    model = Model(forest).to(device)
    batches = [documents[i : i + 9] for i in range(0, 32, 8)]
    want = [Model(forest).to(EmulatedDevice()).predict(batch, output, engine=engine) for batch in batches]
    streams, answers = [device.stream(blocking=i == 3) for i in range(4)], []
    for stream, batch in zip(streams, batches, strict=True):
        with stream:
            X = device.from_host(batch)
            answers.append(model.predict(X, output, engine=engine))
            del X  # its memory belongs to its stream
    for stream, answer, right in zip(streams, answers, want, strict=True):
        with stream:
            np.testing.assert_array_equal(to_host(answer), right)


def test_a_program_that_gives_way_is_not_in_use(device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuqs.programs.PARTS_KEPT", 3)
    monkeypatch.setattr("gpuqs.programs.MAX_PARTS", 3)
    forest, documents = make(n_trees=8)
    model = Model(forest).to(device)
    want = expected(forest, documents).leaves
    scoring, other = device.stream(), device.stream()
    with other:  # the model's memory belongs to this stream
        model.warm_up(trees=slice(0, 2))
    with scoring:
        X = device.from_host(documents)
        first = model.predict(X, "leaf", trees=slice(0, 2))
    with other:
        Y = device.from_host(documents)
        for start in range(1, 6):
            model.predict(Y, "leaf", trees=slice(start, start + 2))
        gc.collect()
    with scoring:
        np.testing.assert_array_equal(to_host(first), want[:, :2])


@pytest.mark.parametrize("times", [1, 4])
@pytest.mark.parametrize("engine", [*ON_GPU, "auto"])
def test_a_model_that_goes_is_not_in_use(device: EmulatedDevice, engine: str, times: int) -> None:
    """Its memory belongs to the models' stream, whichever stream copied it; repeated calls read it, too."""
    forest, documents = make()
    model = Model(forest).to(device)
    want = expected(forest, documents).leaves if engine == "qs_gpu" else Model(forest).predict(documents, "raw")
    asked = {"output": "leaf" if engine == "qs_gpu" else "raw", "engine": engine}
    X = device.from_host(documents)
    model.predict(X, **asked)
    device.queues.synchronize()
    with device.stream() as scoring:
        answers = [model.predict(X, **asked) for _ in range(times)]
    del model
    gc.collect()
    Model(forest).to(device).predict(X, **asked)  # takes its place
    with scoring:
        for answer in answers:
            np.testing.assert_array_equal(to_host(answer), want)


def test_a_part_that_gives_way_before_it_is_launched(
    device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread's call evicts the part that this call has been given but has not launched yet."""
    for name in ("PARTS_KEPT", "MAX_PARTS", "PARTS_NUMBERS"):
        monkeypatch.setattr(f"gpuqs.programs.{name}", 1)
    forest, documents = make()
    model, X = Model(forest).to(device), device.from_host(documents)
    model.predict(X, "leaf", trees=slice(0, 3))
    device.queues.synchronize()
    get = model._programs.get

    def get_and_lose(*asked: object, **more: object) -> object:
        monkeypatch.setattr(model._programs, "get", get)
        program = get(*asked, **more)
        with device.on(device.queues.default):
            model.predict(X, "leaf", trees=slice(3, 6))
        return program

    monkeypatch.setattr(model._programs, "get", get_and_lose)
    with device.stream() as scoring:
        answer = model.predict(X, "leaf", trees=slice(0, 3))
    gc.collect()
    model.predict(X, "leaf", trees=slice(2, 5))
    with scoring:
        np.testing.assert_array_equal(to_host(answer), expected(forest, documents).leaves[:, :3])


@pytest.mark.parametrize("given", ["neither", "X", "out", "both"])
def test_other_libraries_work_comes_before_and_after(device: EmulatedDevice, given: str) -> None:
    """X is written just before the call and overwritten just after it, on its library's own stream."""
    forest, documents = make()
    model, theirs, ours = Model(forest).to(device), device.stream(), device.stream()
    want = expected(forest, documents).leaves
    with ours:
        model.predict(device.from_host(documents), "leaf")
        X, out = device.from_host(np.zeros_like(documents)), device.empty(want.shape, np.int32)
    with theirs:
        fresh, later = (device.from_host(values) for values in (documents, np.full_like(documents, 7.0)))
    foreign_X, foreign_out = given in ("X", "both"), given in ("out", "both")
    with theirs if foreign_X else ours:
        X[...] = fresh
    with ours:
        answer = ForeignArray(out, theirs) if foreign_out else out
        assert model.predict(ForeignArray(X, theirs) if foreign_X else X, "leaf", out=answer) is answer
    with theirs if foreign_X else ours:
        X[...] = later
    with theirs if foreign_out else ours:
        np.testing.assert_array_equal(to_host(out), want)


def test_an_answer_in_another_librarys_stream(device: EmulatedDevice) -> None:
    forest, documents = make()
    model, theirs = Model(forest).to(device), device.stream()
    with theirs:
        X = ForeignArray(device.from_host(documents), theirs)
    with device.stream():
        answer = model.predict(X, "leaf")
    want = expected(forest, documents).leaves
    with theirs:
        np.testing.assert_array_equal(to_host(answer.array), want)
        read, values = [], answer.array.data
        device.pool.run_later("theirs", [answer.array.block], lambda: read.append(np.array_equal(values, want)))
    del answer  # and the next answer takes no memory that theirs still reads
    answer = model.predict(X.array, "leaf")
    device.wait()
    assert read == [True] and np.array_equal(answer.data, want)


def test_what_a_call_that_fails_has_queued_comes_before_another_librarys_work(
    device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory of the answer and of the documents belongs to that library again as soon as the call is over."""
    forest, documents = make()
    model, theirs = Model(forest).to(device), device.stream()
    with theirs:
        X = ForeignArray(device.from_host(documents), theirs)
    run = device.run

    def run_and_fail(*what: object) -> None:
        run(*what)
        raise KeyboardInterrupt

    monkeypatch.setattr(device, "run", run_and_fail)
    with device.stream():
        try:
            model.predict(X, "leaf")
        except KeyboardInterrupt:
            del X
    gc.collect()
    device.wait()


@pytest.mark.parametrize("output", ["raw", "class"])
@pytest.mark.parametrize("on_host", [False, True])
def test_a_stream_that_the_caller_made_the_current_one(device: EmulatedDevice, output: str, on_host: bool) -> None:
    """Made current by ``use``, it stays so after the ``with`` of a model's first copies, and of labels' in mid-call."""
    forest, documents = make(link="softmax", n_outputs=3)
    want = Model(forest).predict(documents, output)
    model, theirs = Model(forest).to(device), device.stream()
    theirs.use()
    X = documents if on_host else device.from_host(np.zeros_like(documents))
    for _ in range(2):
        if not on_host:
            later, values = X.data, documents.copy()
            device.pool.run_later("theirs", [X.block], lambda later=later, values=values: np.copyto(later, values))
        answer = model.predict(X, output)
        assert device.queues.current is theirs
        np.testing.assert_array_equal(answer if on_host else to_host(answer), want)


ASKED = [{"output": "value"}, {"output": "leaf"}, {"output": "class"}, {"output": "per_tree"}]


@on_every_engine
@pytest.mark.parametrize("asked", [*ASKED, {"output": "raw", "precision": "fast"}], ids=str)
def test_a_captured_call_scores_what_its_input_holds(device: EmulatedDevice, asked: dict, engine: str) -> None:
    forest, documents = make(link="sigmoid")
    asked = {**asked, "engine": engine}
    first, second = documents[:20], documents[-20:]
    wanted = [Model(forest).to(EmulatedDevice()).predict(batch, **asked) for batch in (second, first)]
    model = Model(forest).to(device)
    with device.stream() as stream:
        X = device.from_host(first)
        out = model.predict(X, **asked)
        stream.synchronize()
        stream.begin_capture()
        model.predict(X, **asked, out=out)
        graph = stream.end_capture()
        for start in (0, 3, 7):  # what is made meanwhile takes no memory of the graph's
            model.predict(X, "leaf", trees=slice(start % 6, 6), precision=("exact", "fast")[start // 6], engine=engine)
        del model
        gc.collect()
        for batch, want in zip((second, first), wanted, strict=True):
            X[...] = device.from_host(batch)
            graph.launch(stream)
            np.testing.assert_array_equal(to_host(out), want)


def test_a_call_with_few_documents_warms_up_for_many() -> None:
    """Many are scored by another kernel, four per thread block."""
    device = EmulatedDevice(attributes=replace(RTX3090, multiprocessors=1))
    forest, documents = make(100, n_trees=10)
    with device.stream() as stream:
        model, X = Model(forest).to(device), device.from_host(documents)
        few = model.predict(X[:3], engine="qs_gpu")
        out = device.empty(100, few.dtype)
        stream.begin_capture()
        model.predict(X, engine="qs_gpu", out=out)
        graph = stream.end_capture()
        graph.launch(stream)
        np.testing.assert_array_equal(to_host(out)[:3], to_host(few))
    names = [name for file, name in device.launched if file == "update_scores.cu"]
    assert names[-1].endswith("4, 4>") and names[-2].endswith("1, 4>")


def test_bit_slices_of_few_documents_warm_up_for_many() -> None:
    """More documents than a tile holds are scored with two words per lane."""
    device = EmulatedDevice()
    forest, documents = make(1500, n_trees=3)
    with device.stream() as stream:
        model, X = Model(forest).to(device), device.from_host(documents)
        few = model.predict(X[:3], engine="bitslice_gpu")
        out = device.empty(1500, few.dtype)
        stream.begin_capture()
        model.predict(X, engine="bitslice_gpu", out=out)
        graph = stream.end_capture()
        graph.launch(stream)
        np.testing.assert_array_equal(to_host(out)[:3], to_host(few))
    assert device.launched[-2][1] == "steps<2>"


def test_walks_of_many_documents_warm_up_for_few() -> None:
    """Integer sums of few documents are split among thread blocks, and another kernel adds the parts."""
    device = EmulatedDevice(attributes=replace(RTX3090, multiprocessors=32))
    forest, documents = make(40, n_trees=2100, max_leaves=2)
    with device.stream() as stream:
        model, X = Model(forest).to(device), device.from_host(documents)
        many = model.predict(X, engine="walk_gpu", precision="fast")
        out = device.empty(3, many.dtype)
        stream.begin_capture()
        model.predict(X[:3], engine="walk_gpu", precision="fast", out=out)
        graph = stream.end_capture()
        graph.launch(stream)
        np.testing.assert_array_equal(to_host(many)[:3], to_host(out))
    assert device.launched[-2][1] == "add_tree_blocks<i64>"


@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_a_call_that_was_not_made_before_is_not_captured(asked: dict) -> None:
    device = EmulatedDevice()
    forest, documents = make(link="sigmoid", n_trees=10)
    model = Model(forest).to(device)
    with device.stream() as stream:
        X = device.from_host(documents)
        stream.begin_capture()
        with pytest.raises(DeviceError, match="once before the capture"):
            model.predict(X, **asked)
        stream.end_capture()
        want = to_host(model.predict(X, **asked))
        for start in range(7):
            model.predict(X, "leaf", trees=slice(start, start + 1))
        stream.begin_capture()
        for new in ({**asked, "trees": slice(1, 9)}, {"output": "value", "precision": "fast"}):
            with pytest.raises(DeviceError, match="once before the capture"):
                model.predict(X, **new)
        with pytest.raises(DeviceError, match="once before the capture"):
            model.predict(documents, **asked)
        stream.end_capture()
        assert len(model._programs._made) == 8
        np.testing.assert_array_equal(to_host(model.predict(X, **asked)), want)
