"""Every engine on every instruction set against the installed XGBoost, bit for bit."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from agreement import COMPILED, DTYPES, Expected, able, assert_agrees, assert_engine_agrees
from trained import XGBOOST, category_frame, documents, xgb_matrix, xgboost_trained

import gpuqs

xgb = pytest.importorskip("xgboost")



@cache
def expected(name: str, dtype: type) -> Expected:
    """Documents with XGBoost's margins, values and exit leaves."""
    trained = xgboost_trained(name)
    X = documents(trained, dtype, infinite=False)
    booster, data = trained.booster, xgb_matrix(X, XGBOOST[name])
    leaves = booster.predict(data, pred_leaf=True).reshape(len(X), -1)
    return Expected(X, booster.predict(data, output_margin=True), booster.predict(data), leaves)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", XGBOOST)
def test_reference(name: str, dtype: type) -> None:
    assert_agrees(xgboost_trained(name).model, expected(name, dtype), "reference")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("engine", COMPILED)
@pytest.mark.parametrize("name", XGBOOST)
def test_engines(isa: str, name: str, engine: str, dtype: type) -> None:
    assert_engine_agrees(xgboost_trained(name).model, expected(name, dtype), engine)


@pytest.mark.parametrize("name", ["regression", "nan", "softprob"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64, np.float16, bool])
def test_other_types_of_documents(name: str, dtype: type) -> None:
    trained = xgboost_trained(name)
    rng = np.random.default_rng(0)
    X = rng.integers(-1000, 1000, (200, trained.model.n_features))
    X[0] = 2**31 - 1 if dtype is not np.float16 else 65_504  # rounded where integers become float32
    X = X.astype(dtype)
    raw = trained.booster.predict(xgb.DMatrix(X), output_margin=True)
    np.testing.assert_array_equal(trained.model.predict(X, "raw").view(np.int32), raw.view(np.int32))


def test_prediction_in_place_agrees_too() -> None:
    trained = xgboost_trained("regression")
    X, raw = expected("regression", np.float32).X, expected("regression", np.float32).raw
    np.testing.assert_array_equal(trained.booster.inplace_predict(X, predict_type="margin"), raw)
    np.testing.assert_array_equal(trained.model.predict(X, "raw"), raw)


@pytest.mark.parametrize(("first", "n"), [(0, 5), (3, 4), (0, 1), (15, 5)])
@pytest.mark.parametrize("name", ["base_score", "softprob", "dart"])
def test_part_of_the_trees(name: str, first: int, n: int) -> None:
    trained = xgboost_trained(name)
    X = expected(name, np.float64).X
    k = trained.model.n_outputs
    raw = trained.booster.predict(xgb.DMatrix(X), output_margin=True, iteration_range=(first, first + n))
    for engine in ("auto", *able(trained.model)):
        got = trained.model.predict(X, "raw", trees=slice(first * k, (first + n) * k), engine=engine)
        np.testing.assert_array_equal(got, raw)


@pytest.mark.parametrize("name", ["base_score", "binary", "softprob", "dart"])
def test_base_margins(name: str) -> None:
    trained = xgboost_trained(name)
    X = expected(name, np.float32).X
    margin = np.random.default_rng(1).normal(size=(len(X), trained.model.n_outputs)).astype(np.float32)
    data = xgb.DMatrix(X, base_margin=margin)
    raw = trained.booster.predict(data, output_margin=True)
    for engine in ("auto", *able(trained.model)):
        np.testing.assert_array_equal(trained.model.predict(X, "raw", base_margin=margin, engine=engine), raw)
    values = trained.model.predict(X, base_margin=margin)
    np.testing.assert_array_equal(values, trained.booster.predict(data))


@pytest.mark.parametrize("name", XGBOOST)
def test_fast_scores_are_within_their_bound(name: str) -> None:
    """Half a step of the fixed-point grid per tree, plus the rounding error of the library's own sums."""
    model = xgboost_trained(name).model
    X, raw = expected(name, np.float32).X, expected(name, np.float32).raw
    values = model._programs.get("reference", "fast", None).values
    rounding = model.n_trees * np.spacing(np.abs(raw).max() + np.abs(model.predict(X, "per_tree")).sum(axis=1).max())
    got = model.predict(X, "raw", precision="fast")
    assert got.dtype == raw.dtype
    assert np.abs(got - raw.astype(np.float64)).max() <= model.n_trees * values.step / 2 + rounding


@pytest.mark.parametrize("kind", ["text", "number"])
def test_frames_with_categories(kind: str) -> None:
    pytest.importorskip("pandas")
    frame, target = category_frame(kind)
    data = xgb.DMatrix(frame, target, enable_categorical=True)
    booster = xgb.train({"tree_method": "hist", "nthread": 1, "max_cat_to_onehot": 1}, data, 10)
    model = gpuqs.from_model(booster)
    if not model.forest.schema.categories:
        pytest.skip("this XGBoost keeps no categories in the model")
    raw = booster.predict(data, output_margin=True)
    np.testing.assert_array_equal(model.predict(frame, "raw"), raw)
    fewer = frame[frame["c1"].isin(frame["c1"].cat.categories[3:9])].copy()
    fewer["c1"] = fewer["c1"].cat.remove_unused_categories()
    raw = booster.predict(xgb.DMatrix(fewer, enable_categorical=True), output_margin=True)
    np.testing.assert_array_equal(model.predict(fewer, "raw"), raw)
    table = pytest.importorskip("pyarrow").Table.from_pandas(fewer)
    np.testing.assert_array_equal(model.predict(table, "raw"), raw)
