"""Calls on a device that are recorded and launched again: right for other documents, wherever they lie."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace

import numpy as np
import pytest
from emulation.device import EmulatedDevice, ForeignArray
from emulation.memory import DeviceArray, to_host
from emulation.streams import SCHEDULES
from forests import probing_documents, random_forest
from gpu_conformance import CASES, OF_BITS, Case, rounded_twice

from gpuqs import repeated_calls
from gpuqs.arrays import coded_rows
from gpuqs.engines import ENGINES
from gpuqs.errors import InputError
from gpuqs.forest import Forest
from gpuqs.model import Model
from gpuqs.schema import Schema
from gpuqs.tuning.plan import Way

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation needs g++")


@pytest.fixture(params=SCHEDULES)
def device(request: pytest.FixtureRequest) -> EmulatedDevice:
    return EmulatedDevice(schedule=request.param)


class Counted:
    """A model whose calls on the general path are counted."""

    def __init__(self, forest: Forest, device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
        self.model, self.planned = Model(forest).to(device), 0
        answer = self.model._calls.answer

        def counting(*asked: object) -> object:
            self.planned += 1
            return answer(*asked)

        monkeypatch.setattr(self.model._calls, "answer", counting)


def bits(array: np.ndarray) -> np.ndarray:
    return array.view(f"u{array.dtype.itemsize}")


@pytest.mark.parametrize("engine", ["bitslice_gpu", "walk_gpu", "qs_gpu"])
@pytest.mark.parametrize("case", [*CASES, *OF_BITS], ids=lambda case: case.name)
def test_every_kind_of_forest(monkeypatch: pytest.MonkeyPatch, case: Case, engine: str) -> None:
    forest, documents = case.make()
    if ENGINES[engine].why_not(forest) is not None:
        pytest.skip(ENGINES[engine].why_not(forest))
    device = EmulatedDevice()
    monkeypatch.setattr("gpuqs.chooser.Chooser.usual", lambda *asked: Way(engine))
    for output, precision in (("raw", "exact"), ("value", "fast")):
        counted = Counted(forest, device, monkeypatch)
        for turn, order in enumerate((1, -1, 1, -1)):
            rows = documents[::order].copy()
            X = device.from_host(rows)
            want = to_host(Model(forest).to(device).predict(X, output, precision=precision))
            got = to_host(counted.model.predict(X, output, precision=precision))
            np.testing.assert_array_equal(bits(got), bits(want))
            repeats = forest.n_trees and len(documents) and documents.dtype.kind == "f"
            assert counted.planned == (min(turn + 1, 2) if repeats else turn + 1)


def make(n: int = 40, **fields: object) -> tuple[Forest, np.ndarray]:
    rng = np.random.default_rng(31)
    forest = random_forest(rng, **{"n_features": 7, "n_trees": 9, "max_leaves": 12, **fields})
    return forest, probing_documents(rng, forest, n)


def first_answer(forest: Forest, device: EmulatedDevice, rows: np.ndarray, **asked: object) -> np.ndarray:
    """The answer of a model that was never called before."""
    X = device.from_host(np.ascontiguousarray(rows))
    return to_host(Model(forest).to(device).predict(X, **{"precision": "fast", **asked}))


@pytest.mark.parametrize("fields", [{}, {"n_outputs": 3, "link": "softmax"}, {"n_outputs": 3, "link": "argmax"},
                                    {"link": "sigmoid", "base_first": False}, {"average": True}], ids=str)  # fmt: skip
@pytest.mark.parametrize("cut", [1, 1 << 20], ids=["chunks", "whole"])
def test_documents_of_any_form(
    device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch, fields: dict, cut: int
) -> None:
    """Strides, types and addresses; each form is recorded separately, even if several lie in the same memory."""
    forest, documents = make(**fields)
    device.scratch_bytes = cut
    counted = Counted(forest, device, monkeypatch)
    forms = (
        np.ascontiguousarray,
        np.asfortranarray,
        lambda x: x[::-1, ::-1],
        lambda x: np.repeat(np.repeat(x, 3, 0), 2, 1)[::3, ::2],
        lambda x: x.astype(np.float32),
        lambda x: x[:1],
        lambda x: np.broadcast_to(x[0, 0], x.shape),  # whose strides do not show the type
        lambda x: np.broadcast_to(x[0, 0].astype(np.float32), x.shape),
    )
    shared = device.from_host(np.concatenate([documents, documents[::-1], documents]))
    for turn in range(4):
        for form in forms:
            rows = form(np.roll(documents, turn, axis=0))
            got = to_host(counted.model.predict(device.from_host(rows), precision="fast"))
            np.testing.assert_array_equal(bits(got), bits(first_answer(forest, device, rows)))
        for start in (40, 0, 80, 17):
            got = to_host(counted.model.predict(shared[start : start + 40], precision="fast"))
            want = first_answer(forest, device, to_host(shared)[start : start + 40])
            np.testing.assert_array_equal(bits(got), bits(want))
    assert counted.planned == 2 * len(forms)


def test_calls_under_way_at_once(device: EmulatedDevice) -> None:
    """On several streams, whose work runs late: each call has its own scratch memory and answer."""
    forest, documents = make()
    model, answers = Model(forest).to(device), []
    streams = [device.stream() for _ in range(3)]
    for turn in range(12):
        with streams[turn % 3]:
            X = device.from_host(np.roll(documents, turn, axis=0))
            answers.append(model.predict(X, "raw", precision="fast"))
            del X
    for turn, answer in enumerate(answers):
        with streams[turn % 3]:
            want = Model(forest).predict(np.roll(documents, turn, axis=0), "raw", precision="fast")
            np.testing.assert_array_equal(to_host(answer), want)


def test_what_is_asked_for_otherwise_is_not_repeated(device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    forest, documents = make(n_trees=30, link="sigmoid")
    counted = Counted(forest, device, monkeypatch)
    X = device.from_host(documents)
    for _ in range(3):
        counted.model.predict(X, precision="fast")
    assert counted.planned == 2
    out = device.empty((40,), np.float64)
    for asked in (
        {"output": "raw"}, {"raw_score": True}, {"output_margin": True}, {"trees": slice(0, 4)}, {"pred_leaf": True},
        {"num_iteration": 3}, {"start_iteration": 2}, {"iteration_range": (1, 5)}, {"output": "class"},
        {"out": out}, {"n_threads": 2}, {"validate_features": True}, {"engine": "walk_gpu"},
    ):  # fmt: skip
        for _ in range(3):
            before = counted.planned
            got = to_host(counted.model.predict(X, precision="fast", **asked))
            want = first_answer(forest, device, documents, **{k: v for k, v in asked.items() if k != "out"})
            np.testing.assert_array_equal(got, want)
            assert counted.planned == before + 1 or asked == {"output": "raw"}
    integers = np.nan_to_num(documents, posinf=3, neginf=-3).clip(-9, 9).astype(np.int32)
    for _ in range(3):
        got = to_host(counted.model.predict(device.from_host(integers), precision="fast"))
        np.testing.assert_array_equal(got, first_answer(forest, device, integers))
    for wrong in (["value"], None, "values"):
        with pytest.raises((TypeError, ValueError)):
            counted.model.predict(X, wrong)


def test_integers_are_rounded_anew(device: EmulatedDevice) -> None:
    """By a kernel of CuPy's, which is not recorded."""
    forest, documents = rounded_twice()
    model = Model(forest).to(device)
    for turn in range(5):
        rows = np.roll(documents, turn, axis=0)
        got = to_host(model.predict(device.from_host(rows), "raw", precision="fast"))
        np.testing.assert_array_equal(got, Model(forest).predict(rows, "raw", precision="fast"))
    assert not model._calls.repeated


