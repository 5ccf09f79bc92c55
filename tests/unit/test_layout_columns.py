"""Columns: features and how their zeros are read; thresholds rounded down."""

from __future__ import annotations

import gc
import weakref

import numpy as np
from forests import random_forest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuqs.forest import CATEGORICAL, NAN_LEFT, ZERO_MISSING
from gpuqs.layout.columns import find_columns, round_down


def test_columns_are_the_distinct_readings_of_tested_features() -> None:
    forest = random_forest(np.random.default_rng(0), n_trees=6, max_leaves=5, n_features=50)
    columns = find_columns(forest)
    pairs = list(zip(columns.feature.tolist(), columns.routing.tolist(), strict=True))
    of_nodes = list(zip(forest.feature.tolist(), (forest.routing & ZERO_MISSING).tolist(), strict=True))
    assert pairs == sorted(set(of_nodes)), "once each, and none for features that are not tested"
    assert [pairs[c] for c in columns.of_node] == of_nodes


def test_nodes_share_the_column_of_their_category_set() -> None:
    forest = random_forest(np.random.default_rng(3), n_trees=30, max_leaves=12, categorical=0.5)
    columns = find_columns(forest)
    readings = {}
    for node in range(forest.n_nodes):
        column, categorical = columns.of_node[node], bool(forest.routing[node] & CATEGORICAL)
        words = forest.category_words[slice(*forest.category_offsets[node : node + 2])].tolist()
        of_column = columns.set_words[slice(*columns.set_offsets[column : column + 2])].tolist()
        assert of_column == (words if categorical else [])
        assert columns.threshold[node] == (0.5 if categorical else forest.threshold[node])
        how = int(forest.routing[node]) & ~NAN_LEFT & (~ZERO_MISSING if categorical else 0xFF)
        assert (columns.feature[column], columns.routing[column]) == (forest.feature[node], how)
        readings[forest.feature[node], how, tuple(words if categorical else [])] = column
    assert sorted(readings.values()) == list(range(len(columns))), "one column for each reading"


def test_no_nodes_no_columns() -> None:
    assert len(find_columns(random_forest(np.random.default_rng(0), max_leaves=1))) == 0


MAX = float(np.finfo(np.float32).max)


@settings(max_examples=500, deadline=None, derandomize=True)
@given(st.floats(allow_nan=False))
@example(MAX)
@example(np.nextafter(MAX, np.inf))
@example(-np.nextafter(MAX, np.inf))
@example(1e300)
@example(-1e300)
@example(np.inf)
@example(-np.inf)
@example(5e-324)
@example(-5e-324)
@example(float(np.float32(1e-45)))
@example(-0.0)
def test_round_down_is_the_largest_float32_not_above(t: float) -> None:
    down = round_down(np.array([t]))
    assert down.dtype == np.float32
    assert float(down[0]) <= t
    with np.errstate(over="ignore"):
        above = float(np.nextafter(down[0], np.float32(np.inf)))
    assert above > t or t == np.inf


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.floats(allow_nan=False), st.floats(width=32))
def test_float32_documents_decide_alike(t: float, x: float) -> None:
    down = round_down(np.array([t]))[0]
    with np.errstate(over="ignore"):
        neighbour = np.nextafter(down, np.float32(np.inf))
    for value in (np.float32(x), down, neighbour):
        assert (value <= down) == (float(value) <= t)


def test_columns_are_found_once_for_each_forest() -> None:
    forests = [random_forest(np.random.default_rng(seed), n_features=9 + seed) for seed in (0, 1)]
    found = [find_columns(forest) for forest in forests]
    assert all(find_columns(forest) is columns for forest, columns in zip(forests, found, strict=True))
    freed = weakref.ref(found[0])
    del found, forests
    gc.collect()
    assert freed() is None
