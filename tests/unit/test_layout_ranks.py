"""Rank coding loses nothing: ranks decide every test as the values themselves do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from forests import forest_of_columns, forest_of_stumps, random_forest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuqs.forest import NAN_LEFT
from gpuqs.layout.columns import find_columns, round_down
from gpuqs.layout.ranks import (
    MAX_LEVELS,
    MAX_THRESHOLDS,
    NO_ROWS,
    REGISTER_FLOATS,
    RankTables,
    build_ranks,
    count_tests,
    level_tables,
    max_thresholds,
    search_tables,
)


def searched_ranks(tables: RankTables, column: int, x: np.ndarray, max_levels: int = MAX_LEVELS) -> np.ndarray:
    """Ranks of float32 values by the documented search, with at most ``max_levels`` binary levels."""
    n_bits = int(tables.n_bits[column])
    of_rows = -(-max(n_bits - max_levels, 0) // 3) * 3
    at = int(tables.level_offsets[column])
    answers = np.zeros(len(x), np.int64)
    rank = np.zeros(len(x), np.int64)
    for level in range(min(n_bits, MAX_LEVELS)):
        if level < n_bits - of_rows:
            answer = ~(x <= tables.levels[at : at + (1 << level)][answers])
            answers |= answer.astype(np.int64) << level
            rank |= answer.astype(np.int64) << (n_bits - 1 - level)
        at += max(1 << level, REGISTER_FLOATS)
    for level in range(3 + n_bits % 3, n_bits, 3) if n_bits > NO_ROWS else ():
        if level >= n_bits - of_rows:
            rows = tables.levels[at : at + (8 << level)].reshape(-1, 8)[answers]
            below = (~(x[:, None] <= rows[:, :7])).sum(1)
            rank |= below << (n_bits - 3 - level)
            answers |= (below >> 2 & 1 | below & 2 | (below & 1) << 2) << level
        at += 8 << level
    return rank


def around(threshold: np.ndarray, dtype: type) -> np.ndarray:
    """Every threshold in ``dtype``, its neighbours, and values far from all thresholds."""
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
    np.testing.assert_array_equal(searched_ranks(tables, 0, x, NO_ROWS), rank)
    for node in range(forest.n_nodes):
        expected = x.astype(np.float64) > forest.threshold[node]
        np.testing.assert_array_equal(rank > tables.of_node[node], expected)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(threshold_lists, st.lists(any_float, max_size=10))
@example([-np.inf, np.inf, 0.0, -0.0], [])
@example([5e-324, -5e-324, 0.0, 1e-45], [1e-320])
def test_float64_values_are_ranked_without_loss(thresholds: list[float], values: list[float]) -> None:
    """The largest float32 not above a value gives its rank, unless thresholds round to the same float32."""
    forest = forest_of_stumps(np.array(thresholds), np.random.default_rng(0))
    tables = build_ranks(forest)
    x = np.concatenate([around(forest.threshold, np.float64), values])
    distinct = tables.threshold[tables.offsets[0] : tables.offsets[1]]
    rank = np.searchsorted(distinct, x, "left")
    for node in range(forest.n_nodes):
        np.testing.assert_array_equal(rank > tables.of_node[node], x > forest.threshold[node])
    below = round_down(x)
    at_least = searched_ranks(tables, 0, below)
    tie = np.isin(below, round_down(distinct))
    np.testing.assert_array_equal(at_least[~tie], rank[~tie])
    for value, first in zip(x[tie], at_least[tie], strict=True):
        assert rank[x == value][0] == first + np.count_nonzero(distinct[first:] < value)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 15, 16, 17, 254, 255, 256, 257, 4095, 4096, MAX_THRESHOLDS])
def test_every_number_of_thresholds(n: int) -> None:
    threshold = np.arange(n, dtype=np.float64)
    n_bits = n.bit_length()
    levels, starts = search_tables(threshold, np.array([0, n]), np.array([n_bits], np.uint8))
    assert levels.dtype == np.float32 and starts.tolist() == [0]
    n_floats = sum(max(1 << level, REGISTER_FLOATS) for level in range(min(n_bits, MAX_LEVELS)))
    if n_bits > NO_ROWS:
        n_floats += sum(8 << level for level in range(n_bits - 3, 2, -3))
    assert len(levels) == n_floats
    tables = build_ranks(forest_of_stumps(np.random.default_rng(0).permutation(threshold), np.random.default_rng(1)))
    assert tables.n_bits.tolist() == [n_bits]
    np.testing.assert_array_equal(tables.levels, levels)
    x = np.arange(-1, n + 1, dtype=np.float32)
    for max_levels in (NO_ROWS, MAX_LEVELS):
        ranks = searched_ranks(tables, 0, x, max_levels), searched_ranks(tables, 0, x + np.float32(0.5), max_levels)
        np.testing.assert_array_equal(ranks[0], np.clip(np.arange(n + 2) - 1, 0, n))
        np.testing.assert_array_equal(ranks[1], np.clip(np.arange(n + 2), 0, n))


def descended_ranks(table: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Ranks by a column's level tables, for values of their type."""
    n_bits = len(table).bit_length()
    assert len(table) == (1 << n_bits) - 1
    answers, rank = np.zeros(len(x), np.int64), np.zeros(len(x), np.int64)
    for level in range(n_bits):
        answer = (~(table[(1 << level) - 1 + answers] >= x)).astype(np.int64)
        answers |= answer << level
        rank |= answer << (n_bits - 1 - level)
    return rank


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_level_tables_rank_without_loss(dtype: type) -> None:
    rng = np.random.default_rng(3)
    lengths = [1, 2, 3, 4, 127, 128, 255, 256, 511, 512, 2047, 2048, MAX_THRESHOLDS]
    forest = forest_of_columns(rng, lengths, infinite=True)
    ranks = build_ranks(forest)
    tables, offsets = level_tables(ranks, dtype)
    assert tables.dtype == dtype and offsets[-1] == len(tables)
    for column, n in enumerate(lengths):
        threshold = ranks.threshold[ranks.offsets[column] : ranks.offsets[column + 1]]
        assert len(threshold) == n
        x = np.append(around(threshold, dtype), dtype(np.nan))
        got = descended_ranks(tables[offsets[column] : offsets[column + 1]], x)
        want = np.searchsorted(threshold, x[:-1].astype(np.float64), "left")
        np.testing.assert_array_equal(got, np.append(want, (1 << int(ranks.n_bits[column])) - 1))


