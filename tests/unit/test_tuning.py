"""Model.tune and its Plan: saved, used on the machine that made it, refused if invalid; scores never change."""

from __future__ import annotations

import copy
import json
import multiprocessing
import pickle
import re
import struct
import threading
import zlib
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from forests import probing_documents, random_forest

import gpuqs
from gpuqs import cpu_fallback, plain_calls
from gpuqs.chooser import Chooser
from gpuqs.cpu_fallback import machine
from gpuqs.devices import HOST
from gpuqs.engines import ENGINES
from gpuqs.errors import InputError, ModelFormatError
from gpuqs.forest import Forest
from gpuqs.formats import native
from gpuqs.model import Model
from gpuqs.threads import threads_of_call
from gpuqs.tuning.loops import candidates, loop_of
from gpuqs.tuning.machine import Hierarchy, hierarchy, processor
from gpuqs.tuning.plan import MAX_CANDIDATES, Candidate, Plan, Tuned, Way, from_json, to_json
from gpuqs.tuning.search import Search

RNG = np.random.default_rng(0)
FOREST = random_forest(RNG, n_trees=60, max_leaves=16)
X = probing_documents(RNG, FOREST, 400)


def plan_of(*engines: tuple[str, tuple[tuple[str, int], ...], int], at: tuple[int, ...] = (1, 100)) -> Plan:
    """A made-up plan for this machine."""
    default = Candidate("vqs", (), 1, 4.0, 3.0)
    sizes = (Tuned(n, 0, 1, (Candidate(*way, 2.0, 1.5), default)) for n, way in zip(at, engines, strict=True))
    return Plan("0", processor(), *machine(), tuple(sizes))


BWQS = ("bwqs", (("tree_block", 7), ("document_block", 9)), 1)
WALK = ("walk", (("tree_block", 3),), 2)
SLICES = ("bitslice", (), 2)  # never the default for one document


def saved(plan: Any, folder: Path, forest: Forest = FOREST) -> Path:
    path = folder / "model.gpuqs"
    native.write(forest, path, plan)
    return path


# -- tune ------------------------------------------------------------------------------------------


def test_tune_gives_a_plan_for_each_size_and_no_other_score() -> None:
    model, want = Model(FOREST), Model(FOREST).predict(X)
    hierarchy()  # measured once, outside of the budget here
    plan = model.tune(X, 5.0)
    assert model.plan is plan and [tuned.n_documents for tuned in plan.sizes] == [1, 10, 100, 400]
    assert (plan.processor, plan.isa, plan.compiled) == (processor(), *machine())
    assert plan.gpuqs == gpuqs.__version__
    for tuned in plan.sizes:
        assert tuned.best.measured is not None and tuned.chosen == 0
        assert model.engine_for(tuned.n_documents) == tuned.best.engine
        assert {c.engine for c in tuned.candidates} <= ENGINES.keys()
        assert tuned.best.n_threads <= cpu_fallback.default_threads()
        for c in tuned.candidates:
            if not c.params and c.n_threads == 1:  # both predicted and measured warm
                assert c.predicted == model._calls.chooser.warm_cost(c.engine, tuned.n_documents, machine())
    for n in (1, 3, 40, 400):
        np.testing.assert_array_equal(model.predict(X[:n]), want[:n])


@pytest.mark.parametrize(
    "rows",
    [
        X[:50].tolist(),
        np.nan_to_num(X[:50]).clip(-9, 9).astype(np.float32),
        scipy.sparse.csr_matrix(np.nan_to_num(X[:50])),
        np.asfortranarray(X),
    ],
    ids=["lists", "float32", "sparse", "columns"],
)
def test_tune_takes_what_predict_takes(rows: Any) -> None:
    model = Model(FOREST)
    plan = model.tune(rows, 0.1, batch_sizes=[20, 5, 5])
    assert [tuned.n_documents for tuned in plan.sizes] == [5, 20]
    np.testing.assert_array_equal(model.predict(rows), Model(FOREST).predict(rows))


