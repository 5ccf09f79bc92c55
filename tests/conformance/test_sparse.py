"""Sparse matrices get the same scores as from the source library, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from agreement import assert_same_bits, on_cpu
from trained import LIGHTGBM, XGBOOST, lightgbm_trained, xgboost_trained

import gpuqs
from gpuqs.errors import InputError
from gpuqs.forest import ZERO_THRESHOLD, Forest
from gpuqs.model import Model
from gpuqs.verify import Check, open_source, verify

sp = pytest.importorskip("scipy.sparse")
pytest.importorskip("lightgbm")
xgb = pytest.importorskip("xgboost")
catboost = pytest.importorskip("catboost")
ensemble = pytest.importorskip("sklearn.ensemble")

FORMATS = ["csr_matrix", "csc_matrix", "csr_array", "csc_array", "coo_array", "lil_array"]
DENSITIES = [0.0, 0.1, 0.6]


def sparse_rows(
    forest: Forest, density: float, dtype: type = np.float64, n: int = 130, special: tuple[float, ...] = ()
) -> Any:
    """CSR of random values and thresholds, with empty rows, explicit zeros and special values among the entries."""
    rng = np.random.default_rng(int(100 * density) + 1)
    X = rng.normal(size=(n, forest.n_features)) * 3
    numeric = np.flatnonzero(~np.isnan(forest.threshold))
    for node in rng.choice(numeric, min(len(numeric), 5 * n)) if len(numeric) else ():
        X[rng.integers(n), forest.feature[node]] = forest.threshold[node]
    odd = np.array([0.0, -0.0, *special])
    X = np.where(rng.random(X.shape) < 0.2, rng.choice(odd, X.shape), X)
    row, column = np.nonzero(rng.random(X.shape) < density)
    keep = row % 10 != 3  # some rows are empty
    row, column = row[keep], column[keep]
    with np.errstate(over="ignore"):
        data = X[row, column].astype(dtype)
    return sp.csr_matrix((data, column, np.searchsorted(row, np.arange(n + 1))), shape=X.shape)


def as_format(S: Any, name: str) -> Any:
    X = getattr(sp, name)(S)
    return X if name.startswith(("csr", "csc")) else X.copy()


def assert_scores(model: Model, X: Any, raw: np.ndarray, leaves: np.ndarray | None = None) -> None:
    """Every engine, and encoded documents, give these raw scores and exit leaves, also on two threads."""
    raw = raw.reshape(-1, model.n_outputs).squeeze(axis=1) if model.n_outputs == 1 else raw.reshape(-1, model.n_outputs)
    for engine, reason in on_cpu(model).items():
        if reason is not None or engine == "qs_gpu":
            continue
        assert_same_bits(model.predict(X, "raw", engine=engine, n_threads=2), raw)
        if leaves is not None:
            np.testing.assert_array_equal(model.predict(X, "leaf", engine=engine), leaves.reshape(X.shape[0], -1))
    if model.engines()["bitslice"] is None:
        assert_same_bits(model.predict(model.encode(X), "raw"), model.predict(X, "raw"))


@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize(
    "name", ["regression", "nan", "zero_as_missing with nan", "multiclass", "categories", "odd scales", "300 leaves"]
)
def test_lightgbm(name: str, density: float) -> None:
    trained = lightgbm_trained(name)
    assert name in LIGHTGBM
    tiny = (5e-324, -1e-40, 1e-36, ZERO_THRESHOLD, -np.nextafter(ZERO_THRESHOLD, 1))
    for dtype in (np.float64, np.float32):
        S = sparse_rows(trained.model.forest, density, dtype, special=(np.nan, np.inf, -np.inf, *tiny))
        S.data[S.data == -ZERO_THRESHOLD] = 0
        for form in FORMATS if dtype is np.float64 else FORMATS[:2]:
            X = as_format(S, form)
            raw = trained.booster.predict(X, raw_score=True, num_threads=1)
            assert_scores(trained.model, X, raw, trained.booster.predict(X, pred_leaf=True, num_threads=1))


@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("name", ["regression", "nan", "zeros", "softprob", "vector leaves", "dart", "categories"])
def test_xgboost(name: str, density: float) -> None:
    trained, recipe = xgboost_trained(name), XGBOOST[name]
    kinds = ["c" if i in recipe.categorical else "q" for i in range(trained.model.n_features)]
    typed = {"feature_types": kinds, "enable_categorical": True} if recipe.categorical else {}
    for dtype in (np.float64, np.float32):
        S = sparse_rows(trained.model.forest, density, dtype, special=(np.nan,))
        for column in recipe.categorical:
            here = S.indices == column
            S.data[here] = np.arange(here.sum()) % 5
        for form in FORMATS if dtype is np.float64 else FORMATS[:2]:
            X = as_format(S, form)
            matrix = xgb.DMatrix(X, nthread=1, **typed)
            raw = trained.booster.predict(matrix, output_margin=True)
            assert_scores(trained.model, X, raw, trained.booster.predict(matrix, pred_leaf=True))
    if not typed and name != "dart":  # XGBoost sums DART's trees in another way in place
        raw = trained.booster.inplace_predict(S, predict_type="margin")
        np.testing.assert_array_equal(trained.model.predict(S, "raw"), raw)


@cache
def catboost_trained() -> tuple[Any, Model]:
    rng = np.random.default_rng(0)
    S = sp.random(2000, 12, 0.4, "csr", rng=rng)
    booster = catboost.CatBoostRegressor(iterations=40, verbose=0, thread_count=1, allow_writing_files=False)
    booster.fit(S, np.asarray(S.sum(axis=1)).ravel())
    return booster, gpuqs.from_model(booster)


@pytest.mark.parametrize("density", DENSITIES)
def test_catboost(density: float) -> None:
    booster, model = catboost_trained()
    S = sparse_rows(model.forest, density, special=(np.nan, np.inf, -np.inf))
    for X in (S, S.astype(np.float32), S.tocsc(), S.tocoo()):
        raw = booster.predict(X, prediction_type="RawFormulaVal", thread_count=1)
        assert_scores(model, X, raw)


SKLEARN: dict[str, Callable[[], Any]] = {
    "forest": lambda: ensemble.RandomForestRegressor(8, random_state=0),
    "extra trees": lambda: ensemble.ExtraTreesRegressor(8, random_state=0),
    "boosting": lambda: ensemble.GradientBoostingRegressor(n_estimators=12, random_state=0),
}


@pytest.mark.parametrize("name", SKLEARN)
def test_sklearn(name: str) -> None:
    rng = np.random.default_rng(1)
    train = sp.random(800, 9, 0.3, "csr", rng=rng, data_rvs=lambda size: rng.normal(size=size))
    estimator = SKLEARN[name]().fit(train, np.asarray(train.sum(axis=1)).ravel())
    model = gpuqs.from_model(estimator)
    for density in DENSITIES:
        S = sparse_rows(model.forest, density)
        for X in (S, S.astype(np.float32), (100 * S).astype(np.int64), S.astype(bool), S.tocsc(), sp.csc_array(S)):
            np.testing.assert_array_equal(model.predict(X), estimator.predict(X))


def test_sklearn_knows_no_missing_values_in_sparse_matrices() -> None:
    """NaN goes right there, whatever training chose; only isolation forests accept it at all."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(300, 4)).round(1)
    X[rng.random(X.shape) < 0.1] = np.nan
    estimator = ensemble.IsolationForest(n_estimators=10, random_state=0).fit(X)
    S, model = sp.csr_matrix(X), gpuqs.from_model(estimator)
    assert (estimator.score_samples(S) != estimator.score_samples(X)).any()
    for given in (S, S.tocsc(), S.astype(np.float32)):
        with pytest.raises(InputError, match=r"is sparse and holds NaN.*pass X\.toarray\(\)"):
            model.predict(given)
    frame = pytest.importorskip("pandas").DataFrame.sparse.from_spmatrix(S)
    with pytest.raises(InputError, match=r"is sparse and holds NaN.*pass X\.sparse\.to_dense\(\)"):
        model.predict(frame)
    np.testing.assert_array_equal(model.predict(frame.sparse.to_dense()), model.predict(X))
    assert np.isfinite(model.predict(sp.csr_matrix(np.nan_to_num(X)))).all()


