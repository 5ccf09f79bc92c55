"""Leaves from left to right, against recursion; leaf values and the fixed-point grid."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from forests import random_forest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import Drawn, forests

from gpuqs.forest import Forest
from gpuqs.layout.leaves import FIXED_POINT_LIMIT, leaf_values, number_leaves


def leaves_in_order(
    forest: Forest, tree: int, child: int, ranges: dict[int, tuple[int, int, int]], at: int
) -> list[int]:
    """Leaves below ``child``, left to right, with ``at`` leaves to its left; records each node's ranges."""
    if child < 0:
        return [~child]
    node = int(forest.node_offsets[tree]) + child
    left = leaves_in_order(forest, tree, int(forest.left[node]), ranges, at)
    right = leaves_in_order(forest, tree, int(forest.right[node]), ranges, at + len(left))
    ranges[node] = (at, at + len(left), at + len(left) + len(right))
    return left + right


@settings(max_examples=60, deadline=None, derandomize=True)
@given(forests(max_nodes=600).filter(lambda d: d.fields["max_leaves"] <= 257))
def test_number_leaves_is_the_recursion(drawn: Drawn) -> None:
    forest = drawn.forest()
    got = number_leaves(forest)
    for tree in range(forest.n_trees):
        ranges: dict[int, tuple[int, int, int]] = {}
        root = 0 if forest.node_offsets[tree] < forest.node_offsets[tree + 1] else ~0
        order = leaves_in_order(forest, tree, root, ranges, 0)
        position = got.position[forest.leaf_offsets[tree] : forest.leaf_offsets[tree + 1]]
        assert position[order].tolist() == list(range(len(order)))
        for node, expected in ranges.items():
            assert (got.first[node], got.middle[node], got.end[node]) == expected


@pytest.mark.parametrize("sum_dtype", ["float64", "float32"])
@pytest.mark.parametrize("width", [1, 3])
def test_exact_values_are_the_leaves_weighted_in_the_sums_type(sum_dtype: str, width: int) -> None:
    rng = np.random.default_rng(1)
    forest = random_forest(
        rng,
        n_outputs=width,
        vector_leaves=width > 1,
        sum_dtype=sum_dtype,
        tree_weight=rng.normal(size=20),
        leaf_id=rng.integers(0, 1000, 20 * 16).astype(np.int32)[:0],
    )
    ranges = number_leaves(forest)
    got = leaf_values(forest, ranges.position, "exact")
    dtype = np.dtype(sum_dtype).type
    assert got.value.dtype == got.sum_dtype == dtype
    assert got.step == 0
    for tree in range(forest.n_trees):
        for leaf in range(forest.leaf_offsets[tree], forest.leaf_offsets[tree + 1]):
            place = got.offsets[tree] + ranges.position[leaf]
            expected = forest.leaf_value[leaf].astype(dtype) * dtype(forest.tree_weight[tree])
            np.testing.assert_array_equal(got.value[place], expected)
            assert got.leaf_id[place] == forest.leaf_id[leaf]


def sharing(n_vectors: int, max_leaves: int = 65, n_outputs: int = 80, **fields: object) -> Forest:
    """A forest whose leaves use ``n_vectors`` distinct vectors, with zeros of either sign."""
    rng = np.random.default_rng(3)
    forest = random_forest(
        rng, n_trees=9, max_leaves=max_leaves, shape="complete", n_outputs=n_outputs, vector_leaves=True, **fields
    )
    vectors = rng.choice([0.0, -0.0, 0.25, 1.0, 1 / 3], (n_vectors - 2, n_outputs))
    vectors = np.concatenate([vectors, np.zeros((1, n_outputs)), -np.zeros((1, n_outputs))])
    return replace(forest, leaf_value=vectors[np.arange(len(forest.leaf_value)) % n_vectors])


