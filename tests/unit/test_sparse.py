"""Sparse matrices as documents: what is read, what is refused, and how much memory it takes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from agreement import on_cpu
from forests import probing_documents, random_forest

import gpuqs
from gpuqs.cpu_fallback import sparse
from gpuqs.errors import InputError
from gpuqs.forest import ZERO_THRESHOLD
from gpuqs.model import Model
from gpuqs.schema import Schema

sp = pytest.importorskip("scipy.sparse")


def sparse_case(absent: float = 0.0, **fields: object) -> tuple[Model, object, np.ndarray]:
    """A model that tests some of its features, a CSR matrix, and the same rows dense."""
    rng = np.random.default_rng(5)
    forest = random_forest(rng, n_features=6, **fields)
    wide = np.array([3, 4, 10, 11, 30, 39], np.int32)
    forest = replace(forest, n_features=40, feature=wide[forest.feature], schema=Schema(absent=absent))
    X = probing_documents(rng, forest, 400)
    stored = rng.random(X.shape) < 0.4
    row, column = np.nonzero(stored)
    S = sp.csr_matrix((X[stored], column, np.searchsorted(row, np.arange(401))), shape=X.shape)
    return Model(forest), S, np.where(stored, X, absent)


@pytest.mark.parametrize("absent", [0.0, np.nan])
@pytest.mark.parametrize(
    "fields", [{}, {"n_outputs": 3, "link": "softmax"}, {"categorical": 0.4}, {"n_trees": 0}, {"max_leaves": 1}]
)
def test_every_answer_is_that_of_the_dense_rows(absent: float, fields: dict) -> None:
    model, S, dense = sparse_case(absent, **fields)
    engines = [name for name, reason in on_cpu(model).items() if reason is None]
    for X in (S, S.tocsc()):
        for engine in engines:
            for output in ("value", "raw", "leaf", "per_tree"):
                want = model.predict(dense, output, engine=engine)
                np.testing.assert_array_equal(model.predict(X, output, engine=engine), want)
        if model.forest.link == "softmax":
            np.testing.assert_array_equal(model.predict(X, "class"), model.predict(dense, "class"))
        for trees in (slice(0, 5), slice(3, 9)):
            for n_threads in (1, 3):
                got = model.predict(X, trees=trees, n_threads=n_threads)
                np.testing.assert_array_equal(got, model.predict(dense, trees=trees))
        out = np.empty_like(model.predict(dense))
        assert model.predict(X, out=out) is out
        np.testing.assert_array_equal(out, model.predict(dense))
        np.testing.assert_array_equal(model.predict(X[:0]), model.predict(dense[:0]))
        if model.engines()["bitslice"] is None:
            for trees in (None, slice(2, 7)):
                coded = model.predict(model.encode(X), "leaf", trees=trees)
                np.testing.assert_array_equal(coded, model.predict(dense, "leaf", trees=trees))


def test_many_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    model, S, dense = sparse_case(np.nan)
    S, dense = sp.vstack([S] * 5, "csr"), np.concatenate([dense] * 5)
    want = model.predict(dense)
    monkeypatch.setattr("gpuqs.chunks.CHUNK_BYTES", 8 * 6 * 100)
    for X in (S, S.tocsc()):
        np.testing.assert_array_equal(model.predict(X), want)
        np.testing.assert_array_equal(model.predict(model.encode(X)), want)


def test_a_narrowed_forest_is_the_same_trees() -> None:
    model, _, dense = sparse_case()
    forest = replace(model.forest, schema=Schema(tuple(f"c{i}" for i in range(40))))
    assert forest.tested.tolist() == sorted(set(forest.feature.tolist()))
    narrow = forest.narrowed
    assert narrow.feature_names == tuple(f"c{i}" for i in forest.tested) and narrow.narrowed is narrow
    np.testing.assert_array_equal(Model(narrow).predict(dense[:, forest.tested], "leaf"), model.predict(dense, "leaf"))


@pytest.mark.parametrize("format", ["coo", "lil", "dok", "bsr", "dia"])
def test_other_formats_become_csr(format: str) -> None:
    model, S, dense = sparse_case()
    S.data[:] = np.nan_to_num(S.data, posinf=1.0, neginf=-1.0)
    dense = S.toarray()
    for X in (S.asformat(format), sp.csr_array(S).asformat(format)):
        np.testing.assert_array_equal(model.predict(X), model.predict(dense))


def hostile(what: str, format: str, index: type) -> object:
    """A matrix of 40 rows and 40 columns with one thing wrong."""
    X = sp.random(40, 40, 0.5, format, rng=np.random.default_rng(0))
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    tested = int(X.indptr[10])
    if what == "beyond the columns":
        X.indices[tested] = 40
    elif what == "far beyond":
        X.indices[tested] = np.iinfo(index).max
    elif what == "negative index":
        X.indices[tested] = -1
    elif what == "most negative index":
        X.indices[tested] = np.iinfo(index).min
    elif what == "falling indptr":
        X.indptr[11] = X.indptr[10] - 1
    elif what == "negative indptr":
        X.indptr[10] = -5
    elif what == "beyond the entries":
        X.indptr[11:] = np.iinfo(index).max
    elif what == "short indices":
        X.indices = X.indices[:-100]
    elif what == "short data":
        X.data = X.data[:-100]
    elif what == "short indptr":
        X.indptr = X.indptr[:-1]
    elif what == "indices of floats":
        X.indices = X.indices.astype(np.float64)
    elif what == "no entries":
        X.indices, X.data = X.indices[:0], X.data[:0]
    else:
        assert what == "twice"
        X.indices[tested + 1] = X.indices[tested]
    return X


WRONG = (
    *("beyond the columns", "far beyond", "negative index", "most negative index", "falling indptr", "negative indptr"),
    *("beyond the entries", "short indices", "short data", "short indptr", "indices of floats", "no entries", "twice"),
)


def every_feature() -> Model:
    return Model(random_forest(np.random.default_rng(1), n_features=40, n_trees=60, max_leaves=32))


@pytest.mark.parametrize("format", ["csr", "csc"])
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("what", WRONG)
def test_inconsistent_matrices_are_refused(what: str, index: type, format: str) -> None:
    model = every_feature()
    assert len(model.forest.tested) == 40
    X = hostile(what, format, index)
    for call in (model.predict, model.encode):
        with pytest.raises(InputError, match="sum_duplicates" if what == "twice" else "inconsistent"):
            call(X)


def test_arrays_that_are_not_read_as_they_lie_are_refused() -> None:
    bounds, place_of, seen = np.array([0, 2, 3]), np.arange(4, dtype=np.int32), np.full(4, -1)
    arrays = {"indices": np.array([0, 3, 1], np.int32), "data": np.ones(3), "out": np.zeros((2, 4))}

    def scatter(**others: object) -> object:
        indices, data, out = (arrays | others).values()
        return sparse.scatter_csr(bounds, indices, data, 0, place_of, seen, None, out)

    assert scatter() == (0, 0, 0)
    assert arrays["out"].tolist() == [[1, 0, 0, 1], [0, 1, 0, 0]]
    for name, array in arrays.items():
        wrong = [None, array.astype(">f8"), np.repeat(array, 2, axis=-1)[..., ::2], array.astype(np.float16)]
        for other in wrong:
            with pytest.raises((TypeError, ValueError)):
                scatter(**{name: other})
    with pytest.raises(TypeError, match="neither int32 nor int64"):
        scatter(indices=arrays["indices"].astype(np.int16))


@pytest.mark.parametrize("format", ["csr", "csc"])
def test_entries_before_the_first_are_refused(format: str) -> None:
    X = sp.random(40, 40, 0.5, format, rng=np.random.default_rng(0))
    X.indptr[0] = 1
    with pytest.raises(InputError, match=f"inconsistent {format.upper()} matrix: indptr starts at 1, not at 0"):
        every_feature().predict(X)


@pytest.mark.parametrize("format", ["csr", "csc"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
def test_values_in_the_other_byte_order_are_refused(dtype: str, format: str) -> None:
    X = sp.random(40, 40, 0.5, format, rng=np.random.default_rng(0))
    X.data = (10 * X.data).astype(np.dtype(dtype).newbyteorder("S"))
    with pytest.raises(InputError, match=rf"X holds .{dtype} values, .* in another byte order.*X\.astype\('\w+'\)"):
        every_feature().predict(X)
    X.data = X.data.astype(dtype)
    every_feature().predict(X)


def test_unsorted_columns_are_refused_for_lightgbm() -> None:
    model = every_feature()
    X = sp.random(40, 40, 0.5, "csc", rng=np.random.default_rng(0))[::-1]
    np.testing.assert_array_equal(model.predict(X), model.predict(X.toarray()))
    model = Model(replace(model.forest, schema=Schema(library="LightGBM")))
    with pytest.raises(InputError, match=r"rows out of order; LightGBM skips entries there: call X\.sort_indices"):
        model.predict(X)
    X.sort_indices()
    np.testing.assert_array_equal(model.predict(X), model.predict(X.toarray()))


def test_an_inconsistent_coo_matrix_is_refused() -> None:
    X = sp.random(40, 40, 0.5, "coo", rng=np.random.default_rng(0))
    for axis, value in (("row", 40), ("col", 40), ("row", -1), ("col", 10**6)):
        wrong = X.copy()
        getattr(wrong, axis)[3] = value
        with pytest.raises(InputError, match="inconsistent COO"):
            every_feature().predict(wrong)


def test_wrong_shapes_are_refused() -> None:
    model = every_feature()
    for X in (sp.csr_matrix((3, 39)), sp.csc_array((3, 41)), sp.coo_array(np.ones(40))):
        with pytest.raises(InputError, match="the model was trained on 40 features"):
            model.predict(X)
    narrow = sp.random(5, 38, 0.5, "csr", rng=np.random.default_rng(0))
    with pytest.raises(InputError, match=r"38 features; .* X.resize\(X.shape\[0\], 40\) adds them"):
        model.predict(narrow)
    narrow.resize(narrow.shape[0], 40)
    assert len(model.predict(narrow)) == 5
    with pytest.raises(InputError, match="dtype complex128"):
        model.predict(sp.csr_matrix((3, 40), dtype=complex))


def test_untested_columns_are_not_looked_at() -> None:
    model, S, _ = sparse_case()
    untested = np.flatnonzero(model.forest.place_of[S.indices] < 0)
    want = model.predict(S)
    S.data[untested] = np.nan
    S.indices[untested] = 0  # column 0 repeatedly in the same row
    np.testing.assert_array_equal(model.predict(S), want)


def test_what_lightgbm_takes_for_zero_or_not() -> None:
    forest = replace(random_forest(np.random.default_rng(1), n_features=4), source="LightGBM 4")
    for X in (sp.csr_matrix(np.full((1, 4), -ZERO_THRESHOLD)), sp.csc_matrix(np.full((1, 4), np.float32(-1e-35)))):
        with pytest.raises(InputError, match="which LightGBM reads as zero only in some sparse formats"):
            Model(forest).predict(X)
        Model(replace(forest, source="scikit-learn")).predict(X)


def test_catboost_takes_no_sparse_categories() -> None:
    model, S, _ = sparse_case(categorical=0.4)
    schema = Schema(categories=((1, 2), *[None] * (model.n_features - 1)), library="CatBoost")
    with pytest.raises(InputError, match="a sparse matrix, but CatBoost models with categories take only dense"):
        Model(replace(model.forest, schema=schema)).predict(S)


WIDE = """
import numpy as np, scipy.sparse as sp
from dataclasses import replace
from forests import random_forest
from gpuqs.model import Model
def peak():
    return next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
