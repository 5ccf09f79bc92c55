"""XGBModel(missing=...): a number that stands for missing values, in all kinds of documents, against the estimator."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from copy import copy
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
import xgboost as xgb

import gpuqs
from gpuqs.errors import UnsupportedModelError
from gpuqs.sklearn import wrap

#: A number halfway between two float32, and the float32 that XGBoost gets, which rounds its shortest decimal form.
HALFWAY, ROUNDED = -2.899818945299814e-26, float(np.float32(-2.899819099374209e-26))
#: 0.1 and 2**24 + 1 are not representable in float32.
NUMBERS = (-999, 0, 0.1, 2**24 + 1, float("inf"), HALFWAY)


@cache
def rows(missing: float, seed: int = 0) -> np.ndarray:
    """Integers and fractions as float64; a fifth are the missing number, some are NaN."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(700, 5)) * [1, 1, 50, 1, 1]
    X[:, 2] = np.round(X[:, 2])
    X[rng.random(X.shape) < 0.2] = ROUNDED if missing == HALFWAY else missing
    X[rng.random(X.shape) < 0.05] = np.nan
    return X


@cache
def estimator(missing: float) -> Any:
    X = rows(missing)
    is_missing = np.isnan(X) | (missing == X)
    target = np.where(is_missing[:, 0], 3, X[:, 0]) + np.where(is_missing[:, 2], -2, X[:, 2] / 30) + is_missing[:, 1]
    return xgb.XGBRegressor(n_estimators=20, max_depth=4, n_jobs=1, missing=missing).fit(X, target)


MAKERS: dict[str, Callable[[np.ndarray], Any]] = {
    "float32": lambda X: X.astype(np.float32),
    "float64": lambda X: X,
    "F order": lambda X: np.asfortranarray(X.astype(np.float32)),
    "strided": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "list": lambda X: X.tolist(),
    "pandas": pd.DataFrame,
    "pandas, float32": lambda X: pd.DataFrame(X.astype(np.float32)),
    "polars": pl.DataFrame,
    "arrow": lambda X: pa.table({str(at): X[:, at] for at in range(X.shape[1])}),
    "CSR": lambda X: sp.csr_matrix(np.nan_to_num(X, nan=7.0, posinf=np.inf)),
    "CSC": lambda X: sp.csc_matrix(np.nan_to_num(X, nan=7.0, posinf=np.inf)),
}


@pytest.mark.parametrize("missing", NUMBERS)
@pytest.mark.parametrize("kind", MAKERS)
def test_scores_are_the_estimators(kind: str, missing: float) -> None:
    theirs, model = estimator(missing), gpuqs.from_model(estimator(missing))
    for n in (1, 3, 40, 700):
        X = MAKERS[kind](rows(missing, 1)[:n])
        for _ in range(2):  # the first call takes another path
            np.testing.assert_array_equal(model.predict(X), theirs.predict(X))
        np.testing.assert_array_equal(model.predict(X, output_margin=True), theirs.predict(X, output_margin=True))
        np.testing.assert_array_equal(model.predict(X, "leaf"), theirs.apply(X))


def test_the_number_counts() -> None:
    """The missing number changes scores; otherwise the tests above would show nothing."""
    for missing in NUMBERS:
        X, model = rows(missing, 1), gpuqs.from_model(estimator(missing))
        of_booster = gpuqs.from_model(estimator(missing).get_booster())
        assert (model.predict(X) != of_booster.predict(X)).mean() > 0.2


def test_whole_numbers() -> None:
    X = np.nan_to_num(rows(-999, 2), nan=3).astype(np.int64)
    np.testing.assert_array_equal(gpuqs.from_model(estimator(-999)).predict(X), estimator(-999).predict(X))