def test_what_is_not_recorded(device: EmulatedDevice) -> None:
    """Calls without documents, with an engine by name, and while work is captured."""
    forest, documents = make()
    model, X, stream = Model(forest).to(device), device.from_host(documents), device.stream()
    for _ in range(4):
        assert model.predict(X[:0], "raw").shape == (0,)
        model.predict(X, "raw", engine="qs_gpu")
    assert not model._calls.repeated
    model.predict(X, "raw")
    with stream:
        stream.begin_capture()
        captured = [model.predict(X, "raw") for _ in range(3)]
        graph = stream.end_capture()
        graph.launch(stream)
        want = first_answer(forest, device, documents, output="raw", precision="exact")
        for answer in captured:
            np.testing.assert_array_equal(to_host(answer), want)
    assert not model._calls.repeated


@pytest.mark.parametrize("row", [1, 0], ids=["between", "among"])
def test_an_answer_between_the_documents(device: EmulatedDevice, row: int) -> None:
    """Two rows of one memory are the columns of X, and the row between them is the answer, which later calls must not
    rely on. One of X's own columns may not be the answer, and then nothing is written."""
    forest, documents = make(n_features=2)
    model, memory = Model(forest).to(device), np.zeros((3, 40))
    for turn in range(6):
        memory[::2] = np.roll(documents, turn, axis=0).T
        there = device.from_host(memory)
        X, between = DeviceArray(there.block, there[::2].data.T), there[row]
        given = {"out": between} if turn < 3 else {}
        if given and row == 0:
            with pytest.raises(InputError, match="out shares memory with X"):
                model.predict(X, "raw", precision="fast", out=between)
            np.testing.assert_array_equal(to_host(there), memory)
            continue
        got = to_host(model.predict(X, "raw", precision="fast", **given))
        np.testing.assert_array_equal(got, Model(forest).predict(memory[::2].T, "raw", precision="fast"))
        np.testing.assert_array_equal(to_host(between), got if given else memory[row])
    assert model._calls.repeated