@pytest.mark.parametrize("budget", [0, 0.0, 1e-6])
def test_tiny_budgets_give_a_valid_plan(budget: float) -> None:
    model = Model(FOREST)
    plan = model.tune(X, budget)
    assert [tuned.best.engine for tuned in plan.sizes] == [Model(FOREST).engine_for(n) for n in (1, 10, 100, 400)]
    assert from_json(json.loads(json.dumps(to_json(plan)))) == plan


def test_wrong_arguments_are_refused() -> None:
    model = Model(FOREST)
    for budget in ("1", True, None, np.bool_(True)):
        with pytest.raises(ValueError, match="budget_s must be a number of seconds"):
            model.tune(X, budget)  # type: ignore[arg-type]
    for budget in (-1, float("nan"), float("inf"), 1e10):
        with pytest.raises(ValueError, match=r"budget_s must be in \[0, 1,000,000,000\] seconds"):
            model.tune(X, budget)
    for budget in (np.int64(0), np.float32(0), Fraction(0)):
        assert len(Model(FOREST).tune(X, budget).sizes) == 4  # type: ignore[arg-type]
    wrong = ([0], "at least 1"), ([], "1 to 64 sizes"), (["a"], "must be an integer"), (range(1, 99), "64")
    for sizes, problem in ((5, "a sequence of integers"), *wrong):
        with pytest.raises(ValueError, match=problem):
            model.tune(X, 0, batch_sizes=sizes)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="X holds 400 documents; batches of 401 need at least that many"):
        model.tune(X, 0, batch_sizes=[401])
    with pytest.raises(InputError, match="X holds no documents"):
        model.tune(X[:0], 0)
    with pytest.raises(InputError, match="tune cannot use encoded documents"):
        model.tune(model.encode(X), 0)
    with pytest.raises(InputError):
        model.tune(X[:, :3], 0)
    assert model.plan is None


def test_threads_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Model(FOREST).tune(X, 3.0, batch_sizes=[400], n_threads=1)
    assert {c.n_threads for c in plan.sizes[0].candidates} == {1}
    with monkeypatch.context() as wide:
        wide.setattr(cpu_fallback, "default_threads", lambda: 3)
        plan = Model(FOREST).tune(X, 3.0, batch_sizes=[400], n_threads=3)
        assert {c.n_threads for c in plan.sizes[0].candidates} >= {1, 3}
        wide.setattr(cpu_fallback, "default_threads", lambda: 2)  # calls would use no more threads
        plan = Model(FOREST).tune(X, 3.0, batch_sizes=[400], n_threads=3)
        assert {c.n_threads for c in plan.sizes[0].candidates} == {1, 2}
    # A plan with more threads than a call may use takes those available.
    monkeypatch.setattr(cpu_fallback, "default_threads", lambda: 1)
    assert threads_of_call(2) == 1 and threads_of_call(2, 3) == 3


def test_a_model_of_one_leaf_and_of_no_trees() -> None:
    for n_trees in (0, 1):
        forest = random_forest(np.random.default_rng(1), n_trees=n_trees, max_leaves=1)
        model = Model(forest)
        model.tune(X, 0.1)
        np.testing.assert_array_equal(model.predict(X), Model(forest).predict(X))


# -- what a plan does ------------------------------------------------------------------------------


def test_the_plan_is_what_calls_use(monkeypatch: pytest.MonkeyPatch) -> None:
    model, want = Model(FOREST, plan_of(BWQS, WALK, WALK, at=(1, 70, 100))), Model(FOREST).predict(X)
    asked: list[tuple[str, Any]] = []
    get = type(model._programs).get
    monkeypatch.setattr(
        type(model._programs), "get", lambda *a, **k: asked.append((a[1], k.get("params", a[-1]))) or get(*a, **k)
    )
    for n, way in ((1, BWQS), (70, WALK), (100, WALK)):
        assert model.engine_for(n) == way[0]
        np.testing.assert_array_equal(model.predict(X[:n]), want[:n])
        assert asked[-1] == way[:2]
    model.predict(X, engine="vqs")
    assert asked[-1] == ("vqs", ())


