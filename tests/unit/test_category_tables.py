"""Tables of category sets: rows say for each code what the nodes' own tests say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from forests import probing_documents, random_forest

from gpuqs.engines.reference import goes_left
from gpuqs.forest import CATEGORICAL, NEGATIVE_FRACTION_IS_ZERO
from gpuqs.layout.category_tables import MAX_BYTES, build_category_tables, table_bytes
from gpuqs.layout.columns import find_columns
from gpuqs.model import Model


def test_rows_are_the_tests_of_each_code() -> None:
    forest = random_forest(np.random.default_rng(0), n_trees=30, n_features=3, categorical=0.7)
    columns = find_columns(forest)
    found = build_category_tables(columns)
    assert sorted(found.columns) == np.flatnonzero(columns.routing & CATEGORICAL).tolist()
    assert table_bytes(columns) == found.rows.nbytes
    node_of = {column: node for node, column in enumerate(columns.of_node)}
    for table in found.tables:
        members = found.columns[table["columns"] : table["columns"] + table["n_columns"]]
        n_rows = int(table["n_codes"]) + 2
        rows = found.rows[table["rows"] : table["rows"] + n_rows * table["row_words"]].reshape(n_rows, -1)
        bits = np.unpackbits(rows.view(np.uint8), axis=1, bitorder="little")
        codes = np.append(np.arange(n_rows - 2), 1e9)  # the last is no code
        for bit, column in enumerate(members):
            assert columns.feature[column] == table["feature"]
            expected = ~goes_left(forest, node_of[column], codes)
            np.testing.assert_array_equal(bits[:-1, bit], expected)
            assert bits[-1, bit] == 1


def test_codes_too_large_for_tables_run_on_another_engine() -> None:
    forest = random_forest(np.random.default_rng(0), n_trees=2, max_leaves=2, shape="complete", n_features=1)
    words = np.zeros(MAX_BYTES // 8 // 32 + 1, np.uint32)
    words[-1] = 1 << 31
    both = {"category_offsets": np.array([0, len(words), 2 * len(words)]), "category_words": np.tile(words, 2)}
    routing = np.full(2, CATEGORICAL | NEGATIVE_FRACTION_IS_ZERO, np.uint8)
    model = Model(replace(forest, routing=routing, **both))
    reason = model.engines()["bitslice"]
    assert reason is not None and "category sets take tables of" in reason
    X = np.array([[32.0 * len(words) - 1], [5.0], [np.nan], [32.0 * len(words)], [-0.5]])
    for n in (5, 1000):
        rows = np.resize(X, (n, 1))
        np.testing.assert_array_equal(model.predict(rows, "leaf"), model.predict(rows, "leaf", engine="reference"))
    assert set(model.predict(X, "leaf")[0]) == {0}


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 511, 513])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_more_sets_than_a_word_holds(n: int, dtype: type) -> None:
    forest = random_forest(np.random.default_rng(1), n_trees=80, n_features=2, categorical=0.9, max_leaves=30)
    words = np.random.default_rng(2).integers(0, 1 << 32, len(forest.category_words), np.uint32)
    forest = replace(forest, category_words=words)
    columns = find_columns(forest)
    assert len(columns) - columns.n_numeric > 128
    X = probing_documents(np.random.default_rng(n), forest, n, dtype)
    model = Model(forest)
    np.testing.assert_array_equal(
        model.predict(X, "leaf", engine="bitslice"), model.predict(X, "leaf", engine="reference")
    )