def test_treelite_takes_absent_entries_for_missing() -> None:
    treelite = pytest.importorskip("treelite")
    trained = xgboost_trained("regression")
    theirs = treelite.frontend.from_xgboost(trained.booster)
    model = gpuqs.load(theirs.dump_as_json().encode())
    S = sparse_rows(model.forest, 0.3, np.float32)
    raw = treelite.gtil.predict(theirs, S, pred_margin=True)
    np.testing.assert_allclose(model.predict(S, "raw"), raw.ravel(), rtol=1e-6)
    assert not np.allclose(model.predict(S, "raw"), model.predict(S.toarray(), "raw"))


def test_an_absent_entry_is_no_zero_for_xgboost() -> None:
    trained = xgboost_trained("zeros")
    S = sparse_rows(trained.model.forest, 0.3)
    assert not np.array_equal(trained.model.predict(S), trained.model.predict(S.toarray()))
    stored = sp.csr_matrix(np.ones(S.shape))
    stored.data[:] = S.toarray().ravel()
    np.testing.assert_array_equal(trained.model.predict(stored), trained.model.predict(S.toarray()))


@pytest.mark.parametrize("dtype", [*"bBhHiIlL?"])
def test_other_types_of_entries(dtype: str) -> None:
    trained = xgboost_trained("regression")
    rng = np.random.default_rng(0)
    dense = rng.integers(-1000, 1000, (200, trained.model.n_features))
    dense[rng.random(dense.shape) < 0.6] = 0
    dense[0] = 2**31 - 1
    S = sp.csr_matrix(dense).astype(dtype)
    raw = trained.booster.predict(xgb.DMatrix(S, nthread=1), output_margin=True)
    for X in (S, S.tocsc()):
        assert_same_bits(trained.model.predict(X, "raw"), raw)


