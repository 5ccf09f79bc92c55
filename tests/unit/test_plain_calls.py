"""Plain calls use a separate fast path and give the same results as the general path."""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import os
import subprocess
import sys
import threading
import warnings
import weakref
from itertools import product
from typing import Any

import numpy as np
import pytest
from forests import probing_documents, random_forest
from interpreter_lock import lets_others_run, needs_the_lock

import gpuqs
from gpuqs import chooser, cpu_fallback, engines, plain_calls, programs
from gpuqs.calls import Calls
from gpuqs.chooser import Chooser
from gpuqs.chunks import rows_at_once
from gpuqs.devices import HOST
from gpuqs.engines import ENGINES
from gpuqs.errors import InputError
from gpuqs.forest import ZERO_THRESHOLD, Forest
from gpuqs.model import Model
from gpuqs.programs import FIRST_RANGES, MAX_PARTS, PARTS_KEPT, Programs
from gpuqs.schema import Schema
from gpuqs.threads import WORK_EACH, threads_of_call, threads_worth
from gpuqs.tuning.plan import Way

FORESTS: dict[str, dict[str, Any]] = {
    "float64 sums": {},
    "float32 sums": {"sum_dtype": "float32", "input_dtype": "float32"},
    "base score last": {"base_first": False},
    "sigmoid": {"link": "sigmoid", "link_scale": 0.7},
    "average": {"average": True},
    "average, raw too": {"average": True, "average_raw": True},
    "softmax": {"n_outputs": 3, "link": "softmax"},
    "NumPy's softmax": {"n_outputs": 3, "link": "softmax", "source": "scikit-learn 1.6", "average": True},
    "NumPy's exp, base score last": {"link": "exp", "source": "scikit-learn 1.6", "base_first": False},
    "sigmoid of averages, base score last": {"link": "sigmoid", "average": True, "base_first": False},
    "clamped": {"link": "sigmoid", "source": "XGBoost 3.0", "sum_dtype": "float32"},
    "vectors": {"n_outputs": 3, "vector_leaves": True},
    "argmax": {"n_outputs": 3, "link": "argmax"},
    "categories": {"categorical": 0.5},
}


#: Keywords of plain calls.
PLAIN: list[dict[str, Any]] = [
    {},
    {"output": "raw"},
    {"raw_score": True},
    {"n_threads": 1},
    {"n_threads": 3, "output": "raw"},
    {"n_threads": 10**30},
    {"num_iteration": -1},
    {"num_iteration": 0, "start_iteration": 0},
    {"num_iteration": 10**30, "device": "cpu"},
    {"precision": "fast"},
    {"precision": "fast", "output": "raw"},
]

#: Keywords of plain calls that return leaves.
LEAVES: list[dict[str, Any]] = [
    {"output": "leaf"},
    {"pred_leaf": True},
    {"output": "leaf", "pred_leaf": True, "n_threads": 3},
    {"output": "leaf", "num_iteration": -1},
]


def made(**fields: Any) -> Forest:
    return random_forest(np.random.default_rng(5), **fields)


