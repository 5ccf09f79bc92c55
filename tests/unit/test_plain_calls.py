"""Plain calls use a separate fast path and give the same results as the general path."""

from __future__ import annotations

import dataclasses
from itertools import product
from typing import Any

import numpy as np
import pytest
from forests import probing_documents, random_forest
from plain_models import asked_otherwise, made

import gpuqs
from gpuqs import plain_calls, programs
from gpuqs.chunks import rows_at_once
from gpuqs.cpu_fallback import NAMES_OF_THREADS
from gpuqs.errors import InputError
from gpuqs.forest import CATEGORICAL, NEGATIVE_FRACTION_IS_ZERO, WHOLE_CODES, ZERO_THRESHOLD, Forest
from gpuqs.model import Model
from gpuqs.programs import FIRST_RANGES, MAX_PARTS, PARTS_KEPT, Programs
from gpuqs.schema import Schema

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


def model_and_documents(fields: dict[str, Any], n: int, dtype: type) -> tuple[Model, np.ndarray]:
    model = Model(made(**fields))
    with np.errstate(over="ignore"):
        return model, probing_documents(np.random.default_rng(6), model.forest, n).astype(dtype)


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
    monkeypatch.setattr("gpuqs.plain_calls.rows_copied", lambda forest: 59)
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
    monkeypatch.setattr("gpuqs.plain_calls.rows_copied", lambda forest, narrow: 10)
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
    tests = [(np.float64(t), 0) for t in (0.0, 1e-36, -1e-36, ZERO_THRESHOLD, -ZERO_THRESHOLD)]
    tests += [(0.0, CATEGORICAL | flags) for flags in range(0, 2 * WHOLE_CODES, NEGATIVE_FRACTION_IS_ZERO)]
    X = np.array([[1e-36], [-1e-36], [0.0], [1.0], [ZERO_THRESHOLD], [-ZERO_THRESHOLD], [2e-35], [-0.5]])
    first = {"category_offsets": np.array([0, 1]), "category_words": np.array([1], np.uint32)}  # the set of category 0
    for (threshold, routing), dtype in product(tests, ("float64", "float32")):
        fields = {"threshold": np.array([threshold]), "routing": np.array([routing], np.uint8), "input_dtype": dtype}
        model = Model(dataclasses.replace(stump, **fields, **(first if routing else {})))
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


@pytest.mark.parametrize("name", NAMES_OF_THREADS)
def test_no_number_of_threads_by_any_name(name: str, general: list[int]) -> None:
    model, X = Model(made()), np.random.default_rng(8).normal(size=(3, 8))
    assert model.predict(X, **{name: None}).tobytes() == model.predict(X).tobytes()
    assert general == []


@pytest.mark.parametrize("max_small", [plain_calls.MAX_SMALL, 1 << 20])
def test_more_than_signals_may_wait_for_takes_the_general_path(
    max_small: int, general: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain_calls, "MAX_SMALL", max_small)
    monkeypatch.setattr("gpuqs.chunks.CHUNK_WORK", 1_000_000)
    model = Model(made())
    most = rows_at_once(model.forest)
    X = np.random.default_rng(8).normal(size=(most + 1, 8)).astype(np.float32)
    scores = model.predict(X)
    assert general == [most + 1]
    assert model.predict(X[:most]).tobytes() == scores[:most].tobytes()
    assert general == [most + 1]
