"""All variants of `walk`, over nodes and leaves and over nodes only, equal `reference`.

`walk` uses nodes-only walks only where they are known to be faster; here they run wherever a kernel exists. It uses
wide links only for trees with many leaves over many columns; here for all trees.
"""

from __future__ import annotations

import numpy as np
import pytest
from forests import joined, leaning_forest, probing_documents, random_forest

from gpuqs.cpu_fallback import Machine
from gpuqs.engines import ENGINES
from gpuqs.engines.parameters import Params
from gpuqs.forest import Forest
from gpuqs.layout import walk

WALK, REFERENCE = ENGINES["walk"], ENGINES["reference"]


@pytest.fixture(autouse=True, params=["nodes alone", "nodes and leaves", "wide links"])
def nodes_alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr("gpuqs.engines.walk.gathers", lambda machine: True)
    try:
        WALK.prepare(random_forest(np.random.default_rng(0), n_trees=1), "exact")
        can = True
    except ValueError as error:
        assert "has no walks over nodes alone" in str(error)
        can = False
    if request.param == "nodes alone" and not can:
        pytest.skip("no instruction set that is here has walks over nodes alone")
    monkeypatch.setattr("gpuqs.engines.walk.gathers", lambda machine: can and request.param != "nodes and leaves")
    if request.param == "wide links":
        monkeypatch.setattr("gpuqs.layout.walk.MAX_SHORT_LEAVES", 0)
    return request.param == "nodes alone"


def check(forest: Forest, X: np.ndarray, params: Params, n_threads: int = 1) -> None:
    """Exit leaves and exact sums."""
    program, expected = WALK.prepare(forest, "exact", params=params), REFERENCE.prepare(forest, "exact")
    leaves, want = (np.full((len(X), forest.n_trees), -7, np.int32) for _ in range(2))
    WALK.leaves(program, X, leaves, n_threads)
    REFERENCE.leaves(expected, X, want)
    np.testing.assert_array_equal(leaves, want)
    sums, sums_wanted = (np.full((len(X), forest.n_outputs), 7, expected.values.sum_dtype) for _ in range(2))
    WALK.score(program, X, sums, n_threads)
    REFERENCE.score(expected, X, sums_wanted)
    assert sums.tobytes() == sums_wanted.tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("max_leaves", [1, 2, 3, 16, 400])
@pytest.mark.parametrize("n", [0, 1, 2, 15, 16, 17, 31, 64, 65, 300])
def test_any_number_of_documents(n: int, max_leaves: int, dtype: type) -> None:
    """Single-leaf trees come before, between and after others; lists and registers end in the middle of a tree."""
    rng = np.random.default_rng(n * 1000 + max_leaves)
    forest = random_forest(rng, n_trees=1 + 90 // max_leaves, max_leaves=max_leaves, n_features=5)
    X = probing_documents(rng, forest, n, dtype)
    for params in (
        {},
        {"tree_block": 1},
        {"tree_block": 7},
        {"document_block": 16},
        {"document_block": 40, "tree_block": 3},
    ):
        check(forest, X, params)


@pytest.mark.parametrize("n", [1, 3, 15, 16, 40])
def test_many_trees(n: int) -> None:
    """More trees than a list holds."""
    rng = np.random.default_rng(n)
    forest = random_forest(rng, n_trees=2_500, max_leaves=4, n_features=3)
    X = probing_documents(rng, forest, n, np.float32)
    for tree_block in (512, 4096):
        check(forest, X, {"tree_block": tree_block}, n_threads=2)


@pytest.mark.parametrize("shape", ["chain", "complete"])
@pytest.mark.parametrize("values", ["without missing", "all missing", "some missing"])
def test_deep_trees_and_missing_values(shape: str, values: str) -> None:
    rng = np.random.default_rng(3)
    forest = random_forest(rng, n_trees=9, max_leaves=1024, shape=shape, n_features=2, n_thresholds=500)
    X = rng.normal(size=(333, 2))
    if values == "all missing":
        X[:] = np.nan
    elif values == "some missing":
        X[rng.random(X.shape) < 0.4] = np.nan
    for dtype in (np.float64, np.float32):
        check(forest, X.astype(dtype), {})
        check(forest, X[:9].astype(dtype), {})


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("shape", "leaves"), [("random", 3000), ("chain", 700), ("zigzag", 900), ("complete", 600)])
def test_walks_below_tops(shape: str, leaves: int, dtype: type) -> None:
    """Words of documents (the last partly filled), tree blocks, and trees that consist of a top only."""
    rng = np.random.default_rng(leaves)
    sizes = (leaves, 1, leaves, 255, leaves)
    trees = [random_forest(rng, n_trees=9, max_leaves=n, shape=shape, n_thresholds=700) for n in sizes]
    forest = joined(trees)
    X = probing_documents(rng, forest, 1500, dtype)
    for n in (63, 64, 127, 128, 255, 256, 257, 700, 1500):
        check(forest, X[:n], {})
    for params in ({"tops": 0}, {"tree_block": 7}, {"document_block": 300}, {"document_block": 300, "tree_block": 1}):
        check(forest, X, params, n_threads=3)