@pytest.fixture
def general(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list to which each call on the general path appends its number of documents."""
    taken: list[int] = []
    answer = Calls.answer

    def counted(self: Calls, X: Any, *rest: Any) -> Any:
        taken.append(X.shape[0] if hasattr(X, "shape") else len(X))
        return answer(self, X, *rest)

    monkeypatch.setattr(Calls, "answer", counted)
    return taken


def model_and_documents(fields: dict[str, Any], n: int, dtype: type) -> tuple[Model, np.ndarray]:
    model = Model(made(**fields))
    with np.errstate(over="ignore"):
        return model, probing_documents(np.random.default_rng(6), model.forest, n).astype(dtype)


def calls_by(program_of: Any) -> cpu_fallback.PlainCalls:
    """Plain calls for raw scores of up to eight documents with eight columns."""
    few = {"n_features": 8, "most": 8, "max_at_once": 8, "brief": plain_calls.BRIEF}
    return cpu_fallback.PlainCalls(program_of=program_of, threads_of=threads_of_call, **few)


def asked_otherwise(model: Model, X: np.ndarray, **words: Any) -> np.ndarray:
    """The answer of the general path, which calls with a named engine take."""
    words = {name: value for name, value in words.items() if name not in ("num_iteration", "start_iteration")}
    return model.predict(X, **words, engine=model.engine_for(len(X)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("fields", FORESTS.values(), ids=FORESTS)
def test_same_bits(fields: dict[str, Any], dtype: type, general: list[int]) -> None:
    model, documents = model_and_documents(fields, 20_000, dtype)
    most = plain_calls.MAX_SMALL
    for n in (1, 2, 7, 8, 9, 64, most - 1, most, most + 1, 20_000):
        for words in PLAIN:
            given = model.predict(documents[:n], **words)
            expected = asked_otherwise(model, documents[:n], **words)
            assert given.dtype == expected.dtype and given.shape == expected.shape
            assert given.tobytes() == expected.tobytes()
    calls = 10 * len(PLAIN)
    assert len(general) == calls * (2 if model.forest.link == "argmax" else 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("fields", FORESTS.values(), ids=FORESTS)
def test_same_leaves(fields: dict[str, Any], dtype: type, general: list[int]) -> None:
    model, documents = model_and_documents(fields, 10_000, dtype)
    most, n = (1 << 17) // model.n_trees, model.n_iterations
    for n_documents in (1, 9, 300, most, most + 1):
        X = documents[:n_documents]
        expected = model.predict(X, "leaf", engine="reference")
        general.clear()
        for words in LEAVES:
            out = np.full(expected.shape, 77, np.int32)
            for given in (model.predict(X, **words), model.predict(X, out=out, **words)):
                assert given.dtype == expected.dtype and np.array_equal(given, expected)
            assert given is out
        assert n_documents == most or bool(general) == (model.forest.link == "argmax" or n_documents > most)
        part = slice(*model.forest.iteration_starts[[1, n]])
        assert np.array_equal(model.predict(X, "leaf", start_iteration=1), expected[:, part])
    for out in (np.empty((9, model.n_trees)), np.empty(9, np.int32)):
        with pytest.raises(InputError, match="out"):
            model.predict(documents[:9], "leaf", out=out)


def orders() -> dict[str, np.ndarray]:
    X = np.random.default_rng(7).normal(size=(9, 8))
    wide = np.zeros((9, 16))
    wide[:, ::2] = X
    misaligned = np.frombuffer(b"\0" + X.tobytes(), np.uint8)[1:].view(np.float64).reshape(X.shape)
    locked = X.copy()
    locked.setflags(write=False)
    arrays = {"C": X, "F": np.asfortranarray(X), "strided": wide[:, ::2], "backwards": X[::-1, ::-1][::-1, ::-1]}
    return arrays | {"misaligned": misaligned, "locked": locked, "swapped": X.astype(">f8"), "long": X.astype("g")}


@pytest.mark.parametrize("order", orders())
def test_any_order_of_bytes_and_rows(order: str, general: list[int]) -> None:
    model, X = Model(made()), orders()[order]
    assert np.array_equal(model.predict(X), model.predict(np.array(X, np.float64)))
    assert len(general) == (order in ("misaligned", "swapped", "long"))


@pytest.mark.parametrize("fields", FORESTS.values(), ids=FORESTS)
@pytest.mark.parametrize("integer_dtype", ["float32", "float64"])
def test_lists_of_numbers(fields: dict[str, Any], integer_dtype: str, general: list[int]) -> None:
    model = Model(made(**fields, integer_dtype=integer_dtype))
    rng = np.random.default_rng(6)
    with np.errstate(over="ignore"):
        floats = probing_documents(rng, model.forest, 60)
        whole = np.nan_to_num(floats, nan=3.0, posinf=2.0**53, neginf=-(2.0**53)).clip(-(2**53), 2**53).astype(np.int64)
        missing = np.where(rng.random(floats.shape) < 0.2, None, floats.astype(object))
        for X in (floats, whole, whole % 2 == 1, missing):
            lists, casts = X.tolist(), X.dtype != np.float64
            expected = X.astype(integer_dtype if casts else np.float64)
            for words in PLAIN:
                answer = asked_otherwise(model, expected, **words)
                general.clear()
                for given in (lists, tuple(map(tuple, lists))):
                    assert model.predict(given, **words).tobytes() == answer.tobytes()
                    assert len(general) == (2 if given is not lists else 1) * (model.forest.link == "argmax")


def by_value(**fields: Any) -> tuple[Model, list[list[Any]]]:
    """A model with CatBoost's rules, of whose columns 1 and 3 hold categories by value; and documents."""
    known, rng = tuple("abcdefgh"), np.random.default_rng(7)
    schema = Schema(categories=tuple(known if at in (1, 3) else None for at in range(8)), library="CatBoost")
    model = Model(made(integer_dtype="float32", input_dtype="float32", schema=schema, **fields))
    rows = rng.normal(size=(60, 8)).astype(object)
    for column in (1, 3):
        rows[:, column] = rng.choice(np.array([*known, "unseen", 7], object), 60)
    return model, rows.tolist()


def test_categories_by_value(general: list[int]) -> None:
    model, rows = by_value()
    codes = np.array(rows, object)
    for column in (1, 3):
        codes[:, column] = [float("abcdefgh".find(value)) if type(value) is str else -1.0 for value in codes[:, column]]
    codes = np.where(codes == -1.0, np.nan, codes).astype(np.float64).astype(np.float32)
    plain = Model(dataclasses.replace(model.forest, schema=Schema()))
    for n in (1, 2, 60):
        expected = plain.predict(codes[:n]).tobytes()
        general.clear()
        array = np.array(rows[:n], object)
        for given in (rows[:n], tuple(map(tuple, rows[:n])), array, np.asfortranarray(array)):
            for words in ({}, {"raw_score": True}, {"n_threads": 3}):
                assert model.predict(given, **words).tobytes() == expected
        assert not general
        for words in ({"engine": "walk"}, {"num_iteration": 10**6}):  # the same documents by the general path
            assert model.predict(rows[:n], **words).tobytes() == expected
        assert len(general) == 2
    whole = np.random.default_rng(8).integers(-3, 40, (9, 8))
    general.clear()
    answer = model.predict(whole.tolist()).tobytes()
    assert not general
    assert answer == model.predict(whole.tolist(), engine="walk").tobytes()
    with pytest.raises(InputError, match="column '1' holds numbers, but the model's categories are strings"):
        model.predict(whole)


def test_other_categories_by_value_are_read_elsewhere(monkeypatch: pytest.MonkeyPatch, general: list[int]) -> None:
    model, rows = by_value()
    expected = model.predict(rows)
    odd = [[np.float32(row[0]), np.str_(row[1]), *row[2:]] for row in rows]
    want = model.predict([[float(np.float32(row[0])), *row[1:]] for row in rows])
    assert not general
    assert model.predict(odd).tobytes() == want.tobytes() and general == [60]
    problems = {"category 1.5": 1.5, "not Unicode": "\ud800", "a value that cannot be a category: unhashable": []}
    for problem, wrong in problems.items():
        with pytest.raises(InputError, match=f"column '1' holds .*{problem}"):
            model.predict([[*rows[0][:1], wrong, *rows[0][2:]]])
    with pytest.raises(InputError, match="X has 7 features"):
        model.predict([row[:7] for row in rows])
    with pytest.raises(InputError, match="dtype float64, but the model has categories"):
        model.predict(np.zeros((3, 8)))
    monkeypatch.setattr("gpuqs.plain_calls.rows_at_once", lambda forest, narrow: 59)
    general.clear()
    assert Model(model.forest).predict(rows).tobytes() == expected.tobytes() and general == [60]


@pytest.mark.parametrize("shape", [(), (8,), (1, 8, 1)], ids=str)
def test_objects_of_other_dimensions_are_refused_as_ever(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=f"not {len(shape)}-dimensional"):
        by_value()[0].predict(np.zeros(shape, object))


def test_sparse_matrices_of_many_rows_or_entries(monkeypatch: pytest.MonkeyPatch, general: list[int]) -> None:
    sparse = pytest.importorskip("scipy.sparse")
    model = Model(made())
    X = np.random.default_rng(6).normal(size=(1 << 14, 8))
    S = sparse.csr_matrix(X)
    for n in (1, (1 << 14) - 1, 1 << 14):
        assert model.predict(S[:n]).tobytes() == model.predict(X[:n]).tobytes()
    assert not general
    wide = sparse.csr_matrix((np.ones((1 << 17) + 1), np.arange((1 << 17) + 1), [0, (1 << 17) + 1]))
    of_wide = Model(dataclasses.replace(model.forest, n_features=wide.shape[1]))
    assert of_wide.predict(wide).tobytes() == of_wide.predict(wide.toarray()).tobytes()
    assert general == [1]
    with monkeypatch.context() as few:
        few.setattr("gpuqs.arrays.sparse._FEW_VALUES", 8 * 10)
        assert Model(model.forest).predict(S[:11]).tobytes() == model.predict(X[:11]).tobytes()
        assert general == [1, 11]
    monkeypatch.setattr("gpuqs.plain_calls.rows_at_once", lambda forest, narrow: 10)
    assert Model(model.forest).predict(S[:11]).tobytes() == model.predict(X[:11]).tobytes()
    assert general == [1, 11, 11]


def test_a_sparse_matrix_of_no_columns() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    model = Model(dataclasses.replace(made(max_leaves=1), n_features=0))
    np.testing.assert_array_equal(model.predict(sparse.csr_matrix((3, 0))), model.predict(np.zeros((3, 0))))


def test_a_sparse_array_of_one_dimension_is_refused() -> None:
    pytest.importorskip("scipy", minversion="1.15")
    from scipy import sparse

    with pytest.raises(InputError, match="X has shape"):
        Model(made()).predict(sparse.coo_array(np.ones(8)).tocsr())


INTEGERS = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "?", ">i4", ">u8")