@pytest.mark.parametrize("missing", NUMBERS)
def test_wherever_a_model_goes(missing: float, tmp_path: Path) -> None:
    X, theirs, model = rows(missing, 1), estimator(missing), gpuqs.from_model(estimator(missing))
    expected = theirs.predict(X)
    model.save(tmp_path / "model.gpuqs")
    loaded = gpuqs.load(tmp_path / "model.gpuqs")
    assert loaded.forest.schema.missing == model.forest.schema.missing is not None
    for other in (loaded, pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(other.predict(X), expected)
    np.testing.assert_array_equal(wrap(theirs).predict(X), expected)
    np.testing.assert_array_equal(model.predict(model.encode(X)), expected)
    np.testing.assert_array_equal(model.predict(X, iteration_range=(0, 7)), theirs.predict(X, iteration_range=(0, 7)))
    assert [*map(list, model.staged_predict(X, eval_period=10))] == [
        list(theirs.predict(X, iteration_range=(0, end))) for end in (10, 20)
    ]
    out = np.empty(len(X), np.float32)
    given = X.copy()
    assert model.predict(given, out=out) is out
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(given, X)  # the caller's array is unchanged


def test_large_batches_on_several_threads() -> None:
    X = np.tile(rows(-999, 1), (60, 1))
    np.testing.assert_array_equal(
        gpuqs.from_model(estimator(-999)).predict(X, n_threads=2), estimator(-999).predict(X)
    )


def test_files_of_older_versions_and_others_say_so(tmp_path: Path) -> None:
    """A reader that does not know about missing numbers must not accept the file."""
    gpuqs.from_model(estimator(-999)).save(tmp_path / "numbers")
    gpuqs.from_model(estimator(-999).get_booster()).save(tmp_path / "none")
    versions = [int.from_bytes((tmp_path / name).read_bytes()[8:12], "little") for name in ("numbers", "none")]
    assert versions == [2, 1]


@pytest.mark.parametrize("n_trees", [1, 20])
def test_columns_that_no_tree_tests_are_left_out(n_trees: int) -> None:
    """Even if there are many of them and few tested columns."""
    X = np.zeros((900, 40), np.float32)
    X[:, [3, 17]] = rows(-999, 3)[np.arange(900) % 700, :2]
    target = np.nan_to_num(X[:, 3] + X[:, 17] ** 2)
    theirs = xgb.XGBRegressor(n_estimators=n_trees, max_depth=2, n_jobs=1, missing=-999).fit(X, target)
    model = gpuqs.from_model(theirs)
    for n in (1, 40, 900):
        for given in (X[:n], X[:n].astype(np.float64), pd.DataFrame(X[:n]), sp.csr_matrix(X[:n])):
            np.testing.assert_array_equal(model.predict(given), theirs.predict(given))


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (2**60 + 1, "as XGBoost reads integers that large in two ways"),
        (10**400, "as XGBoost reads integers that large in two ways"),
        ("-999", "as it is not a number"),
        (True, "as it is not a number"),
        (np.array([1.0]), "as it is not a number"),
        (np.datetime64("NaT"), "as it is not a number"),
        (pd.NA, "as it is not a number"),
        (Decimal("0.5"), "as it is not a number"),
    ],
)
def test_what_is_refused(value: Any, why: str) -> None:
    theirs = copy(estimator(-999)).set_params(missing=value)
    with pytest.raises(UnsupportedModelError, match=f"is not supported, {why}; replace .* by NaN in the documents"):
        gpuqs.from_model(theirs)


@pytest.mark.parametrize("value", [None, float("nan"), np.float32("nan")])
def test_nan_alone(value: Any) -> None:
    assert gpuqs.from_model(copy(estimator(-999)).set_params(missing=value)).forest.schema.missing is None


def test_beside_categories() -> None:
    X = pd.DataFrame({"a": pd.Categorical(["x", "y", "z"] * 30), "b": np.arange(90.0)})
    theirs = xgb.XGBRegressor(n_estimators=3, missing=1, enable_categorical=True).fit(X, np.arange(90))
    with pytest.raises(
        UnsupportedModelError, match=r"missing=1 is not supported for models with categories; replace 1 by NaN"
    ):
        gpuqs.from_model(theirs)
