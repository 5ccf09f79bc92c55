"""Columns: features and how their zeros are read; thresholds rounded down."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from forests import random_forest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuqs.forest import CATEGORICAL, ZERO_MISSING, Forest
from gpuqs.layout.columns import find_columns, round_down


def test_columns_are_the_distinct_readings_of_tested_features() -> None:
    forest = random_forest(np.random.default_rng(0), n_trees=6, max_leaves=5, n_features=50)
    columns = find_columns(forest)
    pairs = list(zip(columns.feature.tolist(), columns.zero_missing.tolist(), strict=True))
    zero_missing = (forest.routing & ZERO_MISSING) != 0
    of_nodes = list(zip(forest.feature.tolist(), zero_missing.astype(int).tolist(), strict=True))
    assert pairs == sorted(set(of_nodes)), "once each, and none for features that are not tested"
    assert [pairs[c] for c in columns.of_node] == of_nodes


def test_categorical_nodes_have_no_missing_zeros() -> None:
    forest: Forest = random_forest(np.random.default_rng(0), n_trees=3)
    routing = np.full(forest.n_nodes, ZERO_MISSING | CATEGORICAL, np.uint8)
    assert not find_columns(replace(forest, routing=routing)).zero_missing.any()


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
