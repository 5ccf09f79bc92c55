"""Rank coding loses nothing: ranks decide every test as the values themselves do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from forests import forest_of_stumps, random_forest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuqs.forest import NAN_LEFT
from gpuqs.layout.columns import find_columns
from gpuqs.layout.ranks import (
    MAX_THRESHOLDS,
    REGISTER_FLOATS,
    RankTables,
    build_ranks,
    most_thresholds,
    search_levels,
)


def searched_ranks(tables: RankTables, column: int, x: np.ndarray) -> np.ndarray:
    """What the documented search through a column's levels gives float32 values."""
    n_bits = int(tables.n_bits[column])
    at = int(tables.level_offsets[column])
    answers = np.zeros(len(x), np.int64)
    rank = np.zeros(len(x), np.int64)
    for level in range(n_bits):
        answer = ~(x <= tables.levels[at : at + (1 << level)][answers])
        answers |= answer.astype(np.int64) << level
        rank |= answer.astype(np.int64) << (n_bits - 1 - level)
        at += max(1 << level, REGISTER_FLOATS)
    return rank


def around(threshold: np.ndarray, dtype: type) -> np.ndarray:
    """Every threshold in ``dtype``, its neighbours, and values far from all."""
    with np.errstate(over="ignore"):
        t = np.unique(np.asarray(threshold, np.float64).astype(dtype))
        near = [t, np.nextafter(t, dtype(np.inf)), np.nextafter(t, dtype(-np.inf))]
        far = np.array([0.0, -0.0, 1e-45, -1e-45, 1e38, -1e38, np.inf, -np.inf], dtype)
    return np.concatenate([*near, far])


