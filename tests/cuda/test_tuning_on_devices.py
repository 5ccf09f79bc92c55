"""Model.tune on the emulated device, with a scripted clock: what wins, what calls use, where a plan applies."""

from __future__ import annotations

import copy
import pickle
import shutil
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulation.device import RTX3090, EmulatedDevice, ForeignArray
from emulation.memory import to_host
from emulation.streams import SCHEDULES
from forests import probing_documents, random_forest

import gpuqs
from gpuqs import chunks
from gpuqs.cpu_fallback import machine
from gpuqs.engines import ENGINES
from gpuqs.engines.gpu.engine import GpuEngine
from gpuqs.errors import DeviceError, GpuqsError, InputError
from gpuqs.model import Model
from gpuqs.tuning.machine import processor
from gpuqs.tuning.plan import Candidate, Plan, Tuned, from_json, to_json
from gpuqs.tuning.search import Clock

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation needs g++")

RNG = np.random.default_rng(41)
FOREST = random_forest(RNG, n_trees=8, max_leaves=12, n_features=8)
ROWS = probing_documents(RNG, FOREST, 60)
WANT = Model(FOREST).predict(ROWS, "raw")
NAME = RTX3090.name
WALK, SLICES = "walk_gpu", "bitslice_gpu"

#: Seconds of the host and of the device for a call. Reading the clock before the device is done misses the latter.
FAST, SLOW = (2e-3, 1e-3), (1e-4, 8e-3)