rng = np.random.default_rng(0)
forest = random_forest(rng, n_features=300, n_trees=100)
tested = np.sort(rng.choice(1_000_000, 300, replace=False)).astype(np.int32)
model = Model(replace(forest, n_features=1_000_000, feature=tested[forest.feature]))
small = sp.random(20_000, 300, 0.2, "csr", rng=rng)
X = sp.csr_matrix((small.data, tested[small.indices], small.indptr), shape=(20_000, 1_000_000))
C = sp.csc_matrix(X)
want = Model(forest).predict(small.toarray())
before = peak()
for M in (X, C, X.astype(np.int32)):
    got = model.predict(M)
    assert M.dtype == np.int32 or np.array_equal(got, want)
    model.encode(M)
assert np.array_equal(model.predict(model.encode(X)), want)
print(peak() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peak memory is read from /proc")
def test_a_million_columns_take_little_memory() -> None:
    tests = str(Path(__file__).parents[1])
    run = subprocess.run(
        [sys.executable, "-c", WIDE], capture_output=True, text=True, env={"PYTHONPATH": tests, "OMP_NUM_THREADS": "2"}
    )
    assert run.returncode == 0, run.stderr
    assert float(run.stdout) < 200  # MiB; one row of all columns is 8, a chunk of 20,000 would be 160,000


def test_frames_of_sparse_columns() -> None:
    pd = pytest.importorskip("pandas")
    model, _, dense = sparse_case()
    for fill in (0.0, np.nan, 2.0):
        rows = np.where(dense == 0, fill, dense)
        columns = [pd.arrays.SparseArray(column, fill_value=fill) for column in rows.T]
        frame = pd.DataFrame({f"c{i}": column for i, column in enumerate(columns)})
        np.testing.assert_array_equal(model.predict(frame), model.predict(rows))
        frame["c0"] = 1.0  # not Sparse
        np.testing.assert_array_equal(model.predict(frame), model.predict(rows))
    counts = pd.DataFrame(np.eye(40, dtype=np.int64)).astype(pd.SparseDtype("int64", 0))
    np.testing.assert_array_equal(model.predict(counts), model.predict(np.eye(40)))


def test_saved_models_keep_what_absent_entries_are(tmp_path: Path) -> None:
    for absent in (0.0, np.nan):
        model, S, dense = sparse_case(absent)
        model.save(tmp_path / "model.gpuqs")
        again = gpuqs.load(tmp_path / "model.gpuqs")
        np.testing.assert_array_equal(again.predict(S), model.predict(dense))