def test_a_size_serves_calls_that_are_near_it_by_ratio() -> None:
    def serves(n: int, at: tuple[int, ...]) -> int | None:
        tuned = plan_of(*[WALK] * len(at), at=at).for_batch(n)
        return None if tuned is None else tuned.n_documents

    got = [serves(n, (1, 100, 140, 10_000)) for n in (0, 1, 2, 66, 67, 118, 119, 210, 211, 6_667, 15_001, 10**9)]
    assert got == [1, 1, None, None, 100, 100, 140, 140, None, 10_000, 10_000, 10_000]
    assert [serves(n, (1, 100)) for n in (150, 151, 10**9)] == [100, None, None]


def test_what_is_not_tuned_is_scored_as_without_a_plan() -> None:
    """Calls far larger than a tuned size use as many threads as are worthwhile."""
    threads, default = Model(FOREST, plan_of(WALK, BWQS, at=(1, 2_000))), Model(FOREST)
    chooser, here = threads._calls.chooser, machine()
    assert chooser.way(3_000, HOST, here) == Way(*BWQS)
    assert chooser.way(3_001, HOST, here) == chooser.way(10**6, HOST, here) == Way(*BWQS[:2], None)
    assert chooser.way(30, HOST, here) == default._calls.chooser.way(30, HOST, here)
    assert "it was tuned for 1, 2,000 documents a call" in str(threads.explain(30))


def measured(n: int, chosen: str, default: str, **us: float) -> Plan:
    """A plan that measured engines with default parameters for ``n`` documents, one thread each."""
    names = list(us)
    listed = tuple(Candidate(name, (), 1, 1.0, cost) for name, cost in us.items())
    return Plan("0", processor(), *machine(), (Tuned(n, names.index(chosen), names.index(default), listed),))


