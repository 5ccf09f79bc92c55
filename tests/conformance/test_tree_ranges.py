"""The program of all trees, run on a range of them, gives the bits of a program of only these trees."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from agreement import programs_in_blocks
from forests import KINDS, probing_documents, random_forest

from gpuqs import cpu_fallback
from gpuqs.engines import ENGINES
from gpuqs.engines.cpu import CpuEngine, CpuProgram
from gpuqs.forest import Forest
from gpuqs.model import Model

CPU_ENGINES = {name: engine for name, engine in ENGINES.items() if isinstance(engine, CpuEngine)}


def ranges_of(rng: np.random.Generator, n_trees: int) -> list[slice]:
    """All trees, both ends, no trees, single trees, ends of blocks, and random ranges."""
    bounds = {(0, n_trees), (0, 0), (n_trees, n_trees), (n_trees // 2, n_trees // 2)}
    bounds |= {(at, min(at + n, n_trees)) for at in (0, 1, n_trees // 2) for n in (1, 7, 64) if at <= n_trees}
    bounds |= {(min(64, n_trees), n_trees), (max(n_trees - 1, 0), n_trees)}
    bounds |= {(int(min(pair)), int(max(pair))) for pair in rng.integers(0, n_trees + 1, (6, 2))}
    return [slice(*each) for each in sorted(bounds)]


def answers(program: CpuProgram, name: str, X: np.ndarray, n_threads: int) -> tuple[bytes, bytes, bytes]:
    """Sums, sums that start from given values, and leaves."""
    values, engine = program.values, ENGINES[name]
    sums = np.empty((len(X), values.n_outputs), values.sum_dtype)
    begun = np.full(sums.shape, 0.375, sums.dtype)
    leaves = np.empty((len(X), len(values.trees)), np.int32)
    engine.score(program, X, sums, n_threads)
    engine.score(program, X, begun, n_threads, started=True)
    engine.leaves(program, X, leaves, n_threads)
    return values.finish(sums).tobytes(), begun.tobytes(), leaves.tobytes()


@pytest.mark.parametrize("isa", cpu_fallback.available_isas())
@pytest.mark.parametrize("name", CPU_ENGINES)
@pytest.mark.parametrize("kind", KINDS)
def test_ranges_by_the_program_of_all(kind: str, name: str, isa: str) -> None:
    rng = np.random.default_rng(11)
    forest, engine = KINDS[kind](rng), CPU_ENGINES[name]
    wholes = programs_in_blocks(forest, name, isa)
    machine = cpu_fallback.Machine(isa, cpu_fallback.compiles_programs(isa))
    with np.errstate(over="ignore"):
        types = (1, np.float32), (6, np.float64), (70, np.float32), (600, np.float64)
        documents = [probing_documents(rng, forest, n).astype(dtype) for n, dtype in types]
    for trees in ranges_of(rng, forest.n_trees):
        alone = engine.prepare(forest.select(trees), "exact", machine=machine)
        for X in documents:
            want = answers(alone, name, X, 1)
            for whole in wholes:
                part = whole.of_trees(trees, forest.base_of(trees.start))
                for n_threads in (1, 3):
                    assert answers(part, name, X, n_threads) == want, (trees, len(X), n_threads)


@pytest.mark.parametrize("kind", KINDS)
def test_models_answer_with_ranges(kind: str) -> None:
    """On the general path: all kinds of tables, outputs and initial sums."""
    rng = np.random.default_rng(12)
    forest = KINDS[kind](rng)
    model, X = Model(forest), probing_documents(rng, forest, 20)
    model.predict(X)
    for trees in ranges_of(rng, forest.n_trees):
        alone, margin = Model(forest.select(trees)), rng.normal(size=(20, forest.n_outputs)).astype(forest.sum_dtype)
        asked: list[dict[str, Any]] = [{"output": output} for output in ("value", "raw", "leaf", "per_tree")]
        for options in (*asked, {"base_margin": margin}):
            given, want = model.predict(X, trees=trees, **options), alone.predict(X, **options)
            np.testing.assert_array_equal(given, want, strict=True)


def test_catboost_counts_its_bias_with_the_first_tree() -> None:
    forest = random_forest(np.random.default_rng(13), n_trees=10)
    for base_first in (False, True):
        model = Model(replace(forest, base_first=base_first, schema=replace(forest.schema, library="CatBoost")))
        X = probing_documents(np.random.default_rng(14), forest, 5)
        model.predict(X)
        for trees in (slice(0, 4), slice(3, 9), slice(0, 0), slice(2, 2)):
            want = (forest.base_score if trees.start == 0 else 0) + sum_of_trees(forest, X, trees)
            for engine in ("auto", "walk"):  # "auto" makes it a plain call, "walk" does not
                given = model.predict(X, engine=engine, trees=trees)
                np.testing.assert_allclose(given, want, rtol=1e-12, atol=1e-14)


def sum_of_trees(forest: Forest, X: np.ndarray, trees: slice) -> np.ndarray:
    return Model(forest).predict(X, "per_tree")[:, trees].sum(axis=1)