@pytest.mark.parametrize("precision", ["exact", "fast"])
@pytest.mark.parametrize("sum_dtype", ["float64", "float32"])
def test_shared_vectors_are_those_of_the_leaves(sum_dtype: str, precision: str) -> None:
    forest = sharing(9, sum_dtype=sum_dtype, tree_weight=np.array([1.0, 0.5, 1.0] * 3))
    position = number_leaves(forest).position
    own, shared = (leaf_values(forest, position, precision, shared=s) for s in (False, True))
    assert len(own.row) == 0 and shared.row.dtype == np.int32 and shared.value.dtype == own.value.dtype
    assert len(shared.value) == 9 + 7, "zeros of either sign are the same by any weight"
    assert shared.value[shared.row].tobytes() == own.value.tobytes()
    np.testing.assert_array_equal(shared.leaf_id, own.leaf_id)


def rows_of(forest: Forest) -> int:
    values = leaf_values(forest, number_leaves(forest).position, "exact", shared=True)
    assert len(values.row) in (0, len(forest.leaf_value))
    return len(values.value) if len(values.row) else 0


def test_vectors_are_shared_where_that_pays_alone() -> None:
    rng = np.random.default_rng(4)
    assert rows_of(sharing(9)) == 9
    assert rows_of(sharing(9, max_leaves=64, n_outputs=300)) == 0, "tables hold the trees"
    assert rows_of(sharing(9, n_outputs=31)) == 0, "an L1 cache holds a tree's"
    assert rows_of(random_forest(rng, n_trees=1, max_leaves=3000, shape="complete")) == 0, "one value a leaf"
    assert rows_of(sharing(36)) == 36 and rows_of(sharing(37)) == 0, "a sixteenth of 585 leaves"
    assert rows_of(sharing(200, 600, 160)) == 200 and rows_of(sharing(206, 600, 160)) == 0, "more than 256 KiB"


@pytest.mark.parametrize("base_first", [True, False])
@pytest.mark.parametrize("precision", ["exact", "fast"])
def test_the_base_score_is_added_once(base_first: bool, precision: str) -> None:
    forest = random_forest(np.random.default_rng(2), n_outputs=2, base_first=base_first)
    values = leaf_values(forest, number_leaves(forest).position, precision)
    started_at = values.start * (values.step or 1.0)
    np.testing.assert_array_equal(started_at + values.add_last, forest.base_score)
    assert (values.start != 0).any() == (base_first and precision == "exact")


magnitudes = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(magnitudes, min_size=2, max_size=20))
def test_fixed_point_is_within_half_a_step_of_every_leaf(leaves: list[float]) -> None:
    forest = stump_per_pair(leaves)
    got = leaf_values(forest, number_leaves(forest).position, "fast")
    exact = leaf_values(forest, number_leaves(forest).position, "exact").value
    assert got.value.dtype == np.int32 and got.sum_dtype == np.int64
    assert np.abs(got.value.astype(np.int64)).max() <= FIXED_POINT_LIMIT
    mantissa, _ = np.frexp(got.step)
    assert mantissa == 0.5, "the step is a power of two"
    # Scaled by exact powers of two before they are compared, so that nothing overflows.
    error = np.abs(exact / 2 - got.value * (got.step / 2))
    assert (error <= got.step / 4).all()


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20))
def test_the_grid_is_as_fine_as_24_bits_allow(leaves: list[float]) -> None:
    forest = stump_per_pair(leaves)
    got = leaf_values(forest, number_leaves(forest).position, "fast")
    largest = np.abs(leaves).max()
    if largest > 1e-300:
        assert largest / (got.step / 2) >= FIXED_POINT_LIMIT - 0.5, "half the step would not have been enough"


def stump_per_pair(leaves: list[float]) -> Forest:
    n = len(leaves) // 2
    return Forest(
        n_features=1,
        node_offsets=np.arange(n + 1),
        leaf_offsets=np.arange(n + 1) * 2,
        feature=np.zeros(n, np.int32),
        threshold=np.zeros(n),
        left=np.full(n, ~0, np.int32),
        right=np.full(n, ~1, np.int32),
        routing=np.zeros(n, np.uint8),
        leaf_value=np.array(leaves[: 2 * n])[:, None],
    )
