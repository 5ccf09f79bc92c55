"""Documents get the same ranks in any memory layout: by windows of columns, column by column, or value by value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from forests import forest_of_columns, forest_of_stumps, probing_documents, random_forest, threshold_documents

from gpuqs.forest import NAN_LEFT, ZERO_MISSING, ZERO_THRESHOLD
from gpuqs.layout.bitslice import BY_BYTE, build_bitslice
from gpuqs.layout.columns import find_columns
from gpuqs.layout.ranks import build_ranks
from gpuqs.model import Model

#: Memory layouts of documents.
ORDERS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "by row": np.ascontiguousarray,
    "by column": np.asfortranarray,
    "by row, every other row": lambda X: np.repeat(X, 2, axis=0)[::2],
    "by row, every other column": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "by column, every other row": lambda X: np.asfortranarray(np.repeat(X, 2, axis=0))[::2],
}


@cache
def scattered(n_features: int, input_dtype: str) -> Model:
    """Tested columns next to each other and far apart, some of the same feature."""
    rng = np.random.default_rng(n_features)
    fields = {"input_dtype": input_dtype, "n_thresholds": 12, "n_trees": n_features // 3, "max_leaves": 8}
    return Model(random_forest(rng, n_features=n_features, **fields))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("input_dtype", ["float32", "float64"])
def test_documents_are_ranked_alike_however_they_lie(isa: str, input_dtype: str, dtype: type, order: str) -> None:
    for n_features in (5, 40, 150):
        model = scattered(n_features, input_dtype)
        feature = find_columns(model.forest).feature
        assert n_features == 5 or ({0, 1} <= set(np.diff(feature).tolist()) and np.diff(feature).max() > 1)
        X = probing_documents(np.random.default_rng(1), model.forest, 300, dtype)
        expected = model.predict(X, "leaf", engine="reference")
        for n in (1, 7, 8, 9, 16, 17, 127, 128, 129, 300):
            got = model.predict(ORDERS[order](X[:n]), "leaf", engine="bitslice")
            np.testing.assert_array_equal(got, expected[:n], err_msg=f"{n} x {n_features}")


@pytest.mark.parametrize("n_thresholds", [1, 3, 7, 30, 60, 100, 250, 500, 1100])
def test_float64_values_decide_where_float32_are_equal(isa: str, n_thresholds: int) -> None:
    """Half the thresholds share a float32 with their neighbours; documents lie on, between and next to them."""
    rng = np.random.default_rng(n_thresholds)
    base = np.float64(rng.normal(size=n_thresholds).astype(np.float32))
    base[::4] = [0.0, 1e-45, -1e-45, float(np.float32(3e38))][n_thresholds % 4]
    step = np.maximum(np.abs(np.spacing(base.astype(np.float32))).astype(np.float64), 1e-45) / 8
    thresholds = np.unique(base + rng.integers(-3, 4, n_thresholds) * step)
    model = Model(forest_of_stumps(thresholds, rng))
    beside = [np.nextafter(thresholds, np.inf), np.nextafter(thresholds, -np.inf), base, base + step, base - step]
    x = rng.permutation(np.concatenate([thresholds, *beside, [np.nan, np.inf, -np.inf, -0.0]]))
    expected = x[:, None] > thresholds
    expected[np.isnan(x)] = (model.forest.routing & 1) == 0
    for X in (x[:, None], np.tile(x[:, None], (1, 9))[:, 4:5]):
        np.testing.assert_array_equal(model.predict(X, "leaf", engine="bitslice"), expected)
    # Resolving one document also resolves those ranked with it, so score each one separately as well.
    alone = [model.predict(x[d : d + 1, None], "leaf", engine="bitslice")[0] for d in range(100)[: len(x)]]
    np.testing.assert_array_equal(alone, expected[: len(alone)])


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_value_alone_that_is_no_float32_is_found_wherever_it_lies(isa: str, order: str) -> None:
    """Once one is found, the values next to it are not checked any more; none before it may be missed."""
    rng = np.random.default_rng(5)
    threshold = 1 + 2.0**-30  # 1 as float32
    forest = forest_of_columns(rng, [1] * 19)
    forest = replace(forest, threshold=np.full(forest.n_nodes, threshold), routing=np.zeros(forest.n_nodes, np.uint8))
    model, exact = Model(forest), rng.integers(0, 3, (140, 19)).astype(np.float64)
    expected = model.predict(exact, "leaf", engine="reference")
    X = np.array(exact, order=order)
    for row, column in [*((row, 4) for row in range(140)), *((77, column) for column in range(19))]:
        X[row, column] = np.nextafter(threshold, 2)
        beside = np.array(exact[row : row + 1])
        beside[0, column] = 2.0
        right = np.array(expected)
        right[row] = model.predict(beside, "leaf", engine="reference")
        np.testing.assert_array_equal(model.predict(X, "leaf", engine="bitslice"), right)
        X[row, column] = exact[row, column]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_words_are_made_by_nibble_or_by_byte(isa: str, dtype: type) -> None:
    """Most tests of a column send missing values one way; the others are far apart, except the first of one column."""
    rng = np.random.default_rng(3)
    forest = forest_of_columns(rng, [4000, 3000, 40])
    place = build_ranks(forest).of_node
    few = (place % 8 == 0) | ((forest.feature == 0) & (place < 256))
    forest = replace(forest, routing=np.where(few == (forest.feature == 0), NAN_LEFT, 0).astype(np.uint8))
    segments = build_bitslice(forest, build_ranks(forest), 1 << 16, 1 << 30, compiled=False).segments
    by_byte = segments[(segments["flags"] & BY_BYTE) != 0]
    assert set(zip(by_byte["column"], by_byte["flags"] & NAN_LEFT, strict=True)) == {(0, 1), (1, 0)}
    assert by_byte["last"].max() == 255 and segments["last"].sum(dtype=int) + len(segments) == forest.n_nodes
    model, X = Model(forest), threshold_documents(rng, forest, dtype)[:600]
    X[::50] = np.nan
    expected = model.predict(X, "leaf", engine="reference")
    for n in (1, 130, 600):
        np.testing.assert_array_equal(model.predict(X[:n], "leaf", engine="bitslice"), expected[:n])


def test_zeros_that_are_missing_are_told_by_their_float64_values(isa: str) -> None:
    near = np.nextafter(ZERO_THRESHOLD, 1)  # rounds to the same float32, but is not zero
    forest = forest_of_stumps(np.array([-1.0, 2e-35]), np.random.default_rng(0))
    model = Model(replace(forest, routing=np.full(2, ZERO_MISSING, np.uint8)))
    x = np.array([0.0, ZERO_THRESHOLD, near, -ZERO_THRESHOLD, -near, -2.0])
    expected = [[1, 1], [1, 1], [1, 0], [1, 1], [1, 0], [0, 0]]
    np.testing.assert_array_equal(model.predict(x[:, None], "leaf", engine="bitslice"), expected)
