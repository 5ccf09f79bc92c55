"""Scores after each stage of the trees equal, bit for bit, those of a call with only these trees."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from agreement import programs_in_blocks
from forests import KINDS, probing_documents, random_forest

from gpuqs import cpu_fallback, stages
from gpuqs.engines import ENGINES
from gpuqs.engines.cpu import CpuEngine
from gpuqs.errors import InputError
from gpuqs.model import Model

CPU_ENGINES = {name: engine for name, engine in ENGINES.items() if isinstance(engine, CpuEngine)}


def stages_of(rng: np.random.Generator, n_trees: int) -> list[tuple[int, list[int]]]:
    """First trees and ends of stages: each tree, blocks of trees, all at once, none, and random ones."""
    of_blocks = sorted({*range(64, n_trees, 64), n_trees})
    by_chance = sorted({*rng.integers(0, n_trees + 1, 5).tolist(), n_trees})
    within = [(n_trees // 3, list(range(n_trees // 3, n_trees + 1))), (n_trees // 2, [n_trees // 2])]
    return [(0, list(range(n_trees + 1))), (0, of_blocks), (0, [n_trees]), (0, by_chance), *within]


@pytest.mark.parametrize("isa", cpu_fallback.available_isas())
@pytest.mark.parametrize("name", CPU_ENGINES)
@pytest.mark.parametrize("kind", KINDS)
def test_stages_of_engines(kind: str, name: str, isa: str) -> None:
    """For all blocks of trees and documents, and any number of threads that share them."""
    rng = np.random.default_rng(21)
    forest, engine = KINDS[kind](rng), CPU_ENGINES[name]
    programs = programs_in_blocks(forest, name, isa)
    values, base = programs[0].values, forest.base_of(0)
    for n, dtype in (1, np.float32), (70, np.float64), (300, np.float32):
        with np.errstate(over="ignore"):
            X = probing_documents(rng, forest, n).astype(dtype)
        for first, ends in stages_of(rng, forest.n_trees):
            for start in None, rng.normal(size=(n, forest.n_outputs)).astype(values.sum_dtype):
                want = [np.empty((n, forest.n_outputs), values.sum_dtype)]
                want[0][...] = values.start if start is None else start
                for before, end in pairwise([first, *ends]):
                    want.append(want[-1].copy())
                    engine.score(programs[0].of_trees(slice(before, end), base), X, want[-1], started=True)
                for program in programs:
                    part = program.of_trees(slice(first, ends[-1]), base)
                    for n_threads in 1, 3:
                        room = np.full((len(ends), n + 1, forest.n_outputs), 7, values.sum_dtype)
                        sums, between = room[:, :n], np.array(ends[:-1], np.int32)
                        part.scorer.stages(part.bound, X, between, start, sums, n_threads)
                        assert sums.tobytes() == np.array(want[1:]).tobytes(), (n, first, ends, n_threads)
                        assert (room[:, n] == 7).all()


def test_bindings_refuse_what_does_not_fit() -> None:
    forest = random_forest(np.random.default_rng(22), n_trees=20, n_outputs=2)
    program = CPU_ENGINES["walk"].prepare(forest, "exact")
    X, ends = np.zeros((5, forest.n_features)), np.array([3, 4], np.int32)

    def stages_into(sums: np.ndarray, begin: np.ndarray | None = None) -> None:
        program.scorer.stages(program.bound, X, ends, begin, sums, 1)

    stages_into(np.empty((3, 5, 2)), np.zeros((5, 2)))
    for wrong in [4, 3], [3, 3], [-1, 3], [3, forest.n_trees]:
        ends = np.array(wrong, np.int32)
        with pytest.raises(ValueError, match="each behind the one before"):
            stages_into(np.empty((3, 5, 2)))
    ends = np.array([3, 4], np.int32)
    for wrong in np.empty((2, 5, 2)), np.empty((3, 4, 2)), np.empty((3, 5, 1)), np.empty((3, 5, 2), np.float32):
        with pytest.raises(ValueError, match=r"sums must be \[3, 5, 2\] of format 'd'"):
            stages_into(wrong)
    for apart in np.empty((3, 5, 4))[:, :, ::2], np.empty((3, 10, 2))[:, ::2], np.empty((3, 2, 5)).swapaxes(1, 2):
        with pytest.raises(ValueError, match="in C order"):
            stages_into(apart)
    for wrong in np.zeros((4, 2)), np.zeros((5, 2), np.float32):
        with pytest.raises(ValueError, match=r"begin with \[5, 2\] of format 'd'"):
            stages_into(np.empty((3, 5, 2)), wrong)


def assert_staged(model: Model, X: Any, output: Any = "value", eval_period: int = 1, **options: Any) -> int:
    """Assert that every stage equals `predict` with that many iterations; return the number of stages."""
    n_iterations = model.n_iterations
    ends = [*range(eval_period, n_iterations, eval_period), *[n_iterations] * (n_iterations > 0)]
    engine = model.engine_for(len(X))  # plain calls with generated linear leaves treat tiny numbers as zero
    given = list(model.staged_predict(X, output, eval_period=eval_period, **options))
    assert len(given) == len(ends)
    for end, answer in zip(ends, given, strict=True):
        want = model.predict(X, output, iteration_range=(0, end), engine=engine, **options)
        np.testing.assert_array_equal(answer, want, strict=True)
    for one, other in pairwise(given):
        assert not np.shares_memory(one, other)
    return len(ends)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 3, 70, 600])
def test_stages_of_models(kind: str, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(23)
    forest = KINDS[kind](rng)
    model, X = Model(forest), probing_documents(rng, forest, n)
    margin = rng.normal(size=(n, forest.n_outputs)).astype(forest.sum_dtype)
    for output in ("value", "raw"):
        assert_staged(model, X, output)
    assert_staged(model, X, eval_period=7, base_margin=margin)
    assert_staged(model, X, eval_period=forest.n_trees + 1)
    monkeypatch.setattr(stages, "SUM_BYTES", 5 * margin.nbytes)  # groups, each starting from the sums of the last
    assert_staged(model, X)
    assert_staged(model, X, "raw", n_threads=2)
    assert_staged(model, X, "raw", base_margin=margin)
    monkeypatch.setattr(stages, "FINISHED_TOGETHER", 3 * n)
    assert_staged(model, X)
    assert_staged(model, X, base_margin=margin)


def test_documents_of_every_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays read in place, input that is converted, and batches large enough to be encoded first."""
    rng = np.random.default_rng(24)
    forest = random_forest(rng, n_trees=30, n_features=6)
    model, X = Model(forest), probing_documents(rng, forest, 3000)
    want = [answer.tobytes() for answer in model.staged_predict(X)]
    frame = pd.DataFrame(X, columns=list(model.feature_names) or None)
    forms = [X, np.asfortranarray(X), X[::-1][::-1], frame, X.tolist(), scipy.sparse.csr_matrix(X), model.encode(X)]
    for rows_at_once in None, 64, 2048:
        if rows_at_once is not None:
            monkeypatch.setattr("gpuqs.calls.rows_for_cpu", lambda *_, rows=rows_at_once, **__: rows)
        for form in forms:
            assert [answer.tobytes() for answer in model.staged_predict(form)] == want
    for empty in X[:0], frame[:0], model.encode(X[:0]):
        assert [answer.shape for answer in model.staged_predict(empty)] == [(0,)] * 30


