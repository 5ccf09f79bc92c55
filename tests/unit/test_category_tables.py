"""Tables of category sets: for each code, the rows give the results of the nodes' own tests."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from forests import probing_documents, random_forest

from gpuqs.chunks import rows_at_once
from gpuqs.engines.reference import goes_left
from gpuqs.forest import CATEGORICAL, NEGATIVE_FRACTION_IS_ZERO, Forest
from gpuqs.layout import category_tables
from gpuqs.layout.category_tables import MAX_BYTES
from gpuqs.layout.columns import find_columns
from gpuqs.model import Model


def check_tables(forest: Forest) -> None:
    """Compare each row of each table with the nodes' own tests; each categorical column is in a table."""
    columns = find_columns(forest)
    found = columns.tables
    assert found.n_bytes == found.rows.nbytes + found.row_of_code.nbytes
    of_tables = [np.arange(t["first_column"], t["first_column"] + t["n_columns"]) for t in found.tables]
    assert np.array_equal(np.concatenate(of_tables), np.flatnonzero(columns.routing & CATEGORICAL))
    node_of = {column: node for node, column in enumerate(columns.of_node)}
    for table, members in zip(found.tables, of_tables, strict=True):
        n_rows, n_words = int(table["n_rows"]), -(-len(members) // 64)
        rows = found.rows[table["rows"] : table["rows"] + n_rows * n_words].reshape(n_rows, n_words)
        row_of_code = found.row_of_code[table["codes"] : table["codes"] + table["n_codes"]]
        assert set(row_of_code) | {n_rows - 2, n_rows - 1} == set(range(n_rows))
        bits = np.unpackbits(rows.view(np.uint8), axis=1, bitorder="little")[np.append(row_of_code, n_rows - 2)]
        codes = np.append(np.arange(table["n_codes"]), 1e9)  # the last is not a valid code
        for bit, column in enumerate(members):
            assert columns.feature[column] == table["feature"]
            np.testing.assert_array_equal(bits[:, bit], ~goes_left(forest, node_of[column], codes))
        assert np.unpackbits(rows[-1:].view(np.uint8), bitorder="little")[: len(members)].all()


def sparse_forest(most: int) -> Forest:
    """Sets of a few codes up to ``most``, of several lengths."""
    rng = np.random.default_rng(3)
    forest = random_forest(rng, n_trees=30, n_features=3, categorical=0.7)
    held = [np.zeros(0, np.uint32)]
    for _ in np.flatnonzero(forest.routing & CATEGORICAL):
        codes = rng.choice(np.arange(7, most, most // 50), rng.integers(1, 6))
        held.append(np.zeros(int(codes.max()) // 32 + 1, np.uint32))
        np.bitwise_or.at(held[-1], codes // 32, np.uint32(1) << (codes % 32).astype(np.uint32))
    n_words = np.zeros(forest.n_nodes, np.int64)
    n_words[(forest.routing & CATEGORICAL) != 0] = [len(words) for words in held[1:]]
    offsets = np.concatenate([[0], np.cumsum(n_words)])
    return replace(forest, category_offsets=offsets, category_words=np.concatenate(held))


def test_rows_are_the_tests_of_each_code() -> None:
    check_tables(random_forest(np.random.default_rng(0), n_trees=30, n_features=3, categorical=0.7))
    check_tables(random_forest(np.random.default_rng(1), n_trees=80, n_features=1, categorical=1.0, max_leaves=30))


def test_codes_that_no_set_holds_share_a_row() -> None:
    forest = sparse_forest(5_000)
    check_tables(forest)
    assert find_columns(forest).tables.tables["n_rows"].max() <= 52


def test_tables_may_take_some_times_what_the_sets_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(category_tables, "MAX_BYTES", 0)
    check_tables(sparse_forest(5_000))


def test_many_codes_take_little_time_and_memory() -> None:
    """Sixty-four sets over two million codes, each with half of them."""
    words = np.random.default_rng(0).integers(0, 1 << 32, 64 * 60_000, np.uint32)
    offsets, routing = np.arange(65) * 60_000, np.full(64, CATEGORICAL, np.uint8)
    tracemalloc.start()
    try:
        made = category_tables.build_category_tables(np.zeros(64, np.int32), routing, offsets, words)
        assert tracemalloc.get_traced_memory()[1] < 5 * made.n_bytes
    finally:
        tracemalloc.stop()
    code = 1_234_567
    held = words.reshape(64, -1)[:, code // 32] >> np.uint32(code % 32) & np.uint32(1)
    assert int(made.rows[made.row_of_code[code]]) == sum(1 << s for s in range(64) if not held[s])


def test_many_features_of_categories() -> None:
    """One set each: the work per table must not grow with the number of features."""
    n = 20_000
    none, routing = np.zeros(0, np.uint32), np.full(n, CATEGORICAL, np.uint8)
    made = category_tables.build_category_tables(np.arange(n, dtype=np.int32), routing, np.zeros(n + 1, np.int64), none)
    assert made.tables["rows"].tolist() == list(range(0, 2 * n, 2)) and made.tables["n_rows"].max() == 2


@pytest.mark.parametrize("tables", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_codes_far_apart(tables: bool, dtype: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """With tables, and set by set if tables would take too much memory."""
    if not tables:
        monkeypatch.setattr(category_tables, "MAX_BYTES", 0)
        monkeypatch.setattr(category_tables, "TIMES_SETS", 0)
    forest = sparse_forest(100_000)
    assert (len(find_columns(forest).tables.tables) > 0) is tables
    model, X = Model(forest), probing_documents(np.random.default_rng(4), forest, 200, dtype)
    held = np.arange(7, 100_000, 2_000)
    X[::2] = np.random.default_rng(5).choice(np.append(held, held + 1), X[::2].shape)
    engines = [name for name, reason in model.engines().items() if reason is None]
    assert ("bitslice" in engines) is tables and {"walk", "vqs", "qs", "rankwalk"} <= set(engines)
    for n in (1, 3, 17, 70, 200):
        for rows in (X[:n], np.asfortranarray(X[:n])):
            expected = model.predict(rows, "leaf", engine="reference")
            for engine in engines:
                np.testing.assert_array_equal(model.predict(rows, "leaf", engine=engine), expected, engine)


def test_sets_count_as_work_between_two_looks_at_signals() -> None:
    few = random_forest(np.random.default_rng(0), n_trees=3, n_features=3)
    many = replace(few, routing=np.full(few.n_nodes, CATEGORICAL, np.uint8))
    vars(many)["n_category_sets"] = 200_000
    assert rows_at_once(many) == 4096 < rows_at_once(few) and rows_at_once(many, n_threads=4) == 4 * 4096


def test_codes_too_large_for_tables_run_on_another_engine() -> None:
    forest = random_forest(np.random.default_rng(0), n_trees=2, max_leaves=2, shape="complete", n_features=1)
    words = np.zeros(MAX_BYTES // 4 // 32 + 1, np.uint32)
    words[-1] = 1 << 31
    both = {"category_offsets": np.array([0, len(words), 2 * len(words)]), "category_words": np.tile(words, 2)}
    routing = np.full(2, CATEGORICAL | NEGATIVE_FRACTION_IS_ZERO, np.uint8)
    model = Model(replace(forest, routing=routing, **both))
    reason = model.engines()["bitslice"]
    assert reason is not None and "category sets take tables of 16 MiB or more" in reason
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
    expected = model.predict(X, "leaf", engine="reference")
    for engine in ("bitslice", "walk", "vqs"):
        np.testing.assert_array_equal(model.predict(X, "leaf", engine=engine), expected, engine)


def test_more_columns_than_16_bits_count() -> None:
    rng = np.random.default_rng(0)
    forest = random_forest(rng, n_trees=40, max_leaves=4_000, n_features=200_000)
    assert len(find_columns(forest)) > 1 << 16
    X = rng.normal(size=(2, forest.n_features)).astype(np.float32)
    expected = Model(forest).predict(X, "leaf", engine="reference")
    np.testing.assert_array_equal(Model(forest).predict(X, "leaf", engine="bitslice"), expected)