@pytest.mark.parametrize("small", [(1, 2), (2, 1), (1, 1, 2), (1, 1), (2, 2), (1, 3, 1, 2)], ids=str)
def test_tree_blocks_of_a_node_or_none_below_tops(small: tuple[int, ...]) -> None:
    """Each tree block handles all words of documents before the next one starts."""
    rng = np.random.default_rng(len(small))
    sizes = (600, *small, 600, 600, 600, 600)
    forest = joined([random_forest(rng, n_trees=1, max_leaves=n, shape="complete") for n in sizes])
    X = probing_documents(rng, forest, 1100, np.float32)
    for params in ({}, {"tree_block": 1}, {"tree_block": 2}):
        for n_threads in (1, 2, 3):
            check(forest, X, params, n_threads)


@pytest.mark.parametrize("fields", [
    {"input_dtype": "float32"}, {"n_outputs": 3}, {"n_outputs": 2, "vector_leaves": True}, {"categorical": 0.4},
    {"n_features": 700, "n_thresholds": 20},
], ids=str)  # fmt: skip
@pytest.mark.parametrize(("max_leaves", "sizes"), [(60, (5, 100)), (1200, (5, 300))])
def test_forests_of_all_kinds(fields: dict, max_leaves: int, sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(8)
    forest = random_forest(rng, n_trees=40, max_leaves=max_leaves, **fields)
    for n in sizes:
        for dtype in (np.float64, np.float32):
            check(forest, probing_documents(rng, forest, n, dtype), {})


def test_no_trees() -> None:
    forest = random_forest(np.random.default_rng(0), n_trees=0)
    for n in (0, 3, 40):
        check(forest, np.zeros((n, forest.n_features)), {})


@pytest.mark.parametrize("most", [1, 50, 200])
def test_blocks_that_would_be_too_large(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tree blocks are limited by their number of items, document blocks by their number of values."""
    monkeypatch.setattr(walk, "MAX_TOGETHER", most)
    monkeypatch.setattr(walk, "MAX_VALUES", most)
    rng = np.random.default_rng(most)
    forest = random_forest(rng, n_trees=40, max_leaves=60)
    for n in (3, 100):
        check(forest, probing_documents(rng, forest, n), {})


@pytest.mark.parametrize("n_left", [1 << 19, 1 << 20])
def test_links_of_all_bits(n_left: int) -> None:
    """A left-leaning tree whose root's link has the highest of 32 bits set, and one that needs one more bit."""
    forest = leaning_forest(n_left, 600)
    X = np.random.default_rng(1).normal(size=(40, 600)) - 0.5
    X[::5, 0] = 9.0  # to the right of the root
    for rows in (X, X[:7]):
        check(forest, rows, {})


@pytest.mark.parametrize("nodes_alone", ["nodes alone"], indirect=True)
def test_a_set_without_gathers_refuses_the_layout(nodes_alone: bool) -> None:
    with pytest.raises(ValueError, match="portable has no walks over nodes alone"):
        WALK.prepare(random_forest(np.random.default_rng(0)), "exact", machine=Machine("portable", False))