@pytest.fixture
def made_up_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Predicted costs: `vqs` 10 us per 8 documents, `rankwalk` 34 us per 32, `bitslice` 48 us per 64; `walk` 4 us per
    document, but 2 us from 26 documents on."""
    steps = {"vqs": (8, 10.0), "rankwalk": (32, 34.0), "bitslice": (64, 48.0)}
    for name, engine in ENGINES.items():
        if engine.device == "cpu":
            each, us = steps.get(name, (1, 100.0))
            cost = lambda forest, n, machine, each=each, us=us: 1.0 + -(-n // each) * us  # noqa: E731
            of_walk = lambda forest, n, machine: 1.0 + n * (4.0 if n < 26 else 2.0)  # noqa: E731
            monkeypatch.setattr(engine, "cost", of_walk if name == "walk" else cost, raising=False)
            monkeypatch.setattr(engine, "cold", lambda forest, n, machine: 0.0, raising=False)
    monkeypatch.setattr("gpuqs.chooser.factor", lambda name, machine: 1.0)


@pytest.mark.usefixtures("made_up_costs")
def test_measured_costs_of_a_size_correct_those_predicted_near_it() -> None:
    here = machine()

    def engines(plan: Plan | None, *sizes: int) -> list[str]:
        return [Model(FOREST, plan)._calls.chooser.way(n, HOST, here).engine for n in sizes]

    assert engines(None, 8, 12, 18, 20, 24, 30, 45) == ["vqs"] * 5 + ["rankwalk", "bitslice"]
    # The best for 30 documents, here a kept default, is not used at sizes where measured others are predicted faster.
    plan = measured(30, "rankwalk", "rankwalk", rankwalk=35.0, vqs=41.0, bitslice=49.0)
    assert engines(plan, 20, 24, 30, 31, 45) == ["vqs", "vqs", "rankwalk", "rankwalk", "bitslice"]
    plan = measured(12, "rankwalk", "vqs", rankwalk=18.0, vqs=22.0)
    assert engines(plan, 8, 12, 18) == ["vqs", "rankwalk", "rankwalk"]
    # Predictions that measurements at the size refuted are not used: vqs takes twice as long.
    plan = measured(64, "bitslice", "bitslice", bitslice=49.0, vqs=162.0)
    assert engines(None, 71, 72) == ["vqs", "vqs"] and engines(plan, 71, 72) == ["bitslice", "bitslice"]
    # A small lead at the size need not hold elsewhere, least of all far away; bitslice was not measured at all.
    assert engines(measured(12, "rankwalk", "vqs", rankwalk=20.5, vqs=22.0), 11, 12, 13) == ["vqs", "rankwalk", "vqs"]
    plan = measured(64, "rankwalk", "bitslice", rankwalk=40.0, bitslice=49.0)
    assert engines(plan, 60, 64, 45) == ["rankwalk", "rankwalk", "bitslice"]
    assert engines(measured(30, "vqs", "vqs", vqs=20.0), 30, 45) == ["vqs", "bitslice"]
    # More documents are not expected to take less time.
    assert engines(measured(25, "walk", "rankwalk", walk=30.0, rankwalk=36.0), 25, 30) == ["walk", "rankwalk"]
    # A candidate that lost to the chosen one in turns does not count as faster, even if it has one lower reading.
    assert engines(measured(40, "bitslice", "bitslice", bitslice=49.0, rankwalk=20.0), 42) == ["bitslice"]
    # A candidate that is unavailable here, or needs too many threads, does not affect the others of its size.
    listed = [("nope", (), 1), ("vqs", (("tau", 7),), 1), ("qs", (), 1 << 20), ("vqs", (), 1), ("rankwalk", (), 1)]
    candidates = [Candidate(*way, 1.0, us) for way, us in zip(listed, (1.0, 1.0, 1.0, 22.0, 18.0), strict=True)]
    plan = replace(plan, sizes=(Tuned(12, 4, 3, tuple(candidates)),))
    assert engines(plan, 8, 12, 18) == ["vqs", "rankwalk", "rankwalk"]


def test_explain_tells_the_threads_that_calls_get(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_fallback, "default_threads", lambda: 3)
    monkeypatch.setattr(cpu_fallback, "effective_threads", lambda asked: asked or 3)
    model = Model(FOREST, plan_of(WALK, BWQS, at=(1, 2_000)))
    assert "by its plan: walk, tree_block 3, 2 threads" in str(model.explain(1))
    bwqs = "by its plan: bwqs, tree_block 7, document_block 9, "
    assert bwqs + "1 thread)" in str(model.explain(3_000))
    assert bwqs + "3 threads)" in str(model.explain(10**6))
    monkeypatch.setattr(cpu_fallback, "default_threads", lambda: 1)
    assert "by its plan: walk, tree_block 3, 1 thread)" in str(model.explain(1))


def test_plain_calls_take_the_plan_too() -> None:
    model, x = Model(FOREST), X[:1].copy()
    want = model.predict(x)  # plain calls have cached a program
    assert model._plain is not None
    before = model._plain.exact, model._plain.fast, model._plain.for_many_calls(("exact", None, 0, 2, None))
    plan = model.tune(X, 0.1, batch_sizes=[1])
    after = model._plain.exact, model._plain.fast, model._plain.for_many_calls(("exact", None, 0, 2, None))
    assert {*after}.isdisjoint({*before, None})
    np.testing.assert_array_equal(model.predict(x), want)
    several = Model(FOREST, plan_of(WALK, at=(1,)))
    assert several._plain is not None and several._plain.exact is not None
    assert np.array_equal(several._plain.exact.values(x), want)
    np.testing.assert_array_equal(several.predict(x), want)
    assert plan.sizes[0].best.n_threads == 1


def test_the_plans_threads_score_larger_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_calls, "MAX_SMALL", 50)
    monkeypatch.setattr(cpu_fallback, "default_threads", lambda: 9)
    got: list[int] = []

    def threads(worth: int) -> int:
        got.append(threads_of_call(worth))
        return got[-1]

    monkeypatch.setattr(plain_calls, "threads_of_call", threads)
    want = Model(FOREST).predict(X, engine="reference")
    for way, n_threads in ((WALK, 2), (BWQS, 1)):
        got.clear()
        np.testing.assert_array_equal(Model(FOREST, plan_of(way, at=(len(X),))).predict(X), want)
        assert got == [n_threads] * (n_threads > 1)  # for one thread nothing is asked


def test_explain_tells_predicted_and_measured_costs() -> None:
    said = str(Model(FOREST, plan_of(BWQS, WALK, at=(7, 100))).explain(7))
    assert "by its plan: bwqs, tree_block 7, document_block 9, 1 thread" in said
    assert "7 documents a call: us predicted, measured" in said
    assert "->         2.0         1.5   bwqs, tree_block 7, document_block 9, 1 thread" in said
    assert "           4.0         3.0   vqs, 1 thread  (the default)" in said
    assert "plan" not in str(Model(FOREST).explain(7))


def test_a_plan_is_printed_without_what_was_not_measured() -> None:
    measured, predicted = Candidate("walk", (), 1, 2.0, 1.5), Candidate("qs", (), 1, 3.0)
    plan = Plan("0", processor(), *machine(), (Tuned(7, 0, 0, (measured, predicted)),))
    assert "walk" in str(plan) and "qs" not in str(plan)
    assert "   and 1 not measured: explain(7) lists them" in str(plan)
    assert "           -   qs, 1 thread" in str(Model(FOREST, plan).explain(7))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"processor": "another"}, r"it was made on another machine \(another\)"),
        ({"isa": "avx9"}, "it was made for avx9"),
        ({"compiled": not machine().compiles}, "it was made for"),
        ({"processor": "a card", "isa": "cuda"}, r"it was made on a GPU \(a card\), and this is the CPU"),
    ],
)
def test_a_plan_for_another_machine_is_kept_but_not_used(change: dict[str, Any], why: str, tmp_path: Path) -> None:
    plan = replace(plan_of(SLICES, SLICES), **change)
    model = gpuqs.load(saved(to_json(plan), tmp_path))
    assert model.plan == plan
    assert model.engine_for(1) == Model(FOREST).engine_for(1) != "bitslice"
    explained = model.explain(1)
    assert explained.tuned is None and explained.note is not None
    assert re.search(why, explained.note) and explained.note in str(explained)
    model.save(tmp_path / "again.gpuqs")
    assert gpuqs.load(tmp_path / "again.gpuqs").plan == plan
    np.testing.assert_array_equal(model.predict(X), Model(FOREST).predict(X))


def test_another_instruction_set_at_run_time_is_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(FOREST, plan_of(SLICES, SLICES))
    assert model.engine_for(1) == "bitslice"
    monkeypatch.setenv("GPUQS_ISA", cpu_fallback.available_isas()[-1])
    assert model.engine_for(1) == Model(FOREST).engine_for(1) != "bitslice"
    monkeypatch.delenv("GPUQS_ISA")
    assert model.engine_for(1) == "bitslice"


def test_plans_go_with_the_model(tmp_path: Path) -> None:
    plan = plan_of(BWQS, WALK)
    model = Model(FOREST, plan)
    model.save(tmp_path / "m.gpuqs")
    loaded = gpuqs.load(tmp_path / "m.gpuqs")
    for other in (loaded, pickle.loads(pickle.dumps(model)), copy.deepcopy(model), copy.copy(model)):
        assert other.plan == plan and other.engine_for(1) == "bwqs"
    assert gpuqs.load((tmp_path / "m.gpuqs").read_bytes()).plan == plan
    assert gpuqs.load(tmp_path / "m.gpuqs", mmap=True).plan == plan
    assert gpuqs.from_model(loaded, categories=[]).plan == plan
    assert Model(loaded.forest).plan is None


def _scores_in_a_child(model: Model, rows: np.ndarray, answers: Any) -> None:
    answers.put((model.predict(rows), model.predict(rows[:1]), model.tune(rows, 0.05).sizes[0].best.engine))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="there is no fork here")
def test_forked_children_use_and_make_plans() -> None:
    model = Model(FOREST)
    model.tune(X, 0.1)
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=_scores_in_a_child, args=(model, X, answers))
    child.start()
    many, one, engine = answers.get(timeout=60)
    child.join()
    np.testing.assert_array_equal(many, Model(FOREST).predict(X))
    np.testing.assert_array_equal(one, many[:1])
    assert engine in ENGINES


def test_threads_score_while_plans_change() -> None:
    model, want, failed = Model(FOREST), Model(FOREST).predict(X), []
    done = threading.Event()

    def score() -> None:
        while not done.is_set():
            for n in (1, 30, 400):
                if model.predict(X[:n]).tobytes() != want[:n].tobytes():
                    failed.append(n)

    scorers = [threading.Thread(target=score) for _ in range(3)]
    for thread in scorers:
        thread.start()
    for _ in range(3):
        model.tune(X, 0.1)
    done.set()
    for thread in scorers:
        thread.join()
    assert not failed and model.plan is not None


# -- files are not trusted -------------------------------------------------------------------------

GOOD = to_json(plan_of(BWQS, WALK))


def changed(*path: Any, to: Any) -> dict[str, Any]:
    plan = copy.deepcopy(GOOD)
    at: Any = plan
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = to
    return plan


CANDIDATE = ("sizes", 0, "candidates", 0)
HOSTILE = {
    "no object": [1],
    "a text": "plan",
    "no sizes": changed("sizes", to=[]),
    "sizes of no list": changed("sizes", to={}),
    "too many sizes": changed("sizes", to=GOOD["sizes"] * 64),
    "descending": changed("sizes", to=GOOD["sizes"][::-1]),
    "twice": changed("sizes", to=[GOOD["sizes"][0]] * 2),
    "no documents": changed("sizes", 0, "n_documents", to=0),
    "fraction": changed("sizes", 0, "n_documents", to=1.0),
    "truth value": changed("sizes", 0, "n_documents", to=True),
    "huge": changed("sizes", 0, "n_documents", to=10**400),
    "no candidates": changed("sizes", 0, "candidates", to=[]),
    "too many candidates": changed("sizes", 0, "candidates", to=GOOD["sizes"][0]["candidates"] * 65),
    "a choice that is not there": changed("sizes", 0, "chosen", to=2),
    "a negative choice": changed("sizes", 0, "chosen", to=-1),
    "no default": changed("sizes", 0, "default", to=None),
    "engine of no text": changed(*CANDIDATE, "engine", to=5),
    "a long text": changed(*CANDIDATE, "engine", to="x" * 10_000),
    "escape codes": changed(*CANDIDATE, "engine", to="\x1b[2J"),
    "params of no object": changed(*CANDIDATE, "params", to=[["tree_block", 7]]),
    "too many params": changed(*CANDIDATE, "params", to={f"p{i}": 1 for i in range(17)}),
    "a param of no number": changed(*CANDIDATE, "params", to={"tree_block": "7"}),
    "a param of NaN": changed(*CANDIDATE, "params", to={"tree_block": float("nan")}),
    "a huge param": changed(*CANDIDATE, "params", to={"tree_block": 1 << 50}),
    "no threads": changed(*CANDIDATE, "n_threads", to=0),
    "NaN": changed(*CANDIDATE, "measured", to=float("nan")),
    "infinite": changed(*CANDIDATE, "predicted", to=float("inf")),
    "negative": changed(*CANDIDATE, "measured", to=-1.0),
    "no processor": changed("processor", to=None),
    "compiled of no truth value": changed("compiled", to=1),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_is_no_plan_is_refused(what: str, tmp_path: Path) -> None:
    path = saved(HOSTILE[what], tmp_path)
    with pytest.raises(ModelFormatError, match="tune the model again") as refused:
        gpuqs.load(path)
    assert refused.value.source == str(path) and str(refused.value.field).startswith("plan")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("engine", 5), ("engine", "\x1b[2J"), ("n_threads", 0), ("n_threads", -1), ("n_threads", True),
        ("measured", float("nan")), ("predicted", float("inf")), ("predicted", -1.0), ("predicted", "1"),
        ("params", [("tree_block", 7)]), ("params", (("tree_block", 7.0),)), ("params", ((5, 7),)),
        ("params", tuple((f"p{i}", 1) for i in range(17))), ("n_documents", 0), ("n_documents", 1 << 41),
        ("candidates", []), ("chosen", 2), ("default", -1), ("sizes", ()), ("sizes", plan_of(BWQS, WALK).sizes[::-1]),
        ("compiled", 1), ("processor", None), ("isa", "x" * 201),
    ],
)  # fmt: skip
def test_a_plan_that_could_not_be_used_or_saved_is_not_made(field: str, value: Any) -> None:
    plan = plan_of(BWQS, WALK)
    part = next(p for p in (plan, plan.sizes[0], plan.sizes[0].best) if hasattr(p, field) and field in vars(p))
    with pytest.raises(ValueError, match=f"a plan's {field} (is|are) not "):
        replace(part, **{field: value})


@pytest.mark.parametrize("n_threads", [0, -1, -(2**31)])
@pytest.mark.parametrize("engine", [name for name, engine in ENGINES.items() if engine.device == "cpu"])
def test_fewer_threads_than_one_are_one(engine: str, n_threads: int) -> None:
    """Even if they got past the checks."""
    if ENGINES[engine].why_not(FOREST) is not None:
        pytest.skip("cannot run the forest")
    program, rows = ENGINES[engine].prepare(FOREST, "exact"), X[:7]  # one block; threads share its trees
    sums = np.zeros((2, len(rows), 1))
    ENGINES[engine].score(program, rows, sums[0], 1)
    ENGINES[engine].score(program, rows, sums[1], n_threads)
    np.testing.assert_array_equal(*sums)
    leaves = np.zeros((2, len(rows), FOREST.n_trees), np.int32)
    ENGINES[engine].leaves(program, rows, leaves[0], 1)
    ENGINES[engine].leaves(program, rows, leaves[1], n_threads)
    np.testing.assert_array_equal(*leaves)


def test_a_plan_that_is_nested_deep_is_refused(tmp_path: Path) -> None:
    data = saved({"deep": "HERE"}, tmp_path).read_bytes()
    n_header = struct.unpack_from("<I", data, 12)[0]
    header = data[32 : 32 + n_header].replace(b'"HERE"', b"[" * 200_000 + b"]" * 200_000)
    arrays = data[-(-(32 + n_header) // 64) * 64 :]
    body = header + bytes(-(32 + len(header)) % 64) + arrays
    start = struct.pack("<8sIIQ", native.MAGIC, native.VERSION, len(header), 32 + len(body))
    rest = struct.pack("<I", 0) + body
    (tmp_path / "deep.gpuqs").write_bytes(start + struct.pack("<I", zlib.crc32(rest, zlib.crc32(start))) + rest)
    with pytest.raises(ModelFormatError, match="nested too deep"):
        gpuqs.load(tmp_path / "deep.gpuqs")


@pytest.mark.parametrize(
    ("way", "why"),
    [
        (("nope", {}), "it names engine 'nope', which this gpuqs does not have"),
        (("qs_gpu", {}), "it names engine 'qs_gpu', which this gpuqs does not have"),
        (("qs_oblivious", {}), "it names engine 'qs_oblivious', which cannot run this model: a tree is not oblivious"),
        (("bwqs", {"tau": 7}), "engine 'bwqs' has no parameter 'tau'"),
        (("bwqs", {"tree_block": -7}), "tree_block of engine 'bwqs' must be in"),
        (("bwqs", {"tree_block": 1 << 39}), "tree_block of engine 'bwqs' must be in"),
    ],
    ids=str,
)
def test_a_plan_that_asks_for_what_is_not_here_is_kept_but_not_used(
    way: tuple[str, dict[str, int]], why: str, tmp_path: Path
) -> None:
    """It may come from a newer gpuqs, so the model is still valid."""
    plan = changed(*CANDIDATE, "engine", to=way[0])
    plan["sizes"][0]["candidates"][0]["params"] = way[1]
    model = gpuqs.load(saved(plan, tmp_path))
    np.testing.assert_array_equal(model.predict(X), Model(FOREST).predict(X))
    assert model.engine_for(100) == Model(FOREST).engine_for(100)  # no part of it is used
    assert why in str(model.explain(1))
    assert to_json(model.plan) == plan  # type: ignore[arg-type]


def test_extreme_but_legal_plans_take_bounded_memory() -> None:
    """The largest blocks that a plan may ask for, on a forest of many columns."""
    wide = random_forest(np.random.default_rng(0), n_trees=200, max_leaves=8, n_features=1500)
    rows = np.random.default_rng(1).normal(size=(150, 1500))
    want = Model(wide).predict(rows)
    for name, engine in ENGINES.items():
        if engine.device == "cpu" and engine.parameters and engine.why_not(wide) is None:
            for end in ("lowest", "highest"):
                params = tuple((p.name, getattr(p, end)) for p in engine.parameters)
                got = Model(wide, plan_of((name, params, 1), at=(1,))).predict(rows)
                np.testing.assert_array_equal(got, want)


def test_older_readers_pass_over_the_plan(tmp_path: Path) -> None:
    """The plan is an additional entry that readers of the same version ignore, and the version is unchanged."""
    with_plan, without = saved(GOOD, tmp_path).read_bytes(), saved(None, tmp_path).read_bytes()
    headers = [json.loads(data[32 : 32 + struct.unpack_from("<I", data, 12)[0]]) for data in (with_plan, without)]
    assert headers[0].pop("plan") == GOOD and headers[0] == headers[1]
    assert with_plan[8:12] == without[8:12]


def test_no_plan_is_no_entry(tmp_path: Path) -> None:
    assert gpuqs.load(saved(None, tmp_path)).plan is None


def test_what_is_measured_decides_which_engines_are_hopeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the predicted best takes far longer, engines predicted to take that long are measured, too."""
    predicted = {"bitslice": 30.0, "rankwalk": 500.0, "walk": 100_000.0}
    taken = {"bitslice": 1.1e-3, "rankwalk": 0.7e-3}
    for costs in ("cost", "warm_cost"):
        monkeypatch.setattr(Chooser, costs, lambda self, name, n, machine: predicted.get(name, 600.0))
    monkeypatch.setattr(Search, "_reading", lambda self, candidate, *rest: taken.get(candidate.engine, 2e-3))
    (tuned,) = Model(FOREST).tune(X, 5.0, batch_sizes=[100], n_threads=1).sizes
    assert (tuned.best.engine, tuned.candidates[tuned.default].engine) == ("rankwalk", "bitslice")
    assert {c.engine for c in tuned.candidates if c.measured is None and not c.params} == {"walk"}