def test_a_call_in_the_midst_of_one_that_is_recorded(device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a signal handler or a finalizer may make it: recorded itself, or with an answer of its own."""
    (forest, documents), (other, rows) = make(link="sigmoid"), make(n_trees=20)
    Z, Y, made = device.empty((40,), np.float64), device.from_host(rows), device.empty
    for asked in ({}, {"out": Z}):
        model, inner = Model(forest).to(device), Model(other).to(device)
        inner.predict(Y)
        model.predict(device.from_host(documents), precision="fast")
        calls: list[int] = []

        def empty(*form: object, calls: list = calls, asked: dict = asked, inner: Model = inner) -> DeviceArray:
            calls.append(1)
            if len(calls) == 2:
                inner.predict(Y, **asked)
            return made(*form)

        monkeypatch.setattr(device, "empty", empty)
        model.predict(device.from_host(documents), precision="fast")
        monkeypatch.setattr(device, "empty", made)
        assert len(calls) >= 2 and model._calls.repeated
        Z[...] = 7
        for turn in range(3):
            here = np.roll(documents, turn, axis=0)
            got = to_host(model.predict(device.from_host(here), precision="fast"))
            np.testing.assert_array_equal(bits(got), bits(first_answer(forest, device, here)))
        assert (to_host(Z) == 7).all()
        np.testing.assert_array_equal(to_host(inner.predict(Y)), Model(other).predict(rows))


def test_calls_of_much_memory_are_not_recorded(device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    forest, documents = make()
    device.recorded_bytes = 100
    turned = [np.roll(documents, turn, axis=0) for turn in range(5)]
    want = [Model(forest).predict(here, precision="fast") for here in turned]
    monkeypatch.setattr("gpuqs.chooser.Chooser.usual", lambda *asked: Way("bitslice_gpu"))
    counted = Counted(forest, device, monkeypatch)
    for here, right in zip(turned, want, strict=True):
        np.testing.assert_array_equal(to_host(counted.model.predict(device.from_host(here), precision="fast")), right)
    assert counted.planned == 5 and len(counted.model._calls.repeated._calls) == 1


def test_what_fails_while_it_is_recorded_is_not_recorded_next(
    device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    forest, documents = make()
    model, X = Model(forest).to(device), device.from_host(documents)
    want, recorded = to_host(model.predict(X, "raw")), device.recorded
    monkeypatch.setattr(device, "recorded", lambda *call: (_ for _ in ()).throw(MemoryError))
    with pytest.raises(MemoryError):
        model.predict(X, "raw")
    np.testing.assert_array_equal(to_host(model.predict(X, "raw")), want)
    monkeypatch.setattr(device, "recorded", recorded)
    for _ in range(3):
        np.testing.assert_array_equal(to_host(model.predict(X, "raw")), want)
    assert model._calls.repeated


def test_a_model_of_the_host_with_documents_of_several_devices(
    device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    forest, documents = make()
    here, both = Model(forest), (device, EmulatedDevice())
    monkeypatch.setattr(
        "gpuqs.devices.cuda.device_of", lambda X: next(d for d in both if X.block.pool is d.pool)
    )
    monkeypatch.setattr("gpuqs.placement.is_on_device", lambda X: isinstance(X, DeviceArray))
    planned, answer = [], here._calls.answer
    monkeypatch.setattr(here._calls, "answer", lambda *asked: planned.append(1) or answer(*asked))
    for turn in range(6):
        for one in both:
            rows = np.roll(documents, turn, axis=0)
            got = to_host(here.predict(one.from_host(rows), "raw", precision="fast"))
            np.testing.assert_array_equal(got, Model(forest).predict(rows, "raw", precision="fast"))
    assert len(planned) == 4


@pytest.mark.parametrize("rows", [7, 40])
def test_documents_of_the_host_are_launched_again(
    device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """Whole, or chunk by chunk: all chunks of one size are one form."""
    monkeypatch.setattr("gpuqs.devices.pipeline.BUFFER_BYTES", 8 * 7 * rows)
    forest, documents = make(n_features=7, link="sigmoid")
    model = Model(forest).to(device)
    for turn in range(4):
        here = np.roll(documents, turn, axis=0)
        for out in (None, np.empty(40)):
            got = model.predict(here, precision="fast", out=out)
            np.testing.assert_array_equal(bits(got), bits(first_answer(forest, device, here)))
    assert len(model._calls.repeated._calls) == (1 if rows == 40 else 2)


def test_what_cannot_be_launched_again_takes_the_general_path(
    device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    forest, documents = make()
    counted, X = Counted(forest, device, monkeypatch), device.from_host(documents)
    want = [bits(to_host(counted.model.predict(X, "raw"))) for _ in range(3)]
    assert counted.planned == 2
    tried: list[object] = []
    with monkeypatch.context() as short:
        short.setattr("emulation.device.Replay.__call__", lambda *call: bool(tried.append(call)))
        for _ in range(2):
            np.testing.assert_array_equal(bits(to_host(counted.model.predict(X, "raw"))), want[0])
    assert counted.planned == 4 and len(tried) == 4  # each call tries at once, and again in the general path
    np.testing.assert_array_equal(bits(to_host(counted.model.predict(X, "raw"))), want[0])
    assert counted.planned == 4


def test_calls_that_are_refused_stay_so(device: EmulatedDevice) -> None:
    """Whatever the host's documents are converted to before they get to the device."""
    (forest, _), rng = make(n_features=3, input_dtype="float32"), np.random.default_rng(5)
    categories = Schema(categories=(("7", 7), ("9", 9), None), library="CatBoost")
    coded = Model(replace(forest, ctrs=None, schema=categories)).to(device)
    wide = Model(replace(forest, n_features=40, feature=13 * forest.feature)).to(device)
    rows = rng.integers(0, 9, (40, 40))
    for _ in range(4):
        coded.predict(coded_rows(rows[:, :3].astype(float)))
        wide.predict(rows)
    for model, X, why in (
        (coded, rows[:, :3], "categories are coded on the host"),
        (wide, rows[:, : len(wide.forest.tested)], "not .documents, 40"),
    ):
        for dtype in (np.float64, np.float32):
            with pytest.raises(InputError, match=why):
                model.predict(device.from_host(np.ascontiguousarray(X.astype(dtype))))


def test_what_is_kept_is_the_callers_to_choose(device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state of Python's random numbers is left alone, and a form that is already kept evicts no other."""
    monkeypatch.setattr(repeated_calls, "SEEN", 3)
    forest, documents = make()
    model, X, out = Model(forest).to(device), device.from_host(documents), device.empty((40,), np.float64)
    random.seed(5)
    before = random.getstate()
    for n in (1, 2, 3, 4, 5):
        model.predict(X[:n], "raw")
    assert random.getstate() == before
    seen = set(model._calls.repeated._seen)
    assert len(seen) == 3
    n = next(iter(seen))[2][0]
    for _ in range(3):
        model.predict(X[:n], "raw", out=out[:n])
    assert set(model._calls.repeated._seen) == seen


def test_a_call_that_is_launched_again_in_the_midst_of_one_that_is_recorded(
    device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer is not the other's scratch memory."""
    (forest, documents), (other, rows) = make(link="sigmoid"), make(n_trees=20)
    model, inner, Y, made = Model(forest).to(device), Model(other).to(device), device.from_host(rows), device.empty
    for _ in range(3):
        inner.predict(Y)
    model.predict(device.from_host(documents), precision="fast")
    calls: list[int] = []

    def empty(*form: object) -> DeviceArray:
        calls.append(1)
        if len(calls) == 2:
            inner.predict(Y)
        return made(*form)

    monkeypatch.setattr(device, "empty", empty)
    model.predict(device.from_host(documents), precision="fast")
    monkeypatch.setattr(device, "empty", made)
    both = model, recorded_alone(forest, device, documents)
    (again, *_), (alone, *_) = (next(iter(one._calls.repeated._calls.values())) for one in both)
    assert again.scratch_bytes == alone.scratch_bytes


def recorded_alone(forest: Forest, device: EmulatedDevice, documents: np.ndarray) -> Model:
    model = Model(forest).to(device)
    for _ in range(2):
        model.predict(device.from_host(documents), precision="fast")
    return model


@pytest.mark.parametrize(
    ("asked", "told"),
    [({"engine": np.array(["auto", "auto"])}, "engine"), ({"start_iteration": np.zeros(2)}, "start_iteration")],
    ids=["engine", "start_iteration"],
)
def test_errors_are_those_of_first_calls(device: EmulatedDevice, asked: dict, told: str) -> None:
    forest, documents = make()
    model, X = Model(forest).to(device), device.from_host(documents)
    said = []
    for _ in range(2):
        with pytest.raises((TypeError, ValueError), match=told) as error:
            model.predict(X, **asked)
        said.append(str(error.value))
        for _ in range(3):
            model.predict(X)
    assert said[0] == said[1]


def test_other_libraries_arrays_are_launched_again_too(device: EmulatedDevice) -> None:
    forest, documents = make()
    model, stream = Model(forest).to(device), device.stream()
    for turn in range(4):
        rows = np.roll(documents, turn, axis=0)
        with stream:
            X = ForeignArray(device.from_host(rows), stream)
        answer = model.predict(X, "raw", precision="fast")
        assert isinstance(answer, ForeignArray)
        with stream:
            got = to_host(answer.array)
        np.testing.assert_array_equal(got, Model(forest).predict(rows, "raw", precision="fast"))


def test_answers_to_libraries_without_memory_of_their_own_are_theirs(
    device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for JAX and Numba, whose work is waited for: answers are the device's memory, handed back to the library."""
    forest, documents = make()
    want, handed = Model(forest).predict(documents, "raw"), []
    hand_back = device.hand_back
    monkeypatch.setattr(device, "own_answer", lambda *asked: None)
    monkeypatch.setattr(device, "hand_back", lambda array, X: handed.append(type(X)) or hand_back(array, X))
    model = Model(forest).to(device)
    for output in ("raw", "leaf"):
        X = ForeignArray(device.from_host(documents), device.queues.default)
        answer = model.predict(X, output)
        assert type(answer) is handed.pop() is ForeignArray and handed == []
        if output == "raw":
            np.testing.assert_array_equal(to_host(answer.array), want)


def test_a_captured_call_is_not_launched_from_what_was_recorded(device: EmulatedDevice) -> None:
    """Graphs keep the memory that they use; a repeated call's scratch goes back."""
    forest, documents = make()
    model, stream = Model(forest).to(device), device.stream()
    X, out = device.from_host(documents), device.empty((40,), np.float64)
    for _ in range(3):
        model.predict(X, "raw", precision="fast")
    with stream:
        stream.begin_capture()
        answer = model.predict(X, "raw", precision="fast")
        model.predict(X, "raw", precision="fast", out=out)
        graph = stream.end_capture()
        more = device.from_host(documents[::-1].copy())
        want = Model(forest).predict(documents[::-1].copy(), "raw", precision="fast")
        X[...] = more
        graph.launch(stream)
        for got in (answer, out):
            np.testing.assert_array_equal(to_host(got), want)


def test_tuned_models_and_copies_record_anew(device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    forest, documents = make()
    model, X = Model(forest).to(device), device.from_host(documents)
    for _ in range(3):
        model.predict(X, "raw")
    before = model._calls.repeated
    assert before
    monkeypatch.setattr("gpuqs.tune.tune", lambda *asked: None)
    model.tune(X)
    assert not model._calls.repeated and model._calls.repeated is not before
    assert not Model(replace(forest))._calls.repeated


def test_few_forms_are_kept(device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated_calls, "KEPT", 3)
    monkeypatch.setattr(repeated_calls, "SEEN", 5)
    forest, documents = make()
    model = Model(forest).to(device)
    for n in range(1, 12):
        for _ in range(2):
            X = device.from_host(documents[:n])
            assert isinstance(model.predict(X, "raw"), DeviceArray)
    assert len(model._calls.repeated._calls) == 3 and len(model._calls.repeated._seen) <= 5