@pytest.mark.parametrize("integer_dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", INTEGERS)
def test_whole_numbers(kind: str, integer_dtype: str, general: list[int]) -> None:
    model = Model(made(integer_dtype=integer_dtype))
    dtype = np.dtype(kind)
    X = np.random.default_rng(6).integers(-3, 4, (3_000, 16)).astype(dtype)
    if dtype.itemsize == 8:
        X[:10] = [[2**24 + 1], [2**53 - 1], [2**53 + 1], [2**63 - 1], *[[1]] * 6]
    for rows in (X[:1, :8], X[:9, ::2], np.asfortranarray(X[:60, 8:]), X[::-3, :8]):
        expected = asked_otherwise(model, rows.astype(integer_dtype))
        general.clear()
        assert model.predict(rows).tobytes() == expected.tobytes()
        assert model.predict(rows, num_iteration=10**6, raw_score=True).tobytes() == expected.tobytes()
        assert not general
    assert model.predict(X[:, :8]).tobytes() == model.predict(X[:, :8].astype(integer_dtype)).tobytes()
    assert general == [3_000]  # many documents are cast chunk by chunk
    out = np.empty(9)
    assert np.array_equal(model.predict(X[:9, :8], out=out), model.predict(X[:9, :8]))
    assert general == [3_000, 9]


@pytest.mark.parametrize("absent", [0.0, np.nan])
@pytest.mark.parametrize("fields", FORESTS.values(), ids=FORESTS)
def test_sparse_matrices_of_few_rows(fields: dict[str, Any], absent: float, general: list[int]) -> None:
    sparse = pytest.importorskip("scipy.sparse")
    forest = made(**fields)
    wide = np.array([3, 4, 9, 11, 12, 13, 17, 19], np.int32)
    forest = dataclasses.replace(forest, n_features=20, feature=wide[forest.feature], schema=Schema(absent=absent))
    model, rng = Model(forest), np.random.default_rng(6)
    with np.errstate(over="ignore"):
        dense = probing_documents(rng, forest, 300)
    stored = rng.random(dense.shape) < 0.5
    at = np.concatenate([[0], np.cumsum(stored.sum(1))])
    dense = np.where(stored, dense, absent)
    for data, index, kind in product((np.float64, np.float32), (np.int32, np.int64), ("csr_matrix", "csr_array")):
        with np.errstate(over="ignore"):
            values = dense.astype(data)
        X = getattr(sparse, kind)((values[stored], stored.nonzero()[1].astype(index), at.astype(index)), dense.shape)
        X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
        for n, words in product((1, 9, 300), ({}, {"output": "raw"}, {"raw_score": True, "n_threads": 2})):
            expected = asked_otherwise(model, values[:n], **words)
            rows = X[:n]
            rows.indices, rows.indptr = rows.indices.astype(index), rows.indptr.astype(index)
            general.clear()
            assert model.predict(rows, **words).tobytes() == expected.tobytes()
            assert bool(general) == (index is np.int64 or forest.link == "argmax")


