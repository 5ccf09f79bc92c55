"""The bench's systems from the papers score like gpuqs's reference, bit for bit, and say what they cannot handle."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from forests import random_forest

import gpuqs
from gpuqs.forest import NAN_LEFT, ZERO_MISSING, Forest

BENCH = Path(__file__).parents[2] / "bench"
if str(BENCH) not in sys.path:
    sys.path.append(str(BENCH))

from baselines import compiler, registry  # noqa: E402
from baselines.check import TYPES, Case, cases, check, differing  # noqa: E402
from baselines.columns import find_columns, thresholds  # noqa: E402
from baselines.program import Program, library  # noqa: E402
from baselines.registry import SYSTEMS  # noqa: E402


@pytest.fixture(autouse=True)
def _with_a_compiler() -> None:
    try:
        compiler.compiler()
    except compiler.NoCompiler as problem:
        pytest.skip(str(problem))


@cache
def all_cases(oblivious: bool, few: bool) -> tuple[Case, ...]:
    return tuple(cases(oblivious, few))


@pytest.mark.parametrize(("value", "total"), TYPES)
def test_the_library_compiles(value: type, total: str) -> None:
    """Compile it once, separately from the checks, which then find it in the cache."""
    assert library(np.dtype(value), np.dtype(total)).baselines_score


@pytest.mark.parametrize("name", SYSTEMS)
def test_scores_are_those_of_the_reference(name: str) -> None:
    system = SYSTEMS[name]
    verdict = check(system, all_cases(system.oblivious, system.generated))
    assert verdict.differ == 0, verdict.example
    assert verdict.forests >= 8 and verdict.rows >= 300


def test_cases_have_what_they_probe() -> None:
    for oblivious in (False, True):
        for case in (c for c in all_cases(oblivious, False) if c.name.startswith(("random", "oblivious"))):
            X, forest = case.X, case.forest
            assert np.isnan(X).any() and np.isinf(X).any() and (X == 0).any()
            at = thresholds(forest, X.dtype)
            assert set(at).intersection(X.ravel())
            with np.errstate(over="ignore"):
                assert set(np.nextafter(at, X.dtype.type(np.inf))).intersection(X.ravel())
            assert len(set(forest.routing & (NAN_LEFT | ZERO_MISSING))) > 1 or not forest.n_nodes


def test_a_wrong_bit_counts() -> None:
    scores = np.arange(5, dtype=np.float32)
    assert differing(scores, scores.copy()) == 0
    assert differing(np.nextafter(scores, np.float32(9)), scores) == 5
    assert differing(np.array([-0.0]), np.array([0.0])) == 1
    assert differing(scores.astype(np.float64), scores) == 5


def test_documents_without_missing_values_keep_their_columns() -> None:
    rng = np.random.default_rng(0)
    forest = random_forest(rng)
    only_nan = replace(forest, routing=forest.routing & NAN_LEFT)
    X = rng.normal(size=(50, forest.n_features)).astype(np.float32)
    columns = find_columns(only_nan, missing=False)
    assert len(columns) == forest.n_features and columns.fill(X, X.dtype) is X
    assert len(find_columns(only_nan, missing=True)) > forest.n_features
    program = Program(SYSTEMS["SDSD"], only_nan, X.dtype, missing=False)
    assert differing(program.score(X), gpuqs.from_model(only_nan).predict(X, "raw", engine="reference")) == 0
    X[3, 2] = np.nan
    with pytest.raises(ValueError, match="missing values"):
        program.score(X)


def refused(forest: Forest, name: str) -> str:
    reason = SYSTEMS[name].refuses(forest)
    assert reason is not None
    with pytest.raises(ValueError, match=r"does not hold the forest"):
        Program(SYSTEMS[name], forest, np.float32)
    return reason


def test_what_a_system_cannot_hold_it_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    assert "categories" in refused(random_forest(rng, categorical=1.0), "DOT")
    assert "one score" in refused(random_forest(rng, n_outputs=2), "PRED")
    complete = random_forest(rng, shape="complete", n_trees=2, max_leaves=8)
    assert "not oblivious" in refused(complete, "OBLIVIOUS")
    assert "not oblivious" in refused(random_forest(rng, shape="chain", n_trees=2, max_leaves=8), "OBLIVIOUS")
    assert "deeper than" in refused(random_forest(rng, shape="chain", n_trees=1, max_leaves=300), "CONDOP")
    monkeypatch.setattr(registry, "MAX_GENERATED_NODES", 5)
    assert "14 nodes; generated code is compiled up to 5" in refused(complete, "IF-THEN-ELSE")
    assert SYSTEMS["STRUCT+"].refuses(complete) is None


def test_parameters_that_no_system_has_are_refused() -> None:
    forest = random_forest(np.random.default_rng(2))
    with pytest.raises(ValueError, match="v is 1, 2, 4, 8, 16 or 32, not 3"):
        Program(SYSTEMS["VPRED"], forest, np.float32, v=3)
    with pytest.raises(ValueError, match="no scorer pebble"):
        Program(replace(SYSTEMS["STRUCT+"], scorer="pebble"), forest, np.float32)
    program = Program(SYSTEMS["SDSD"], forest, np.float32)
    with pytest.raises(ValueError, match="blocks of 0 documents and 3 scorers"):
        program.score(np.zeros((2, forest.n_features), np.float32), d=0, s=3)
    with pytest.raises(ValueError, match="does not run in the order sdds"):
        Program(replace(SYSTEMS["PRED"], order="sdds"), forest, np.float32)


def test_every_file_opens_with_its_paper_and_loop() -> None:
    for system in SYSTEMS.values():
        opening = (BENCH / "baselines" / system.files[0]).read_text().split("#pragma once")[0][:1200]
        assert f"paper {system.paper}" in opening, system.files[0]
        assert "for each" in opening or "while" in opening or "as many times" in opening, system.files[0]
        assert all((BENCH / "baselines" / file).exists() for file in system.files)