def test_forests_that_no_compiled_engine_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CpuEngine, "why_not", lambda *_: "not here")
    for engine in CPU_ENGINES.values():
        monkeypatch.setattr(type(engine), "why_not", lambda *_: "not here")
    rng = np.random.default_rng(25)
    forest = random_forest(rng, n_trees=5, n_outputs=3)
    model, X = Model(forest), probing_documents(rng, forest, 7)
    assert model.engine_for(7) == "reference"
    assert assert_staged(model, X) == forest.n_iterations
    assert_staged(model, X, "raw", base_margin=rng.normal(size=(7, 3)))


def test_iterations_of_no_trees_have_stages() -> None:
    rng = np.random.default_rng(26)
    forest = random_forest(rng, n_trees=9)
    starts = np.array([0, 0, 3, 3, 3, 8, 9, 9])
    model = Model(replace(forest, iteration_starts=starts))
    X = probing_documents(rng, forest, 40)
    for eval_period in 1, 2, 3, 7, 8:
        assert_staged(model, X, eval_period=eval_period)
    for answer, end in zip(model.staged_predict(X), starts[1:].tolist(), strict=True):
        np.testing.assert_array_equal(answer, model.predict(X, trees=slice(end)))
        answer[:] = 0  # the array belongs to the caller
    nothing = Model(forest.select(slice(0, 0)))
    assert list(nothing.staged_predict(X)) == []
    of_no_trees = Model(replace(nothing.forest, iteration_starts=np.array([0, 0, 0])))
    assert [answer.tolist() for answer in of_no_trees.staged_predict(X)] == 2 * [nothing.predict(X).tolist()]


def test_what_is_wrong_is_told_at_once() -> None:
    forest = random_forest(np.random.default_rng(27))
    model, X = Model(forest), np.zeros((3, forest.n_features))
    for output in "leaf", "per_tree", "values", None:
        with pytest.raises(ValueError, match="output must be one of 'value', 'raw', 'class'"):
            model.staged_predict(X, output)
    for period in 0, -1, 1.5, True, None:
        with pytest.raises(ValueError, match="eval_period"):
            model.staged_predict(X, eval_period=period)
    with pytest.raises(InputError):
        model.staged_predict(X[:, 1:])
    with pytest.raises(InputError, match="base_margin"):
        model.staged_predict(X, base_margin=np.zeros(4))
    with pytest.raises(ValueError, match="classifiers"):
        model.staged_predict(X, "class")
    with pytest.raises(ValueError, match="n_threads"):
        model.staged_predict(X, n_threads=0)


def test_any_floating_point_mode_between_answers() -> None:
    """The caller's mode is in force between answers and affects none of them."""
    rng = np.random.default_rng(28)
    forest = random_forest(rng, n_trees=6, link="sigmoid")
    model, X = Model(forest), probing_documents(rng, forest, 100)
    want = [answer.tobytes() for answer in model.staged_predict(X)]
    with np.errstate(all="raise"):
        found = []
        for answer in model.staged_predict(X):
            found.append(answer.tobytes())
            with pytest.raises(FloatingPointError):
                np.float64(1) / np.float64(0)
    assert found == want


def test_one_generator_does_not_disturb_another() -> None:
    rng = np.random.default_rng(29)
    forest = random_forest(rng, n_trees=20)
    model, X = Model(forest), probing_documents(rng, forest, 50)
    for one, other, end in zip(model.staged_predict(X), model.staged_predict(X[::-1]), range(1, 21), strict=True):
        want = model.predict(X, trees=slice(end))
        assert one.tobytes() == want.tobytes() and other[::-1].tobytes() == want.tobytes()