def test_no_columns_have_no_level_tables() -> None:
    tables, offsets = level_tables(build_ranks(random_forest(np.random.default_rng(0), max_leaves=1)), np.float32)
    assert (tables.size, offsets.tolist()) == (0, [0])


def test_one_threshold_too_many() -> None:
    forest = forest_of_stumps(np.arange(MAX_THRESHOLDS + 1.0), np.random.default_rng(0))
    assert max_thresholds(find_columns(forest)) == MAX_THRESHOLDS + 1
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
    assert np.diff(tables.offsets).max() <= max_thresholds(find_columns(forest)) <= MAX_THRESHOLDS


def test_no_nodes() -> None:
    forest = random_forest(np.random.default_rng(0), max_leaves=1)
    tables = build_ranks(forest)
    assert len(tables.columns) == len(tables.threshold) == max_thresholds(find_columns(forest)) == 0
    assert tables.plane_offsets.tolist() == [0]


@pytest.mark.parametrize("kind", ["alike", "distinct", "columns", "float32"])
@pytest.mark.parametrize("n", [100, 40_000, 300_000])
def test_distinct_tests_are_counted(n: int, kind: str) -> None:
    """Counts for many nodes: hashes distinguish tests, whatever bits their thresholds share."""
    rng = np.random.default_rng(n)
    threshold = {
        "alike": rng.integers(0, 255, n) / 8,
        "distinct": np.arange(n) * 0.5,
        "columns": np.zeros(n),
        "float32": rng.normal(size=n).astype(np.float32).astype(np.float64),
    }[kind]
    forest = forest_of_stumps(threshold, rng)
    if kind == "columns":
        forest = replace(forest, n_features=n, feature=np.arange(n, dtype=np.int32))
    distinct = len(np.unique(np.stack([forest.feature.astype(float), threshold]), axis=1)[0])
    assert count_tests(forest) == (distinct if n == 100 else pytest.approx(distinct, rel=0.05))