# -- guided candidates -----------------------------------------------------------------------------

ZEN = Hierarchy((32 << 10, 512 << 10, 32 << 20), (3.0, 12.0, 60.0))


def guided(forest: Forest, n: int, threads: int = 1) -> list[Candidate]:
    able = [e.name for e in ENGINES.values() if e.device == "cpu" and e.why_not(forest) is None]
    predict = lambda name, n: ENGINES[name].cost(forest, n)  # noqa: E731
    default = min(able, key=lambda name: predict(name, n) or 1e9)
    return candidates(forest, n, threads, ZEN, predict, Candidate(default, (), 1), able)


@pytest.mark.parametrize("n", [1, 10, 300, 10_000])
def test_candidates_are_few_legal_and_in_the_order_of_their_cost(n: int) -> None:
    forest = random_forest(np.random.default_rng(0), n_trees=1200, max_leaves=60, shape="complete")
    found = guided(forest, n, 16)
    costs = [c.predicted for c in found if c.predicted is not None]
    assert costs == sorted(costs) and 1 < len(found) <= 48 < MAX_CANDIDATES
    assert {c.engine for c in found if not c.params} >= {c.engine for c in found}
    assert len({(c.engine, c.params, c.n_threads) for c in found}) == len(found)
    for c in found:
        ENGINES[c.engine].prepare(FOREST, "exact", params=dict(c.params))
        assert n > 1 or c.n_threads == 1