class Timed:
    """Engines of an emulated device whose calls advance a clock: when they are queued, and when they are run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, device: EmulatedDevice, **ways: tuple[float, float]) -> None:
        self.time, self.scored, self._device = 0.0, list[str](), device
        for name, seconds in ways.items():
            monkeypatch.setattr(ENGINES[name], "score", self._timed(name, ENGINES[name].score, *seconds))
        monkeypatch.setattr("gpuqs.tune.Clock", lambda budget: Clock(budget, lambda: self.time))

    def _timed(self, name: str, score: Callable[..., None], queueing: float, running: float) -> Callable[..., None]:
        def run() -> None:
            self.time += running

        def timed(*arguments: Any, **named: Any) -> None:
            score(*arguments, **named)
            self.scored.append(name)
            self.time += queueing
            self._device.pool.run_later("a clock", [], run)

        return timed


@pytest.fixture
def device() -> EmulatedDevice:
    return EmulatedDevice()


def timed(monkeypatch: pytest.MonkeyPatch, device: EmulatedDevice, fast: str) -> Timed:
    return Timed(monkeypatch, device, **{WALK: SLOW, SLICES: SLOW, "qs_gpu": (0.0, 0.0), fast: FAST})


def plan_of(*engines: str, at: tuple[int, ...] = (1, 40), **where: Any) -> Plan:
    """A made-up plan for the emulated device."""
    default = Candidate(WALK, (), 1, 4.0, 3.0)
    sizes = tuple(Tuned(n, 0, 1, (Candidate(e, (), 1, 2.0, 1.5), default)) for n, e in zip(at, engines, strict=True))
    return replace(Plan("0", NAME, "cuda", True, sizes), **where)


OF_HOST = {"processor": processor(), "isa": machine().isa, "compiled": machine().compiles}


# -- what is measured ------------------------------------------------------------------------------


@pytest.mark.parametrize("on_device", [True, False])
@pytest.mark.parametrize("fast", [WALK, SLICES])
def test_the_fastest_by_the_clock_scores_from_then_on(
    monkeypatch: pytest.MonkeyPatch, device: EmulatedDevice, fast: str, on_device: bool
) -> None:
    model, X = Model(FOREST).to(device), device.from_host(ROWS) if on_device else ROWS
    np.testing.assert_array_equal(to_host(model.predict(X, "raw")), WANT)
    world = timed(monkeypatch, device, fast)
    plan = model.tune(X, 0.3, batch_sizes=[1, 60])
    assert model.plan is plan and (plan.processor, plan.isa, plan.compiled) == (NAME, "cuda", True)
    assert set(world.scored) == {WALK, SLICES}  # not qs_gpu, whose exact sums have another order
    for tuned in plan.sizes:
        assert tuned.best.engine == fast == model.engine_for(tuned.n_documents)
        us = {c.engine: c.measured for c in tuned.candidates}
        assert us == {fast: pytest.approx(3e3), ({WALK, SLICES} - {fast}).pop(): pytest.approx(8.1e3)}
        assert tuned.candidates[tuned.default].engine == Model(FOREST).to(device).engine_for(tuned.n_documents)
        world.scored.clear()
        got = model.predict(X[: tuned.n_documents], "raw")
        np.testing.assert_array_equal(to_host(got), WANT[: tuned.n_documents])
        assert world.scored == [fast]
        said = str(model.explain(tuned.n_documents))
        assert f"{tuned.n_documents} documents: {fast} (<" in said and f"by its plan: {fast})" in said
        assert f"     3,000.0   {fast}" in said and "1 thread" not in said


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("given", ["ours", "theirs", "host"])
def test_tuning_on_a_stream_of_the_callers(monkeypatch: pytest.MonkeyPatch, schedule: str, given: str) -> None:
    """X is written just before, and overwritten just after, on the stream of its library."""
    device = EmulatedDevice(schedule=schedule)
    timed(monkeypatch, device, SLICES)
    model, ours, theirs = Model(FOREST).to(device), device.stream(), device.stream()
    with theirs if given == "theirs" else ours:
        array = device.from_host(np.zeros_like(ROWS))
        array[...] = device.from_host(ROWS)
    X = {"ours": array, "theirs": ForeignArray(array, theirs), "host": ROWS}[given]
    with ours:
        plan = model.tune(X, 0.1, batch_sizes=[40])
        assert plan.sizes[0].best.engine == SLICES
    with theirs:
        array[...] = array + 1.0
    with ours:
        np.testing.assert_array_equal(model.predict(ROWS, "raw"), WANT)
    device.wait()


def test_predict_waits_for_nothing(monkeypatch: pytest.MonkeyPatch, device: EmulatedDevice) -> None:
    timed(monkeypatch, device, SLICES)
    with device.stream() as stream:
        model, X = Model(FOREST).to(device), device.from_host(ROWS)
        model.tune(X, 0.1, batch_sizes=[60])
        for waits in ("synchronize", "wait", "to_host"):
            monkeypatch.setattr(device, waits, None)
        got = model.predict(X, "raw")
        assert stream.pending
        np.testing.assert_array_equal(to_host(got), WANT)


def test_what_was_queued_before_is_not_measured(monkeypatch: pytest.MonkeyPatch, device: EmulatedDevice) -> None:
    world = timed(monkeypatch, device, SLICES)
    X = device.from_host(ROWS)

    def long() -> None:
        world.time += 0.09

    device.pool.run_later("long work", [], long)
    plan = Model(FOREST).to(device).tune(X, 0.1, batch_sizes=[60])
    assert max(c.measured for c in plan.sizes[0].candidates if c.measured is not None) == pytest.approx(8.1e3)


def test_programs_that_tune_made_are_kept(monkeypatch: pytest.MonkeyPatch, device: EmulatedDevice) -> None:
    timed(monkeypatch, device, SLICES)
    model = Model(FOREST).to(device)
    model.tune(ROWS, 0.1, batch_sizes=[60])
    monkeypatch.setattr(GpuEngine, "prepare", None)  # a call that has to prepare anything fails
    np.testing.assert_array_equal(model.predict(ROWS, "raw"), WANT)


def test_sparse_rows_of_the_host(monkeypatch: pytest.MonkeyPatch, device: EmulatedDevice) -> None:
    sparse = pytest.importorskip("scipy.sparse")
    wide = replace(FOREST, n_features=60, feature=7 * FOREST.feature)
    timed(monkeypatch, device, SLICES)
    rows = np.zeros((60, 60))
    rows[:, : 7 * 8 : 7] = np.nan_to_num(ROWS, posinf=5, neginf=-5)
    model, X = Model(wide).to(device), sparse.csr_matrix(rows)
    assert model.tune(X, 0.1, batch_sizes=[60]).sizes[0].best.engine == SLICES
    monkeypatch.setattr(GpuEngine, "prepare", None)
    np.testing.assert_array_equal(model.predict(X, "raw"), Model(wide).predict(X, "raw"))


def test_other_scores_are_found_out(monkeypatch: pytest.MonkeyPatch, device: EmulatedDevice) -> None:
    score = ENGINES[SLICES].score

    def wrong(program: Any, documents: Any, sums: Any, **named: Any) -> None:
        score(program, documents, sums, **named)
        sums[...] = sums + 1e-9

    monkeypatch.setattr(ENGINES[SLICES], "score", wrong)
    model = Model(FOREST).to(device)
    for X in (ROWS, device.from_host(ROWS)):
        with pytest.raises(GpuqsError, match="bitslice_gpu gives other scores than the default"):
            model.tune(X, 5.0, batch_sizes=[60])
    assert model.plan is None


def test_an_interrupt_leaves_nothing_under_way(monkeypatch: pytest.MonkeyPatch, device: EmulatedDevice) -> None:
    score, queued, done = ENGINES[WALK].score, list[int](), list[int]()

    def interrupted(*arguments: Any, **named: Any) -> None:
        score(*arguments, **named)
        queued.append(1)
        device.pool.run_later("the last", [], lambda: done.append(1))
        if len(queued) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(ENGINES[WALK], "score", interrupted)
    model, X = Model(FOREST).to(device), device.from_host(ROWS)
    with pytest.raises(KeyboardInterrupt):
        model.tune(X, 1.0)
    assert len(done) == len(queued) == 3 and model.plan is None


# -- sizes, budget, arguments ----------------------------------------------------------------------


def test_sizes_budget_and_progress(monkeypatch: pytest.MonkeyPatch, device: EmulatedDevice) -> None:
    world, seen = timed(monkeypatch, device, SLICES), list[tuple[int, int | None]]()
    model = Model(FOREST).to(device)
    plan = model.tune(device.from_host(ROWS), 0.5, progress=lambda done, total: seen.append((done, total)))
    assert [tuned.n_documents for tuned in plan.sizes] == [1, 10, 60]
    assert world.time < 0.6 and seen == sorted(seen) and {total for _, total in seen} == {500} and len(seen) > 5
    many = np.broadcast_to(ROWS[:1], (200_000, 8))
    nothing = model.tune(many, 0)
    assert [tuned.n_documents for tuned in nothing.sizes] == [1, 10, 100, 1000, 10_000, 100_000, 200_000]
    assert all(tuned.best.measured is None for tuned in nothing.sizes)
    np.testing.assert_array_equal(model.predict(ROWS, "raw"), WANT)


def test_rows_of_the_host_are_tuned_as_calls_take_them(
    monkeypatch: pytest.MonkeyPatch, device: EmulatedDevice
) -> None:
    monkeypatch.setattr(chunks, "GPU_CHUNK_BYTES", 30 * 8 * ROWS.shape[1])
    model = Model(FOREST).to(device)
    for X, last in ((ROWS, 30), (device.from_host(ROWS), 60)):
        assert [tuned.n_documents for tuned in model.tune(X, 0).sizes] == [1, 10, last]


def test_wrong_arguments_are_refused(device: EmulatedDevice) -> None:
    model, X = Model(FOREST).to(device), device.from_host(ROWS)
    for problem, error, rows, options in (
        ("budget_s must be", ValueError, X, {"budget_s": -1}),
        ("batch_sizes must be", ValueError, X, {"batch_sizes": [0]}),
        ("batches of 61 need at least that many", InputError, X, {"batch_sizes": [61]}),
        ("X holds no documents", InputError, X[:0], {}),
        ("X has shape", InputError, X[:, :3], {}),
        ("X has dtype", InputError, X.astype(np.complex128), {}),
        ("tune cannot use encoded documents", InputError, Model(FOREST).encode(ROWS), {}),
        ("n_threads", ValueError, X, {"n_threads": 0}),
    ):
        with pytest.raises(error, match=problem):
            model.tune(rows, **{"budget_s": 0, **options})
    assert model.plan is None
    plan = model.tune(X, 0, n_threads=3)  # checked, and not used, as `predict` does
    assert {c.n_threads for tuned in plan.sizes for c in tuned.candidates} == {1}


def test_captured_work(monkeypatch: pytest.MonkeyPatch, device: EmulatedDevice) -> None:
    timed(monkeypatch, device, SLICES)
    with device.stream() as stream:
        model, X = Model(FOREST).to(device), device.from_host(ROWS)
        model.predict(X)
        for rows, budget in ((X, 0), (X, 0.1), (ROWS, 0.1)):
            stream.begin_capture()
            with pytest.raises(DeviceError, match="end the capture first"):
                model.tune(rows, budget)
            assert not stream.captured and model.plan is None
            stream.end_capture()
        model.tune(X, 0.1, batch_sizes=[60])
        out = device.empty(60, WANT.dtype)
        stream.begin_capture()
        model.predict(X, "raw", out=out)
        graph = stream.end_capture()
        graph.launch(stream)
        np.testing.assert_array_equal(to_host(out), WANT)


# -- where a plan counts ---------------------------------------------------------------------------


def test_a_plan_counts_on_such_a_device_alone(tmp_path: Path, device: EmulatedDevice) -> None:
    plan = plan_of(SLICES, SLICES)
    Model(FOREST, plan).to(device).save(tmp_path / "m.gpuqs")
    loaded = gpuqs.load(tmp_path / "m.gpuqs")
    assert loaded.plan == plan == from_json(to_json(plan))
    default = Model(FOREST).to(device).engine_for(1)
    assert default == WALK
    other = EmulatedDevice(attributes=replace(RTX3090, name="another card"))
    for model, engine, why in (
        (loaded, Model(FOREST).engine_for(1), f"it was made on a GPU ({NAME}), and this is the CPU"),
        (loaded.to(device), SLICES, None),
        (loaded.to(EmulatedDevice()), SLICES, None),
        (loaded.to(other), default, f"it was made on another GPU ({NAME})"),
    ):
        explained = model.explain(1)
        assert model.engine_for(1) == explained.engine == engine
        assert (explained.note is None) == (why is None) == (explained.tuned is not None)
        assert why is None or (explained.note == why and why in str(explained))
        np.testing.assert_array_equal(model.predict(ROWS[:1], "raw"), WANT[:1])


def test_documents_of_the_device_go_by_its_plan_on_any_model(
    monkeypatch: pytest.MonkeyPatch, device: EmulatedDevice
) -> None:
    world, other = timed(monkeypatch, device, SLICES), EmulatedDevice(attributes=replace(RTX3090, name="another"))
    model = Model(FOREST, plan_of(SLICES, SLICES))
    for where in ("cpu", device, other, device, "cpu"):
        np.testing.assert_array_equal(model.predict(ROWS[:1], "raw", device=where), WANT[:1])
    assert world.scored == [SLICES, WALK, SLICES]


def test_a_plan_of_the_cpu_is_not_used_on_a_device(device: EmulatedDevice) -> None:
    for engine in ("walk", SLICES):  # tuning never makes the latter plan: a GPU's engine for the CPU
        model = Model(FOREST, plan_of(engine, engine, **OF_HOST)).to(device)
        assert model.engine_for(1) == Model(FOREST).to(device).engine_for(1)
        note = model.explain(1).note
        assert note == f"it was made on the CPU ({processor()}), and this is a GPU"
        np.testing.assert_array_equal(model.predict(ROWS, "raw"), WANT)


def test_each_device_has_its_own_plan(monkeypatch: pytest.MonkeyPatch, device: EmulatedDevice) -> None:
    here = Model(FOREST, plan_of("walk", "walk", **OF_HOST))
    before, there = here.plan, here.to(device)
    world = timed(monkeypatch, device, SLICES)
    plan = there.tune(ROWS, 0.1, batch_sizes=[1])
    assert here.plan is before and here.engine_for(1) == "walk"
    assert here.to(device).plan is plan and here.to(device).engine_for(1) == SLICES
    for again in (pickle.loads(pickle.dumps(there)), copy.copy(there)):
        assert again.plan == plan and again.engine_for(1) == SLICES
    assert there.to("cpu") is here
    assert world.scored


def test_a_model_comes_back_from_a_device(monkeypatch: pytest.MonkeyPatch, device: EmulatedDevice) -> None:
    here, other = Model(FOREST), EmulatedDevice(attributes=replace(RTX3090, name="another"))
    there = here.to(device)
    assert there.to("cpu") is here and here.to(device) is there and there.to(other) is here.to(other)
    np.testing.assert_array_equal(here.predict(there.to("cpu").encode(ROWS), "raw"), WANT)
    gone = weakref.ref(here)
    del here
    assert gone() is None, "what lies on devices does not keep it"
    timed(monkeypatch, device, SLICES)
    there.tune(ROWS, 0.1, batch_sizes=[1])
    back = there.to("cpu")
    assert back.to(device) is there and back is there.to("cpu")
    assert back.engine_for(1) == Model(FOREST).engine_for(1) and "made on a GPU" in str(back.explain(1))
    np.testing.assert_array_equal(back.predict(ROWS, "raw"), WANT)


@pytest.mark.parametrize(
    ("engine", "why"),
    [
        ("qs_gpu", "it names engine 'qs_gpu', whose exact sums may differ in the last bits"),
        ("walk", "it names engine 'walk', which this gpuqs does not have"),
        ("nope", "it names engine 'nope', which this gpuqs does not have"),
    ],
)
def test_a_plan_that_asks_for_what_changes_bits_or_is_not_here(engine: str, why: str, device: EmulatedDevice) -> None:
    model = Model(FOREST, plan_of(engine, SLICES)).to(device)
    assert model.engine_for(1) == WALK and why in str(model.explain(1))
    np.testing.assert_array_equal(model.predict(ROWS, "raw"), WANT)


def test_sizes_near_a_tuned_one_go_by_corrected_predictions(device: EmulatedDevice) -> None:
    """And a tuned size decides for all larger calls only from a million documents on."""
    default = Candidate(WALK, (), 1, 20.0, 900.0)
    sizes = tuple(Tuned(n, 0, 1, (Candidate(SLICES, (), 1, 60.0, 30.0), default)) for n in (40, 10_000))
    model = Model(FOREST, replace(plan_of(SLICES, SLICES), sizes=sizes)).to(device)
    assert [model.engine_for(n) for n in (26, 30, 50, 61, 9_000, 15_000, 15_001, 10**6)] == [
        WALK, SLICES, SLICES, WALK, SLICES, SLICES, WALK, WALK,
    ]  # fmt: skip
    assert "it was tuned for 40, 10,000 documents a call" in str(model.explain(10**6))
    largest = replace(model.plan, sizes=(replace(sizes[1], n_documents=1 << 20),))  # type: ignore[type-var]
    assert Model(FOREST, largest).to(device).engine_for(1 << 30) == SLICES


def test_a_plan_of_a_device_is_printed_without_threads(device: EmulatedDevice) -> None:
    said = str(plan_of(SLICES, WALK))
    assert said.startswith(f"Plan for {NAME} (cuda)\n") and "bitslice_gpu\n" in said and "thread" not in said