@pytest.mark.parametrize("fields", FORESTS.values(), ids=FORESTS)
def test_answers_in_memory_that_is_given(fields: dict[str, Any], general: list[int]) -> None:
    model = Model(made(**fields))
    documents = probing_documents(np.random.default_rng(6), model.forest, 300)
    expected = {}
    with np.errstate(over="ignore"):
        for n, (at, words) in product((1, 9, 300), enumerate(PLAIN)):
            expected[n, at] = model.predict(documents[:n], **words)
        general.clear()
        for (n, at), answer in expected.items():
            out = np.full(answer.shape, 77, answer.dtype)
            assert model.predict(documents[:n], out=out, **PLAIN[at]) is out
            assert out.tobytes() == answer.tobytes()
    assert bool(general) == (model.forest.link == "argmax" or "scikit-learn" in fields.get("source", ""))


def memory(n: int) -> dict[str, np.ndarray]:
    """Output arrays that do not fit n float64 values, or that need further checks."""
    locked, misaligned = np.empty(n), np.empty(8 * n + 1, np.uint8)[1:].view(np.float64)
    locked.setflags(write=False)
    arrays = {"float32": np.empty(n, np.float32), "longer": np.empty(n + 1), "one column": np.empty((n, 1))}
    arrays |= {"every other": np.empty(2 * n)[::2], "backwards": np.empty(n)[::-1], "swapped": np.empty(n, ">f8")}
    return arrays | {"locked": locked, "misaligned": misaligned, "subclass": np.empty(n).view(np.recarray)}


@pytest.mark.parametrize("kind", memory(1))
def test_memory_that_does_not_fit_takes_the_general_path(kind: str, general: list[int]) -> None:
    model, X = Model(made()), np.random.default_rng(7).normal(size=(9, 8))
    outcomes = []
    for words in ({}, {"engine": model.engine_for(9)}):
        out = memory(9)[kind]
        try:
            outcomes.append(model.predict(X, out=out, **words).tolist())
        except InputError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]
    assert general == [9, 9]


def test_memory_beside_the_documents(general: list[int]) -> None:
    model, n = Model(made()), 9
    buffer = np.random.default_rng(7).normal(size=n + 8 * n + n)
    X = buffer[n:-n].reshape(n, 8)
    expected = model.predict(X.copy())
    for documents in (X, X[::-1, ::-1][::-1, ::-1]):
        for beside in (buffer[:n], buffer[-n:]):
            assert np.array_equal(model.predict(documents, out=beside), expected)
    assert np.array_equal(model.predict(X[::-1], out=buffer[:n]), expected[::-1])
    assert not general
    for within in (buffer[1 : n + 1], buffer[-n - 1 : -1]):
        for documents in (X, X[::-1], X[:, ::-1]):
            with pytest.raises(InputError, match="shares memory"):
                model.predict(documents, out=within)


@pytest.mark.parametrize(
    "X",
    [np.zeros(8), np.zeros((2, 7)), np.zeros((2, 2, 8)), np.zeros((1, 8), complex), np.array([["a"] * 8])],
    ids=lambda X: f"{X.dtype}{X.shape}",
)
def test_what_is_wrong_is_refused_as_ever(X: np.ndarray) -> None:
    with pytest.raises(InputError, match="X "):
        Model(made()).predict(X)


def test_others_are_read_as_ever() -> None:
    model, X = Model(made()), np.arange(24).reshape(3, 8)
    expected = model.predict(X.astype(np.float64))
    for other in (X, X.astype(np.float16), X.tolist(), X.astype(float).view(np.recarray)):
        assert np.array_equal(model.predict(other), expected)
    assert model.predict(np.zeros((0, 8))).shape == (0,)


ODD: list[dict[str, Any]] = [{"raw_score": "yes"}, {"raw_score": 2}, {"pred_leaf": 0.5}, {"start_iteration": 0.0}]


@pytest.mark.parametrize("words", ODD)
def test_odd_keywords_are_refused_as_ever(words: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(words))):
        Model(made()).predict(np.zeros((1, 8)), **words)


def test_names_of_keywords_are_any_texts() -> None:
    class Text(str):
        pass

    model, X = Model(made()), np.random.default_rng(8).normal(size=(3, 8))
    for name in (Text("raw_score"), np.array(["raw_score"])[0], "".join(["raw", "_score"])):
        assert np.array_equal(model.predict(X, **{name: True}), model.predict(X, "raw"))
    with pytest.raises(TypeError, match="num_trees"):
        model.predict(X, num_trees=1)


def test_documents_that_are_made_first_are_plain_whatever_the_threads() -> None:
    forest, asked = made(), []
    model = Model(forest)
    assert model._plain is not None
    plain = model._plain.exact

    class Noted:
        def raw(self, rows: np.ndarray, n_threads: int = 0) -> Any:
            asked.append(n_threads)
            return plain.raw(rows, n_threads)

    class Offered:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return np.random.default_rng(8).normal(size=(3, 8))

    model._plain.exact = model._plain.narrow = Noted()
    rows = Offered()
    want = Model(forest).predict(rows, "raw")
    for n_threads in (None, 1, 2, np.int64(1)):
        np.testing.assert_array_equal(model.predict(rows, "raw", n_threads=n_threads), want)
    sparse = pytest.importorskip("scipy.sparse").csr_matrix(rows.__array__())
    for n_threads in (None, 1, 2):
        np.testing.assert_array_equal(model.predict(sparse, "raw", n_threads=n_threads), want)
    assert asked == [0, 1, 2, 1, 0, 1, 2]
    for wrong, error in ((0, ValueError), (1.5, TypeError)):
        with pytest.raises(error, match="n_threads must"):
            model.predict(rows, "raw", n_threads=wrong)