def test_small_batches_get_no_document_blocks_of_their_own() -> None:
    """A block that holds all of them is what the default does."""
    forest = random_forest(np.random.default_rng(0), n_trees=1200, max_leaves=60, shape="complete")
    for c in guided(forest, 5):
        assert dict(c.params).get("document_block", 1) < 16


def test_loops_of_all_engines_with_blocks_are_known() -> None:
    for name, engine in ENGINES.items():
        if engine.device == "cpu" and engine.parameters and name != "bitslice":
            loop = loop_of(name, FOREST)
            names = {parameter.name for parameter in engine.parameters}
            assert {loop.trees, loop.documents} - {None} == names - {"tops"}
            assert loop.tree_bytes > 0 and loop.vector_bytes(10) > loop.vector_bytes(0) > 0


def test_walks_nodes_are_costed_as_walks_read_them(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = FOREST.n_nodes / FOREST.n_trees
    for gathering, short, each in ((True, True, 8), (True, False, 16), (False, True, 16)):
        monkeypatch.setattr("gpuqs.engines.walk.gathers", lambda machine, answer=gathering: answer)
        monkeypatch.setattr("gpuqs.engines.walk.has_short_links", lambda forest, answer=short: answer)
        assert loop_of("walk", FOREST).tree_bytes == nodes * each