finite32 = st.floats(width=32, allow_nan=False)
any_float = st.floats(allow_nan=False)
#: Clusters of float64 thresholds between two neighbouring float32, where rounding would merge them.
clusters = st.tuples(st.floats(-1e3, 1e3, width=32), st.lists(st.integers(-3, 3), min_size=1, max_size=8)).map(
    lambda c: [float(np.float32(c[0])) + k * float(np.spacing(np.float32(c[0]))) / 4 for k in c[1]]
)
threshold_lists = st.one_of(
    st.lists(any_float, min_size=1, max_size=40), st.lists(finite32, min_size=1, max_size=40), clusters
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(threshold_lists, st.lists(any_float, max_size=10))
@example([np.inf], [])
@example([-np.inf, np.inf, 0.0, -0.0], [])
@example([1e300, -1e300, 3.4028234663852886e38], [])
@example(list(range(255)), [])
@example(list(range(256)), [])
@example(list(range(257)), [])
def test_float32_values_are_ranked_without_loss(thresholds: list[float], values: list[float]) -> None:
    forest = forest_of_stumps(np.array(thresholds), np.random.default_rng(0))
    tables = build_ranks(forest)
    with np.errstate(over="ignore"):
        x = np.concatenate([around(forest.threshold, np.float32), np.array(values, np.float64).astype(np.float32)])
    rank = searched_ranks(tables, 0, x)
    for node in range(forest.n_nodes):
        expected = x.astype(np.float64) > forest.threshold[node]
        np.testing.assert_array_equal(rank > tables.of_node[node], expected)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(threshold_lists, st.lists(any_float, max_size=10))
@example([-np.inf, np.inf, 0.0, -0.0], [])
@example([5e-324, -5e-324, 0.0, 1e-45], [1e-320])
def test_float64_values_are_ranked_without_loss(thresholds: list[float], values: list[float]) -> None:
    """The float32 either side of a value bound its rank; `threshold` decides between them."""
    forest = forest_of_stumps(np.array(thresholds), np.random.default_rng(0))
    tables = build_ranks(forest)
    x = np.concatenate([around(forest.threshold, np.float64), values])
    distinct = tables.threshold[tables.offsets[0] : tables.offsets[1]]
    rank = np.searchsorted(distinct, x, "left")
    for node in range(forest.n_nodes):
        np.testing.assert_array_equal(rank > tables.of_node[node], x > forest.threshold[node])
    with np.errstate(over="ignore"):
        above = x.astype(np.float32)
        below = above.copy()
        low, high = above.astype(np.float64) < x, above.astype(np.float64) > x
        above[low] = np.nextafter(above[low], np.float32(np.inf))
        below[high] = np.nextafter(below[high], np.float32(-np.inf))
    assert (searched_ranks(tables, 0, below) <= rank).all()
    assert (rank <= searched_ranks(tables, 0, above)).all()


@pytest.mark.parametrize("n", [1, 2, 3, 4, 15, 16, 17, 254, 255, 256, 257, 4095, 4096, MAX_THRESHOLDS])
def test_every_number_of_thresholds(n: int) -> None:
    threshold = np.arange(n, dtype=np.float64)
    n_bits = n.bit_length()
    levels = search_levels(threshold, n_bits)
    assert levels.dtype == np.float32
    assert len(levels) == sum(max(1 << level, REGISTER_FLOATS) for level in range(n_bits))
    tables = build_ranks(forest_of_stumps(np.random.default_rng(0).permutation(threshold), np.random.default_rng(1)))
    assert tables.n_bits.tolist() == [n_bits]
    np.testing.assert_array_equal(tables.levels, levels)
    x = np.arange(-1, n + 1, dtype=np.float32)
    np.testing.assert_array_equal(searched_ranks(tables, 0, x), np.clip(np.arange(n + 2) - 1, 0, n))
    np.testing.assert_array_equal(searched_ranks(tables, 0, x + np.float32(0.5)), np.clip(np.arange(n + 2), 0, n))


def test_one_threshold_too_many() -> None:
    forest = forest_of_stumps(np.arange(MAX_THRESHOLDS + 1.0), np.random.default_rng(0))
    assert most_thresholds(find_columns(forest)) == MAX_THRESHOLDS + 1
    with pytest.raises(ValueError, match=f"more than {MAX_THRESHOLDS} thresholds"):
        build_ranks(forest)


def test_missing_values_rank_above_all_and_are_marked_where_a_test_sends_them_left() -> None:
    forest = forest_of_stumps(np.arange(5.0), np.random.default_rng(0))
    nan = np.array([np.nan], np.float32)
    for routing, marked in ((np.zeros(5, np.uint8), 0), (np.full(5, NAN_LEFT, np.uint8), 1)):
        tables = build_ranks(replace(forest, routing=routing))
        assert searched_ranks(tables, 0, nan).tolist() == [(1 << tables.n_bits[0]) - 1]
        assert tables.marks_missing.tolist() == [marked]
        assert tables.plane_offsets.tolist() == [0, 3 + marked]


def test_columns_share_thresholds_of_equal_value_only() -> None:
    forest = random_forest(np.random.default_rng(4), n_trees=30, n_thresholds=9)
    tables = build_ranks(forest)
    for column in range(len(tables.columns)):
        own = tables.threshold[tables.offsets[column] : tables.offsets[column + 1]]
        nodes = tables.columns.of_node == column
        np.testing.assert_array_equal(own, np.unique(forest.threshold[nodes]))
        np.testing.assert_array_equal(own[tables.of_node[nodes]], forest.threshold[nodes])
        planes = tables.plane_offsets[column + 1] - tables.plane_offsets[column]
        assert planes == tables.n_bits[column] + tables.marks_missing[column]
    assert np.diff(tables.offsets).max() <= most_thresholds(find_columns(forest)) <= MAX_THRESHOLDS


def test_no_nodes() -> None:
    forest = random_forest(np.random.default_rng(0), max_leaves=1)
    tables = build_ranks(forest)
    assert len(tables.columns) == len(tables.threshold) == most_thresholds(find_columns(forest)) == 0
    assert tables.plane_offsets.tolist() == [0]