def test_calls_that_are_not_plain() -> None:
    model, X = Model(made()), np.random.default_rng(8).normal(size=(3, 8))
    model.predict(X)
    assert model.predict(X, "leaf").shape == model.predict(X, pred_leaf=True).shape == (3, 20)
    assert not np.array_equal(model.predict(X, trees=slice(5, None)), model.predict(X))
    with pytest.raises(gpuqs.errors.UnsupportedModelError):
        model.predict(X, pred_contrib=True)


@pytest.mark.parametrize("left_out", [0, 3])
def test_numbers_of_iterations(left_out: int, general: list[int]) -> None:
    forest = dataclasses.replace(made(), iterations_left_out=left_out)
    model, X = Model(forest), np.random.default_rng(8).normal(size=(3, 8))
    expected, n = model.predict(X), forest.n_iterations
    assert np.array_equal(model.predict(X, num_iteration=n), expected) and general == []
    assert not np.array_equal(model.predict(X, num_iteration=n - 1), expected)
    for number in (-1, 0, n + 1, 10**30):
        if left_out:
            with pytest.raises(ValueError, match="best iteration"):
                model.predict(X, num_iteration=number)
        else:
            assert np.array_equal(model.predict(X, num_iteration=number), expected)
    assert general == []


@pytest.mark.parametrize("fields", FORESTS.values(), ids=FORESTS)
def test_ranges_of_iterations(
    fields: dict[str, Any], general: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranges, asked for in turns until they have programs, give the bits of a model of only these trees."""
    model = Model(made(**fields))
    starts, n = model.forest.iteration_starts.tolist(), model.n_iterations
    documents = probing_documents(np.random.default_rng(6), model.forest, 70)
    ranges = [(0, 1), (0, n - 1), (1, n), (2, n), (n, n), (n // 2, n // 2 + 3), *((0, k) for k in range(2, 20))]
    monkeypatch.setattr(Programs, "parts_kept", 5)
    monkeypatch.setattr(programs, "CALLS_BY_WHOLE", 8)
    options: list[dict[str, Any]] = [{}, {"output": "raw"}, {"output": "leaf"}, {"precision": "fast"}]
    with np.errstate(over="ignore"):
        for first, last in ranges + ranges[::-1]:
            last = min(last, n)
            trees = slice(starts[first], starts[last])
            alone = Model(model.forest.select(trees))
            as_lightgbm = {"start_iteration": first, "num_iteration": last - first}
            for more in options:
                expected = alone.predict(documents, engine="reference", **more)
                before = len(general)
                for words in (as_lightgbm, {"iteration_range": (first, last)}, {"trees": trees}):
                    given = model.predict(documents, **words, **more)
                    assert given.dtype == expected.dtype and given.tobytes() == expected.tobytes()
                assert len(general) == before or model.forest.link == "argmax"


def test_linear_leaves_below_tests_next_to_zero() -> None:
    one_column = {"n_trees": 1, "n_features": 1, "max_leaves": 2}
    stump = random_forest(np.random.default_rng(0), shape="complete", linear=1.0, **one_column)
    X = np.array([[1e-36], [-1e-36], [0.0], [1.0]])
    for threshold in (0.0, 1e-36, -1e-36, ZERO_THRESHOLD, -ZERO_THRESHOLD):
        model = Model(dataclasses.replace(stump, threshold=np.array([threshold]), routing=np.zeros(1, np.uint8)))
        expected = model.predict(X, engine="reference")
        for documents in (X, X.tolist(), np.repeat(X, 3_000, axis=0)[::3_000]):
            for _ in range(2):
                assert np.array_equal(model.predict(documents), expected)


def test_parts_are_told_apart() -> None:
    made_of = Programs(made(n_features=60, n_trees=9, max_leaves=4))  # at least one feature is not tested
    assert made_of.part(None, narrow=True) is not made_of.part(None)
    for start, stop, narrow in ((0, 5, False), (2, 5, False), (2, 5, True), (2, 6, True), (2, 6, False)):
        part = made_of.part(slice(start, stop), narrow)
        assert part.n_trees == stop - start
        assert part.n_features == made_of.part(None, narrow).n_features
        assert made_of.part(slice(start, stop), narrow) is part


def test_ranges_by_turns_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges used repeatedly, as in staged prediction, are built once; the cache keeps no more than its limit."""
    X = np.random.default_rng(8).normal(size=(3, 8))
    made_now: list[int] = []
    select = Forest.select
    monkeypatch.setattr(Forest, "select", lambda *args: made_now.append(1) or select(*args))
    for calls, selected in ((3, FIRST_RANGES), (-1, 99)):
        monkeypatch.setattr(programs, "CALLS_BY_WHOLE", calls)
        model = Model(made(n_trees=100))
        made_now.clear()
        for _ in range(3):
            for number in range(1, 100):
                model.predict(X, num_iteration=number)
        assert len(made_now) == selected
    assert model._programs.parts_kept == MAX_PARTS
    large = Model(made(n_trees=20, max_leaves=2))
    monkeypatch.setattr(programs, "PARTS_NUMBERS", 0)
    assert large._programs.parts_kept == PARTS_KEPT
    for number in range(1, 20):
        large.predict(X, num_iteration=number)
    assert large._plain is not None and len(large._plain._of_ranges) == PARTS_KEPT


def test_ranges_that_are_none(general: list[int]) -> None:
    model, X = Model(made()), np.random.default_rng(8).normal(size=(3, 8))
    n = model.n_iterations
    for words, wrong in (
        ({"iteration_range": (0, True)}, "must be an integer"),
        ({"iteration_range": (0, n + 1)}, "is not within"),
        ({"iteration_range": (0, 1, 2)}, "two integers"),
        ({"iteration_range": (0, 1), "num_iteration": 1}, "all select trees"),
        ({"start_iteration": True}, "must be an integer"),
        ({"iteration_range": (0, 1), "trees": slice(1)}, "all select trees"),
    ):
        for kept in ({"iteration_range": (0, 1)}, {"start_iteration": 1}, {"num_iteration": 1}):  # equal to True
            model.predict(X, **kept)
        with pytest.raises(ValueError, match=wrong):
            model.predict(X, **words)
    assert np.array_equal(model.predict(X, start_iteration=n), np.full(3, model.forest.base_score[0]))
    assert np.array_equal(model.predict(X, start_iteration=-3, num_iteration=4), model.predict(X, num_iteration=4))
    assert np.array_equal(model.predict(X, iteration_range=(2, 0)), model.predict(X, start_iteration=2))


@pytest.mark.parametrize("max_small", [plain_calls.MAX_SMALL, 1 << 20])
def test_more_than_signals_may_wait_for_takes_the_general_path(
    max_small: int, general: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain_calls, "MAX_SMALL", max_small)
    model = Model(made())
    most = rows_at_once(model.forest)
    X = np.random.default_rng(8).normal(size=(most + 1, 8)).astype(np.float32)
    scores = model.predict(X)
    assert general == [most + 1]
    assert model.predict(X[:most]).tobytes() == scores[:most].tobytes()
    assert general == [most + 1]


@pytest.fixture
def threads_asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list of the thread counts that calls request when they ask how many they get."""
    asked: list[int] = []

    def threads(worth: int) -> int:
        asked.append(worth)
        return threads_of_call(worth)

    monkeypatch.setattr(plain_calls, "threads_of_call", threads)
    return asked


def test_work_is_for_threads(threads_asked: list[int], general: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chooser, "MIN_SHARE", 1)
    costs = {"walk": WORK_EACH / 10}
    monkeypatch.setattr(Chooser, "warm_cost", lambda _, name, n, machine: n * costs[name] if name in costs else None)
    monkeypatch.setattr(plain_calls, "MAX_SMALL", 30)
    model, X = Model(made()), np.random.default_rng(9).normal(size=(45, 8))
    expected = model.predict(X, engine="reference")
    for n in (1, 18, 20, 45):
        for _ in range(2):
            assert model.predict(X[:n]).tobytes() == expected[:n].tobytes()
        assert model.predict(X[:n], n_threads=1).tobytes() == expected[:n].tobytes()
    assert threads_asked == [2, 2, 4, 4] and general == [45]  # scored by the reference engine


def test_few_documents_are_not_shared_out() -> None:
    """However long they take: engines score dozens together. Trees of large forests may be shared out."""
    here = cpu_fallback.machine()
    forest = random_forest(np.random.default_rng(1), n_trees=6_000, max_leaves=60)
    choose = Model(forest)._calls.chooser
    for engine in ("walk", "rankwalk"):
        assert [choose.threads(Way(engine), n, here) > 1 for n in (60, 120, 20_000)] == [False, False, True]
    shares = max(forest.n_nodes // 65_000, 1)
    assert [ENGINES["bitslice"].tree_shares(forest, n) for n in (100, 200)] == [shares, 1]


def test_small_shares_are_for_one_thread() -> None:
    """If half of the documents take almost as long as all, one thread is used for short work, and two for long work."""
    steps = {1: 130.0, 2: 100.0}  # 300 documents in a word of 512, and half of them in one of 256
    assert threads_worth(lambda n: steps.get(n, 100.0)) == 1
    assert threads_worth(lambda n: 10 * steps.get(n, 100.0)) == 2
    assert threads_worth(lambda n: 130.0 / n) == 2 and threads_worth(lambda n: 1e5 / n) == 1024


def test_wide_rows_are_work() -> None:
    """A hundred trees are little work per row, but coding hundreds of columns is more."""
    model, here = Model(random_forest(np.random.default_rng(1), n_trees=100, n_features=700)), cpu_fallback.machine()
    few, many = (model._calls.chooser.threads(model._calls.chooser.way(n, HOST, here), n, here) for n in (10, 40_000))
    assert few == 1 and many >= 4


def test_batches_of_many_sizes(monkeypatch: pytest.MonkeyPatch, general: list[int]) -> None:
    """More batch sizes than programs are kept for."""
    monkeypatch.setattr(plain_calls, "MAX_SMALL", 5)
    model = Model(made())
    X = np.random.default_rng(8).normal(size=(600, 8))
    expected = model.predict(X)
    for n in (*range(6, 601), *range(6, 601, 7)):
        assert model.predict(X[:n]).tobytes() == expected[:n].tobytes()
    assert not general


def test_the_environment_counts_at_every_call(monkeypatch: pytest.MonkeyPatch, general: list[int]) -> None:
    model, X = Model(made()), np.random.default_rng(9).normal(size=(100, 8))
    expected = model.predict(X)
    for isa in cpu_fallback.available_isas():
        monkeypatch.setenv("GPUQS_ISA", isa)
        assert np.array_equal(model.predict(X), expected)
        assert (model.engine_for(100), "exact", (isa, cpu_fallback.compiles_programs())) in {
            key[:3] for key in model._programs._made
        }
    monkeypatch.setenv("GPUQS_ISA", "none")
    with pytest.raises(gpuqs.errors.DeviceError, match="none"):
        model.predict(X)
    assert not general


def test_what_else_changes_in_the_environment_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    model = Model(made())
    X = probing_documents(np.random.default_rng(7), model.forest, 3)
    program = plain_calls._bound(lambda n: (model._programs.get("walk", "exact", None), 1), 3)
    score = calls_by(lambda n: (asked.append(n), program)[1]).raw
    for name, value in (("GPUQS_OTHER", "1"), ("GPUQS_OTHER", "2"), ("ANOTHER", "1" * 5000)):
        monkeypatch.setenv(name, value)
        score(X)
    monkeypatch.delenv("GPUQS_OTHER")
    score(X)
    assert asked == [3]
    ours = ("GPUQS_MACHINE_CODE", "0"), ("GPUQS_ISA", "portable"), ("GPUQS_ISA", "other")
    for n, (name, value) in enumerate(ours, 2):
        monkeypatch.setenv(name, value)
        score(X)
        score(X)
        assert asked == [3] * n
    monkeypatch.delenv("GPUQS_ISA")
    score(X)
    assert asked == [3] * 5


def test_threads_and_forks_call_at_once() -> None:
    model, X = Model(made(n_trees=200)), np.random.default_rng(10).normal(size=(40, 8))
    expected = [asked_otherwise(model, X[:n]) for n in range(1, 41)]
    wrong: list[int] = []

    def call() -> None:
        for _ in range(20):
            wrong.extend(n for n in range(1, 41) if not np.array_equal(model.predict(X[:n]), expected[n - 1]))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    if hasattr(os, "fork"):
        child = os.fork()
        if child == 0:
            os._exit(any(not np.array_equal(model.predict(X[:n]), expected[n - 1]) for n in (1, 40)))
        assert os.waitpid(child, 0)[1] == 0
    for thread in threads:
        thread.join()
    assert not wrong


def test_threads_call_while_costs_and_the_environment_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread discards cached choices while others use them."""
    model, X = Model(made(n_trees=60)), np.random.default_rng(12).normal(size=(40, 8))
    expected, isas = asked_otherwise(model, X), cpu_fallback.available_isas()
    wrong: list[int] = []
    monkeypatch.setenv("GPUQS_ISA", isas[0])  # restored after the test

    def call(first: int) -> None:
        for k in range(first, first + 300):
            if k % 3 == 0:
                cpu_fallback.costs_changed()
            elif k % 10 == 1:
                os.environ["GPUQS_ISA"] = isas[k // 10 % len(isas)]
            n = k % 40 + 1
            if not np.array_equal(model.predict(X[:n]), expected[:n]):
                wrong.append(n)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=call, args=(k * 7,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong


def test_the_memory_of_a_call_serves_the_next() -> None:
    """Calls that need less or more memory than the ones before, and one whose documents exceed the kept memory."""
    rng = np.random.default_rng(11)
    models = [Model(made(n_features=n, n_trees=t)) for n, t in ((8, 1), (300, 50), (3000, 20), (8, 400))]
    for _ in range(3):
        for model in models:
            for n in (1, 256, 13):
                X = rng.normal(size=(n, model.n_features))
                assert np.array_equal(model.predict(X), model.predict(X, engine="reference"))


@pytest.mark.parametrize("link", ["identity", "sigmoid"])
def test_a_model_is_freed_at_once(link: str) -> None:
    model = Model(made(link=link))
    model.predict(np.zeros((2, 8)))
    freed = weakref.ref(model), weakref.ref(model.forest)
    gc.disable()  # memory must be freed without it
    try:
        del model
        assert [ref() for ref in freed] == [None, None]
    finally:
        gc.enable()


def test_a_program_that_costs_overtook_is_not_kept() -> None:
    """While one call gets a program, a calibration ends and another call uses it: that call's program is kept."""
    models = [Model(made()) for _ in range(2)]
    models[1] = Model(random_forest(np.random.default_rng(6), n_features=models[0].n_features))
    X = probing_documents(np.random.default_rng(7), models[0].forest, 3)
    bound = [plain_calls._bound(lambda n, m=model: (m._programs.get("walk", "exact", None), 1), 3) for model in models]
    asked: list[int] = []

    def program_of(n: int) -> Any:
        asked.append(n)
        if len(asked) > 1:
            return bound[1]
        cpu_fallback.costs_changed()
        scorer.raw(X)
        return bound[0]

    scorer = calls_by(program_of)
    raw = [model.predict(X, "raw", engine="walk") for model in models]
    assert not np.array_equal(*raw)
    np.testing.assert_array_equal(scorer.raw(X), raw[0])
    np.testing.assert_array_equal(scorer.raw(X), raw[1])
    assert asked == [3, 3]


@pytest.mark.parametrize("change", ["shape", "dtype"])
def test_an_array_that_is_changed_while_its_program_is_made(change: str) -> None:
    """Changed in place by other code: read with its old shape or type, rows would lie outside the array."""
    model, X = Model(made()), np.zeros((4, 8))
    program = plain_calls._bound(lambda n: (model._programs.get("walk", "exact", None), 1), 4)

    def program_of(n: int) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecated in newer NumPy
            setattr(X, change, {"shape": (1, 32), "dtype": np.int64}[change])
        return program

    assert calls_by(program_of).raw(X) is None


def test_the_machine_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may change the environment between two reads; "portable" must not get machine code then."""
    isa = cpu_fallback.isa

    def then_changed() -> str:
        name = isa()
        monkeypatch.setenv("GPUQS_ISA", cpu_fallback.available_isas()[0])
        return name

    monkeypatch.setenv("GPUQS_ISA", "portable")
    monkeypatch.setattr(cpu_fallback, "isa", then_changed)
    assert cpu_fallback.machine() == ("portable", False)


def slow_model(monkeypatch: pytest.MonkeyPatch) -> tuple[Model, np.ndarray]:
    """A model for which a few documents take longer than waking a thread."""
    slow = Way("walk", n_threads=1)
    monkeypatch.setattr(chooser.Chooser, "way", lambda *_: slow)
    model = Model(random_forest(np.random.default_rng(5), n_trees=1_500, max_leaves=60))
    return model, probing_documents(np.random.default_rng(6), model.forest, 256)


@needs_the_lock
@pytest.mark.parametrize("brief", [True, False])
def test_calls_hold_the_interpreters_lock_once_they_were_brief(brief: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_calls, "BRIEF", np.inf if brief else plain_calls.BRIEF)
    model, X = slow_model(monkeypatch)
    expected = model.predict(X, n_threads=2)
    for _ in range(3):
        np.testing.assert_array_equal(model.predict(X), expected)
    assert lets_others_run(lambda: model.predict(X)) != brief


@needs_the_lock
def test_calls_that_took_long_give_the_lock_away_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain of nodes: some documents leave it at once, others walk to its end."""
    monkeypatch.setattr(chooser.Chooser, "way", lambda *_: Way("walk", n_threads=1))
    depth = 9_000
    chain = Forest(
        n_features=1,
        node_offsets=np.array([0, depth]), leaf_offsets=np.array([0, depth + 1]),
        feature=np.zeros(depth, np.int32), threshold=np.arange(depth, dtype=np.float64),
        left=~np.arange(depth, dtype=np.int32),
        right=np.append(np.arange(1, depth, dtype=np.int32), np.int32(~depth)),
        routing=np.zeros(depth, np.uint8), leaf_value=np.arange(depth + 1.0)[:, None],
    )  # fmt: skip
    model, X = Model(chain), np.full((64, 1), -1.0)

    def keeps_the_lock() -> bool:
        for _ in range(20):  # on a busy machine a call takes long now and then
            for _ in range(1100):
                assert (model.predict(X) == 0).all()
            if not lets_others_run(lambda: model.predict(X)):
                return True
        return False

    assert keeps_the_lock()
    for _ in range(5):
        assert (model.predict(X + depth) == depth - 1).all()
    assert lets_others_run(lambda: model.predict(X + depth), attempts=500)  # all threads may be on one processor
    assert keeps_the_lock()


def test_an_environment_whose_strings_are_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    model, X = Model(made()), np.zeros((2, 8))
    libc = ctypes.CDLL(None)
    text = ctypes.create_string_buffer(b"GPUQS_ISA=portable", 64)
    monkeypatch.setenv("GPUQS_ISA", "portable")  # monkeypatch restores the old value
    assert libc.putenv(text) == 0
    model.predict(X)
    text.value = b"GPUQS_ISA=none"
    with pytest.raises(gpuqs.errors.DeviceError, match="none"):
        model.predict(X)


def test_an_environment_that_is_emptied() -> None:
    code = (
        "import ctypes, numpy as np; from test_plain_calls import Model, cpu_fallback, made\n"
        "model, X = Model(made()), np.zeros((2, 8))\n"
        "before = [model.predict(X) for _ in range(2)][1]\n"
        "assert {key[2][0] for key in model._programs._made} == {'portable'}\n"
        "assert ctypes.CDLL(None).clearenv() == 0\n"
        "assert np.array_equal(model.predict(X), before)\n"
        "assert {key[2][0] for key in model._programs._made} == {'portable', cpu_fallback.available_isas()[0]}\n"
    )
    path = os.pathsep.join([*sys.path, os.path.dirname(__file__)])
    environment = {**os.environ, "GPUQS_ISA": "portable", "PYTHONPATH": path}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=100)


@pytest.mark.parametrize(
    ("engine", "build"), [("rankwalk", "build_rankwalk"), ("bitslice", "build_bitslice"), ("bitslice", "gray_values")]
)
def test_programs_are_made_for_one_instruction_set(engine: str, build: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may select another instruction set while they are built."""
    module, here = getattr(engines, engine), cpu_fallback.available_isas()
    X = probing_documents(np.random.default_rng(7), made(), 70)
    expected, built = Model(made()).predict(X, engine="reference"), getattr(module, build)
    for one, other in product(here, here):

        def meanwhile(*asked: Any, other: str = other) -> Any:
            os.environ["GPUQS_ISA"] = other
            return built(*asked)

        monkeypatch.setenv("GPUQS_ISA", one)
        monkeypatch.setattr(module, build, meanwhile)
        model = Model(made())
        model.predict(X, engine=engine)
        monkeypatch.setattr(module, build, built)
        for isa in (one, other):
            monkeypatch.setenv("GPUQS_ISA", isa)
            for n in (1, 5, 70):
                np.testing.assert_array_equal(model.predict(X[:n], engine=engine), expected[:n])


def test_what_interrupts_the_making_of_a_program_leaves_the_machine_to_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ctrl-C may come at any step, and its exception may be kept along with all frames that it passed."""
    X, here = np.zeros((2, 8)), cpu_fallback.available_isas()
    steps = kept = 0

    def interrupt(frame: Any, event: str, argument: Any) -> Any:
        nonlocal steps
        if frame.f_globals["__name__"] not in ("contextlib", "gpuqs.programs", "gpuqs.cpu_fallback"):
            return interrupt
        steps += 1
        if steps == at:
            raise KeyboardInterrupt
        return interrupt

    for at in range(1, 10_000):
        model, steps = Model(made()), 0
        monkeypatch.setenv("GPUQS_ISA", here[0])
        traced = sys.gettrace()
        sys.settrace(interrupt)
        try:
            model.predict(X, engine="walk")
            break
        except KeyboardInterrupt as error:
            kept = error
        finally:
            sys.settrace(traced)
        monkeypatch.setenv("GPUQS_ISA", here[-1])
        assert cpu_fallback.isa() == here[-1], (at, kept)
    assert kept and at > 20
