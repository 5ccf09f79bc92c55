"""Engines' parameters: each legal value gives the same bits; other values are refused by name."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from forests import probing_documents, random_forest

from gpuqs.cpu_fallback import machine
from gpuqs.devices import HOST
from gpuqs.engines import ENGINES
from gpuqs.engines.parameters import Parameter, changed
from gpuqs.forest import Forest
from gpuqs.layout.quickscorer import MAX_BOUNDS, tree_blocks
from gpuqs.programs import Programs

ON_CPU = [engine for engine in ENGINES.values() if engine.device == "cpu" and engine.parameters]
TUNED = [(engine.name, parameter) for engine in ON_CPU for parameter in engine.parameters]
every_parameter = pytest.mark.parametrize(("name", "parameter"), TUNED, ids=lambda v: getattr(v, "name", v))

RNG = np.random.default_rng(3)
#: More trees than fit one of bitslice's tree blocks, and two groups of rankwalk's.
FORESTS = {
    "exact": random_forest(RNG, n_trees=150, max_leaves=12, n_features=6),
    "categories": random_forest(RNG, n_trees=37, max_leaves=30, categorical=0.3, n_outputs=2),
    "oblivious": random_forest(RNG, n_trees=140, max_leaves=16, shape="oblivious"),
}


#: (Documents, threads when scored with parameters) of each batch; the last batch is cut into blocks.
BATCHES = ((1, 1), (9, 2), (301, 1), (700, 3))


def answers(engine: Any, forest: Forest, params: dict[str, int], n_threads: tuple[int, ...]) -> list[bytes]:
    """Scores and leaves of the batches, as bytes: exact sums reveal any change in the order of trees."""
    got = []
    for precision in ("exact", "fast"):
        program = engine.prepare(forest, precision, params=params)
        for (n, _), threads in zip(BATCHES, n_threads, strict=True):
            X = probing_documents(np.random.default_rng(n), forest, n)
            sums = np.empty((n, forest.n_outputs), program.values.sum_dtype)
            engine.score(program, X, sums, threads)
            got.append(sums.tobytes())
            if precision == "exact":
                leaves = np.empty((n, forest.n_trees), np.int32)
                engine.leaves(program, X, leaves, threads)
                got.append(leaves.tobytes())
    return got


@cache
def wanted(name: str, kind: str) -> list[bytes]:
    return answers(ENGINES[name], FORESTS[kind], {}, (1,) * len(BATCHES))


def asked(name: str, kind: str, **params: int) -> list[bytes]:
    return answers(ENGINES[name], FORESTS[kind], params, tuple(threads for _, threads in BATCHES))


@pytest.mark.parametrize(
    ("name", "parameter", "kind"),
    [(name, p, kind) for name, p in TUNED for kind, f in FORESTS.items() if ENGINES[name].why_not(f) is None],
    ids=lambda v: getattr(v, "name", v),
)
def test_no_value_changes_a_bit(name: str, parameter: Parameter, kind: str) -> None:
    n_trees = FORESTS[kind].n_trees
    odd = {1, 2, 7, 33, n_trees, n_trees + 1, parameter.lowest, parameter.highest}
    for value in sorted(value for value in odd if parameter.lowest <= value <= parameter.highest):
        assert asked(name, kind, **{parameter.name: value}) == wanted(name, kind), value


@pytest.mark.parametrize("engine", ON_CPU, ids=lambda engine: engine.name)
def test_all_parameters_at_their_ends(engine: Any) -> None:
    kind = next(kind for kind, forest in FORESTS.items() if engine.why_not(forest) is None)
    for end in ("lowest", "highest"):
        ends = {parameter.name: getattr(parameter, end) for parameter in engine.parameters}
        assert asked(engine.name, kind, **ends) == wanted(engine.name, kind)


@every_parameter
def test_values_out_of_range_are_refused(name: str, parameter: Parameter) -> None:
    engine, forest = ENGINES[name], next(f for f in FORESTS.values() if ENGINES[name].why_not(f) is None)
    for value in (parameter.lowest - 1, parameter.highest + 1, -(10**400)):
        with pytest.raises(ValueError, match=rf"^{parameter.name} of engine '{name}' must be in \["):
            engine.prepare(forest, "exact", params={parameter.name: value})
    for wrong in (1.0, "1", None, True, float("nan")):
        with pytest.raises(TypeError, match=f"^{parameter.name} of engine '{name}' must be an integer"):
            engine.prepare(forest, "exact", params={parameter.name: wrong})


@pytest.mark.parametrize("engine", ON_CPU, ids=lambda engine: engine.name)
def test_unknown_parameters_are_refused(engine: Any) -> None:
    forest = next(forest for forest in FORESTS.values() if engine.why_not(forest) is None)
    with pytest.raises(ValueError, match=f"engine '{engine.name}' has no parameter 'tau'; it has "):
        engine.prepare(forest, "exact", params={"tau": 1})


@every_parameter
def test_parameters_say_what_they_are(name: str, parameter: Parameter) -> None:
    assert parameter.lowest <= parameter.default <= parameter.highest and parameter.meaning
    assert [p.name for p in ENGINES[name].parameters].count(parameter.name) == 1


def test_all_ways_to_say_the_same_are_the_same() -> None:
    parameters = ENGINES["walk"].parameters
    block, documents, _ = parameters
    asked = {documents.name: 7, block.name: block.default}
    assert changed("walk", parameters, asked) == changed("walk", parameters, {documents.name: np.int64(7)})
    assert changed("walk", parameters, {documents.name: documents.default}) == ()


def test_small_tree_blocks_of_wide_forests_take_bounded_memory() -> None:
    """A block of one tree each would take a list for every column and tree."""
    wide = random_forest(np.random.default_rng(0), n_trees=3000, max_leaves=9, n_features=20_000)
    offsets = tree_blocks(wide, 1)
    n_columns = len(np.unique(wide.feature))
    assert n_columns > 5000 and (len(offsets) - 1) * n_columns <= MAX_BOUNDS
    assert offsets[0] == 0 and offsets[-1] == 3000 and (np.diff(offsets) > 0).all()


def test_programs_are_kept_for_each_choice_of_parameters() -> None:
    programs = Programs(FORESTS["exact"])
    made = [programs.get("walk", "exact", None, params=params) for params in ((), (("tree_block", 3),), ())]
    assert made[0] is made[2] is not made[1]
    trial = programs.trial("walk", (("tree_block", 5),), False, HOST, machine())
    assert programs.get("walk", "exact", None, params=(("tree_block", 5),)) is not trial
    programs.keep(trial, "walk", (("tree_block", 9),), False, HOST, machine())
    assert programs.get("walk", "exact", None, params=(("tree_block", 9),)) is trial
    assert programs.trial("walk", (("tree_block", 9),), False, HOST, machine()) is trial