@pytest.mark.parametrize("format", ["csr", "csc"])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_types_and_orders_of_indices(index: type, format: str) -> None:
    trained = lightgbm_trained("regression")
    S = sparse_rows(trained.model.forest, 0.4)
    raw = trained.booster.predict(S, raw_score=True, num_threads=1)
    X = S.asformat(format)
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    for first, end in zip(X.indptr[:-1], X.indptr[1:], strict=True):  # back to front
        X.indices[first:end] = X.indices[first:end][::-1].copy()
        X.data[first:end] = X.data[first:end][::-1].copy()
    X.has_sorted_indices = False
    if format == "csr":
        assert_scores(trained.model, X, raw)
        return
    assert not np.array_equal(trained.booster.predict(X, raw_score=True, num_threads=1), raw)
    with pytest.raises(InputError, match=r"column \d+ has its rows out of order; LightGBM .*X\.sort_indices"):
        trained.model.predict(X)
    X.sort_indices()
    assert_scores(trained.model, X, raw)


def test_xgboost_takes_rows_of_columns_in_any_order() -> None:
    trained = xgboost_trained("regression")
    X = sparse_rows(trained.model.forest, 0.4, np.float32).tocsc()[::-1]
    assert not X.has_sorted_indices
    raw = trained.booster.predict(xgb.DMatrix(X, nthread=1), output_margin=True)
    assert_same_bits(trained.model.predict(X, "raw"), raw)


def test_duplicates_in_coo_are_added_up() -> None:
    of_lightgbm, of_xgboost = lightgbm_trained("regression"), xgboost_trained("regression")
    S = sparse_rows(of_lightgbm.model.forest, 0.4).tocoo()
    halves = [np.concatenate([part, part]) for part in (S.data / 2, S.row, S.col)]
    X = sp.coo_matrix((halves[0], (halves[1], halves[2])), shape=S.shape)
    raw = of_lightgbm.booster.predict(X, raw_score=True, num_threads=1)
    assert_same_bits(of_lightgbm.model.predict(X, "raw"), raw)
    assert_same_bits(of_lightgbm.model.predict(S, "raw"), raw)
    S = sp.coo_matrix((X.data.astype(np.float32), (X.row, X.col)), shape=(S.shape[0], of_xgboost.model.n_features))
    raw = of_xgboost.booster.predict(xgb.DMatrix(S, nthread=1), output_margin=True)
    assert_same_bits(of_xgboost.model.predict(S, "raw"), raw)


@pytest.mark.parametrize("fill", [0.0, np.nan, 1.5])
def test_frames_of_sparse_columns(fill: float) -> None:
    pd = pytest.importorskip("pandas")
    of_lightgbm, of_xgboost = lightgbm_trained("nan"), xgboost_trained("nan")
    dense = sparse_rows(of_lightgbm.model.forest, 0.3, special=(np.nan,)).toarray()
    dense[dense == 0] = fill
    columns = [pd.arrays.SparseArray(column, fill_value=fill) for column in dense.T]
    for kind in ("all", "some"):
        frame = pd.DataFrame({f"f{i}": c if kind == "all" or i % 2 else dense[:, i] for i, c in enumerate(columns)})
        raw = of_lightgbm.booster.predict(frame, raw_score=True, num_threads=1)
        assert_same_bits(of_lightgbm.model.predict(frame, "raw"), raw)
        raw = of_xgboost.booster.predict(xgb.DMatrix(frame, nthread=1), output_margin=True, validate_features=False)
        assert_same_bits(of_xgboost.model.predict(frame, "raw"), raw)


@pytest.mark.parametrize("form", FORMATS)
def test_verify_gives_the_library_the_matrix_itself(form: str) -> None:
    trained = xgboost_trained("zeros")
    X = as_format(sparse_rows(trained.model.forest, 0.3, n=1500, special=(np.nan, np.inf)), form)
    data = bytes(trained.booster.save_raw("ubj"))
    certificate = verify(data, X, rows=10)
    assert certificate.ok, certificate.first
    infinite = np.isinf(X.toarray()).any(axis=1).sum()
    assert infinite and certificate.rows["rows of X"] == 1500 - infinite


def test_verify_tells_absent_entries_from_zeros() -> None:
    trained = xgboost_trained("zeros")
    source = open_source(bytes(trained.booster.save_raw("ubj")))
    wrong = replace(source.forest, schema=replace(source.forest.schema, absent=0.0))
    check = Check(source, forest=wrong)
    check.add(sparse_rows(wrong, 0.3), "rows of X")
    assert not check.certificate.ok
    assert check.certificate.first is not None and check.certificate.first.path
