"""A model's first call uses the forest's own arrays and gives the same bits as later calls."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forests import KINDS, probing_documents, random_forest

import gpuqs
from gpuqs import cpu_fallback, plain_calls
from gpuqs.engines import ENGINES
from gpuqs.engines.forest_walk import forest_walk
from gpuqs.model import Model


@pytest.mark.parametrize("isa", cpu_fallback.available_isas())
@pytest.mark.parametrize("kind", KINDS)
def test_walks_over_the_forest_as_it_is(kind: str, isa: str) -> None:
    rng, reference = np.random.default_rng(21), ENGINES["reference"]
    forest = KINDS[kind](rng)
    program, expected = forest_walk(forest, cpu_fallback.Machine(isa, False)), reference.prepare(forest, "exact")
    for n, dtype in ((0, np.float32), (1, np.float32), (6, np.float64), (70, np.float32), (200, np.float64)):
        with np.errstate(over="ignore"):
            X = probing_documents(rng, forest, n).astype(dtype)
        sums, want = (np.empty((n, forest.n_outputs), program.values.sum_dtype) for _ in range(2))
        leaves, of_reference = (np.empty((n, forest.n_trees), np.int32) for _ in range(2))
        with np.errstate(over="ignore", invalid="ignore"):
            reference.score(expected, X, want)
        reference.leaves(expected, X, of_reference)
        for n_threads in (1, 3):
            program.scorer.score(program.bound, X, sums, n_threads)
            program.scorer.leaves(program.bound, X, leaves, n_threads)
            assert sums.tobytes() == want.tobytes()
            np.testing.assert_array_equal(leaves, of_reference)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_first_calls_and_all_others(kind: str, weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kind of output; the second call builds the layout."""
    rng, made = np.random.default_rng(22), []
    forest = KINDS[kind](rng)
    if weighted and not forest.has_linear_leaves:
        forest = replace(forest, tree_weight=rng.random(forest.n_trees), average=True, base_first=False)
    monkeypatch.setattr(plain_calls, "forest_walk", lambda *args: made.append(args) or forest_walk(*args))
    X = probing_documents(rng, forest, 7)
    calls: list[dict[str, Any]] = [{}, {"output": "raw"}, {"output": "leaf"}, {"n_threads": 3}]
    for asked in calls:
        model = Model(forest)
        first = model.predict(X, **asked)
        assert not model._programs.has_whole or len(made) == 0
        np.testing.assert_array_equal(model.predict(X, **asked), first, strict=True)
        np.testing.assert_array_equal(model.predict(X, engine="reference", **asked), first, strict=True)
        assert model._programs.has_whole
    assert len(made) == (len(calls) if kind != "many trees" else 0)  # seven documents walk longer than the layout takes


def test_what_has_no_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_calls, "forest_walk", lambda *args: pytest.fail("goes by the forest's own arrays"))
    rng = np.random.default_rng(23)
    forest = random_forest(rng, n_trees=30)
    X = probing_documents(rng, forest, 3)
    Model(forest).warm_up(3).predict(X)
    Model(forest).predict(X, precision="fast")
    Model(forest).predict(X, trees=slice(0, 5))
    model = Model(forest)
    model.predict(X, engine="walk")
    model.predict(X)
    Model(forest).predict(np.repeat(X, 3_000, axis=0))
    Model(random_forest(rng, n_trees=500, max_leaves=1)).predict(np.repeat(X, 300, axis=0))
    monkeypatch.setattr("gpuqs.engines.forest_walk.MAX_NODES", 300 * 63 - 1)
    Model(random_forest(rng, n_trees=300, max_leaves=64, shape="complete")).predict(X)


def test_large_files_that_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of several megabytes are read into a mapping of no file. Leaf values in a mapped file may change."""
    rng, made = np.random.default_rng(24), []
    forest = random_forest(rng, n_trees=3_000, max_leaves=64, shape="complete")
    X = probing_documents(rng, forest, 1)
    expected = Model(forest).predict(X, engine="reference")
    monkeypatch.setattr(plain_calls, "forest_walk", lambda *args: made.append(args) or forest_walk(*args))
    for ready in (False, True):
        Model(forest).save(tmp_path / "model.gpuqs", ready=ready)
        assert (tmp_path / "model.gpuqs").stat().st_size > 1 << 22
        for mmap in (False, True):
            model, before = gpuqs.load(tmp_path / "model.gpuqs", mmap=mmap), len(made)
            np.testing.assert_array_equal(model.predict(X), expected, strict=True)
            np.testing.assert_array_equal(model.predict(X), expected, strict=True)
            assert len(made) - before == (not mmap)
