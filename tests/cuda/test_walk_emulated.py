"""The walks' kernels, run by the emulation: equal to `reference` bit for bit, in both precisions."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest
from emulation.device import RTX3090, EmulatedDevice, QueuedKernel
from emulation.memory import to_host
from emulation.module import ORDERS
from forests import probing_documents, random_forest
from gpu_conformance import CASES, INTEGERS, OF_BITS, STRIDED, Case, expected, of_categories, of_integers, rounded_twice
from gpu_conformance import check_walks as check
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from strategies import Drawn, forests

from gpuqs.engines.gpu import walk_placed
from gpuqs.engines.gpu.bitslice_gpu import BitsliceGpu
from gpuqs.engines.gpu.qs_gpu import QsGpu
from gpuqs.engines.gpu.walk_gpu import WalkGpu
from gpuqs.engines.gpu.walk_placed import WalkSettings
from gpuqs.engines.reference import Reference
from gpuqs.forest import CATEGORICAL, WHOLE_CODES
from gpuqs.model import Model

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation needs g++")

#: Several parts in each case, and fewer threads than a part has trees.
PARTS = WalkSettings(part_trees=50, threads=128)
#: No room for columns in shared memory.
WHERE_THEY_ARE = WalkSettings(part_trees=50, threads=128, shared=1)


@pytest.fixture(scope="module")
def forward() -> EmulatedDevice:
    return EmulatedDevice()


@pytest.mark.parametrize("case", [*CASES, *OF_BITS], ids=lambda case: case.name)
def test_equals_reference(forward: EmulatedDevice, case: Case) -> None:
    check(forward, *case.make())


@pytest.mark.parametrize("order", ORDERS[1:])
@pytest.mark.parametrize("case", [*CASES, *OF_BITS], ids=lambda case: case.name)
def test_parts_in_other_orders_of_threads(order: str, case: Case) -> None:
    check(EmulatedDevice(order), *case.make(), PARTS)


@pytest.mark.parametrize("name", ["many leaves", "category sets, float32 documents", "vector leaves", "float32 forest"])
def test_columns_are_read_where_they_are(forward: EmulatedDevice, name: str) -> None:
    case = next(case for case in CASES if case.name == name)
    check(forward, *case.make(), WHERE_THEY_ARE)


@pytest.mark.parametrize("seed", range(10))
def test_random_forests_and_settings(forward: EmulatedDevice, seed: int) -> None:
    rng = np.random.default_rng(300 + seed)
    forest = random_forest(
        rng,
        n_trees=int(rng.integers(1, 90)),
        max_leaves=int(rng.choice([1, 2, 3, 31, 64, 65, 130])),
        n_features=int(rng.integers(1, 40)),
        shape=str(rng.choice(["random", "chain", "complete", "oblivious"])),
        n_thresholds=int(rng.integers(14, 60)),
        n_outputs=int(rng.choice([1, 1, 1, 4, 70])),
        input_dtype=str(rng.choice(["float32", "float64"])),
    )
    if rng.random() < 0.3:
        forest = replace(forest, left=forest.right, right=forest.left)
    chosen = WalkSettings(
        part_trees=int(rng.choice([1, 7, 32, 512])),
        threads=int(rng.choice([128, 256, 544])),
        shared=int(rng.choice([1, 48 << 10])),
    )
    dtype = np.float32 if rng.random() < 0.5 else np.float64
    check(forward, forest, probing_documents(rng, forest, int(rng.integers(1, 50)), dtype), chosen)


@settings(max_examples=15, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate, Phase.shrink],
          suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])  # fmt: skip
@given(forests(max_nodes=800), st.sampled_from([0, 1, 31, 33]), st.sampled_from([np.float64, np.float32]))
def test_generated_forests(forward: EmulatedDevice, drawn: Drawn, n: int, dtype: type) -> None:
    forest = drawn.forest()
    check(forward, forest, drawn.documents(forest, n, dtype))


@pytest.mark.parametrize("shape", ["chain", "complete"])
@pytest.mark.parametrize("turned", [False, True])
def test_trees_of_any_size(forward: EmulatedDevice, shape: str, turned: bool) -> None:
    rng = np.random.default_rng(17)
    leaves = 9_000 if shape == "chain" else 70_000  # nearly as deep as forests may be; more than others hold
    forest = random_forest(rng, n_trees=2, max_leaves=leaves, shape=shape, n_thresholds=500)
    if turned:
        forest = replace(forest, left=forest.right, right=forest.left)
    assert shape == "chain" or BitsliceGpu().why_not(forest) is not None
    check(forward, forest, probing_documents(rng, forest, 20))


@pytest.mark.parametrize("make", STRIDED)
def test_strided_documents(forward: EmulatedDevice, make) -> None:
    forest, documents = CASES[0].make()
    check(forward, forest, make(documents))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("integer_dtype", ["float32", "float64"])
def test_integer_documents(forward: EmulatedDevice, dtype: str, integer_dtype: str) -> None:
    check(forward, *of_integers(dtype, integer_dtype))


def test_integers_that_are_rounded_twice(forward: EmulatedDevice) -> None:
    assert check(forward, *rounded_twice()).leaves[:, 0].tolist() == [0, 0, 1]


@pytest.mark.parametrize("chosen", [None, WHERE_THEY_ARE], ids=["in shared memory", "where they are"])
@pytest.mark.parametrize("routing", range(CATEGORICAL, 2 * WHOLE_CODES, CATEGORICAL * 2))
def test_every_way_to_read_a_category(forward: EmulatedDevice, routing: int, chosen: WalkSettings | None) -> None:
    check(forward, *of_categories(routing), chosen)


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_whole_numbers_of_many_trees_are_split(n_outputs: int) -> None:
    """Each of a few documents' sums is split among several thread blocks, as many as the device has room for."""
    rng = np.random.default_rng(18)
    forest = random_forest(rng, n_trees=90, max_leaves=6, n_outputs=n_outputs)
    device = EmulatedDevice(attributes=replace(RTX3090, multiprocessors=12))
    for n, shares in ((1, 9), (3, 3), (5, 2), (7, 1), (40, 1)):
        check(device, forest, probing_documents(rng, forest, n), WalkSettings(part_trees=10))
        placed = WalkGpu(WalkSettings(part_trees=10)).prepare(forest, "fast", device=device).forest
        assert -(-placed.n_parts // placed._parts_each(n)) == shares


def test_more_documents_than_a_grid_has_room_for(forward: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(12)
    forest = random_forest(rng, n_trees=9, max_leaves=16)
    X = forward.from_host(probing_documents(rng, forest, 20))
    model = Model(forest).to(forward)
    asked = [{"output": output, "engine": "walk_gpu"} for output in ("raw", "leaf", "per_tree")]
    want = [to_host(model.predict(X, **how)) for how in asked]
    assert walk_placed.MAX_DOCUMENTS < 2**31
    monkeypatch.setattr(walk_placed, "MAX_DOCUMENTS", 7)
    launch, blocks = QueuedKernel.launch, []
    monkeypatch.setattr(QueuedKernel, "launch", lambda *launched: blocks.append(launched[1][0]) or launch(*launched))
    for how, right in zip(asked, want, strict=True):
        blocks.clear()
        np.testing.assert_array_equal(to_host(model.predict(X, **how)), right)
        assert blocks[:3] == [7, 7, 6]
    assert model.predict(X[:0], "raw", engine="walk_gpu").shape == (0,)


def test_many_documents_have_smaller_thread_blocks() -> None:
    """So that more of them run at once; the bits are the same."""
    rng = np.random.default_rng(19)
    forest = random_forest(rng, n_trees=300, max_leaves=6, n_outputs=70)
    device = EmulatedDevice(attributes=replace(RTX3090, multiprocessors=1))
    for n, threads in ((2, (320 + 96, 96)), (3, (256, 64))):
        placed = WalkGpu().prepare(forest, "exact", device=device).forest
        assert placed._threads(n) == threads
        check(device, forest, probing_documents(rng, forest, n))


@pytest.mark.parametrize("part_trees", [7, 100])
def test_sums_begin_with_what_is_there(part_trees: int) -> None:
    forward = EmulatedDevice()
    forest, documents = CASES[2].make()
    engine = WalkGpu(WalkSettings(part_trees=part_trees))
    with forward.active():
        for trees, rows in ((forest, documents), (forest, documents[:2]), (forest.select(slice(0, 0)), documents)):
            for precision, dtype in (("fast", np.int64), ("exact", np.float64)):
                program = engine.prepare(trees, precision, device=forward)
                before = expected(forest, rows).fast.astype(dtype)
                sums = forward.from_host(before)
                engine.score(program, forward.from_host(rows), sums, started=True)
                started = before.copy()
                reference = Reference()
                reference.score(reference.prepare(trees, precision), rows, started, 1, True)
                np.testing.assert_array_equal(forward.to_host(sums), started)


@pytest.mark.parametrize("max_leaves", [1, 16, 100])
def test_per_tree_values_are_the_exit_leaves(forward: EmulatedDevice, max_leaves: int) -> None:
    forest, documents = Case("", {"n_outputs": 2, "vector_leaves": True, "max_leaves": max_leaves}).make()
    engine = WalkGpu()
    with forward.active():
        program = engine.prepare(forest, "exact", device=forward)
        out = forward.empty((len(documents), forest.n_trees, 2), np.float64)
        engine.per_tree(program, forest, forward.from_host(documents), out)
    by_id = forest.leaf_offsets[:-1] + expected(forest, documents).leaves  # numbered by position in the forest
    np.testing.assert_array_equal(forward.to_host(out), forest.leaf_value[by_id])


def test_one_launch_from_row_to_score(forward: EmulatedDevice) -> None:
    forest, documents = CASES[2].make()
    placed = WalkGpu().prepare(forest, "exact", device=forward).forest
    forward.launched.clear()
    with forward.active():
        placed.score(forward.from_host(documents), forward.empty((len(documents), 1), np.float64))
    assert [file for file, _ in forward.launched] == ["walk_scores.cu"]


def test_auto_takes_it_where_no_other_holds_a_forest(forward: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    for engine in (QsGpu, BitsliceGpu):
        monkeypatch.setattr(engine, "why_not", lambda self, forest: "it is too large")
    forest, documents = CASES[2].make()
    model = Model(forest).to(forward)
    assert model.engine_for(len(documents)) == "walk_gpu"
    np.testing.assert_array_equal(model.predict(documents, "raw"), Model(forest).predict(documents, "raw"))


def test_auto_takes_what_explain_shows_as_cheapest(forward: EmulatedDevice) -> None:
    """For this forest the walk is cheaper up to some 200,000 documents."""
    forest = random_forest(np.random.default_rng(27), n_trees=30, max_leaves=64, n_features=5, shape="complete")
    model, taken = Model(forest).to(forward), set()
    for n in (0, 1, 1000, 10**5, 2**17 + 1, 10**6, 10**8):
        told = model.explain(n)
        costs = {choice.engine: choice.microseconds for choice in told.choices if choice.microseconds is not None}
        assert told.engine == min(costs, key=costs.__getitem__)
        taken.add(told.engine)
    assert taken == {"walk_gpu", "bitslice_gpu"}


def test_what_it_cannot_hold_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    forest = random_forest(np.random.default_rng(9), n_trees=1, max_leaves=64, shape="complete")
    assert WalkGpu().why_not(forest) is None
    monkeypatch.setattr("gpuqs.engines.gpu.walk_gpu.MAX_POSITIONS", 64)
    assert "30 bits" in str(WalkGpu().why_not(forest))
