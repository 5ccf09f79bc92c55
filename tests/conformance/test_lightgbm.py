"""Every engine on every instruction set against the installed LightGBM, bit for bit."""

from __future__ import annotations

from decimal import Decimal
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
from agreement import COMPILED, DTYPES, Expected, able, assert_agrees, assert_engine_agrees
from trained import LIGHTGBM, category_frame, documents, lightgbm_trained, rows

import gpuqs
from gpuqs.errors import InputError

lgb = pytest.importorskip("lightgbm")



@cache
def expected(name: str, dtype: type) -> Expected:
    """Documents with LightGBM's raw scores, values and exit leaves."""
    trained = lightgbm_trained(name)
    X = documents(trained, dtype, infinite=True)
    booster = trained.booster
    leaves = booster.predict(X, pred_leaf=True, num_threads=1).reshape(len(X), -1)
    return Expected(X, booster.predict(X, raw_score=True, num_threads=1), booster.predict(X, num_threads=1), leaves)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", LIGHTGBM)
def test_reference(name: str, dtype: type) -> None:
    assert_agrees(lightgbm_trained(name).model, expected(name, dtype), "reference")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("engine", COMPILED)
@pytest.mark.parametrize("name", LIGHTGBM)
def test_engines(isa: str, name: str, engine: str, dtype: type) -> None:
    assert_engine_agrees(lightgbm_trained(name).model, expected(name, dtype), engine)


@pytest.mark.parametrize("name", ["regression", "zero_as_missing with nan", "multiclass"])
@pytest.mark.parametrize(
    "dtype", [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64, np.float16, bool]
)
def test_other_types_of_documents(name: str, dtype: type) -> None:
    trained = lightgbm_trained(name)
    rng = np.random.default_rng(0)
    X = rng.integers(-1000, 1000, (200, trained.model.n_features))
    X[0] = 2**31 - 1 if dtype is not np.float16 else 65_504  # rounded where integers become float32
    X = X.astype(dtype)
    raw = trained.booster.predict(X, raw_score=True, num_threads=1)
    np.testing.assert_array_equal(trained.model.predict(X, "raw").view(np.int64), raw.view(np.int64))


@pytest.mark.parametrize("name", ["regression", "nan"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_floats_of_another_byte_order(name: str, dtype: type) -> None:
    """LightGBM casts them to float32, even float64 values, so that some cross a threshold."""
    trained = lightgbm_trained(name)
    X = documents(trained, dtype, infinite=True)
    swapped = X.astype(X.dtype.newbyteorder())
    leaves = trained.booster.predict(swapped, pred_leaf=True, num_threads=1)
    assert dtype is np.float32 or (leaves != trained.booster.predict(X, pred_leaf=True, num_threads=1)).any()
    np.testing.assert_array_equal(trained.model.predict(swapped, "leaf"), leaves)


def test_lists() -> None:
    trained = lightgbm_trained("regression")
    for X in (trained.rows[:5].tolist(), [[1, 2, 3, 4, 5, 6, 7, 8]], [[True, 2, 3.5, 4, 5, 6, 7, 2**24 + 1]]):
        raw = trained.booster.predict(X, raw_score=True, num_threads=1)
        np.testing.assert_array_equal(trained.model.predict(X, "raw"), raw)


def test_objects_at_thresholds() -> None:
    """LightGBM converts lists with None and object arrays to float32, but lists of floats to float64."""
    trained = lightgbm_trained("regression")
    forest = trained.model.forest
    X = np.tile(np.nan_to_num(trained.rows[:1]), (forest.n_nodes, 1))
    X[np.arange(forest.n_nodes), forest.feature] = forest.threshold
    leaves = [trained.booster.predict(x, pred_leaf=True, num_threads=1) for x in (X, X.astype(np.float32))]
    assert (leaves[0] != leaves[1]).any()
    for x in (X.tolist(), [*X.tolist(), [None] * X.shape[1]], X.astype(object)):
        want = trained.booster.predict(x, pred_leaf=True, num_threads=1)
        np.testing.assert_array_equal(trained.model.predict(x, "leaf"), want)


def test_arrays_of_objects_for_estimators(tmp_path: Path) -> None:
    """An estimator's ``predict`` first lets scikit-learn convert object arrays, but not lists, to float64."""
    pytest.importorskip("sklearn")
    from gpuqs.sklearn import wrap

    rng = np.random.default_rng(1)
    X = 1.7e9 + rng.integers(0, 86_400, (500, 1)).astype(float)
    estimator = lgb.LGBMRegressor(n_estimators=20, verbosity=-1, n_jobs=1).fit(X, X[:, 0] % 3600)
    model = gpuqs.from_model(estimator)
    model.save(tmp_path / "model.gpuqs")
    objects = X.astype(object)
    assert (estimator.predict(objects) != estimator.booster_.predict(objects)).any()
    decimals = [[Decimal(value) for value in row] for row in X.tolist()]
    for x in (objects, X, objects.tolist(), [*objects.tolist(), [None]], decimals, list(objects)):
        want = estimator.predict(x)
        for each in (model, gpuqs.load(tmp_path / "model.gpuqs"), wrap(estimator)):
            np.testing.assert_array_equal(each.predict(x), want)
    of_booster = gpuqs.from_model(estimator.booster_)
    np.testing.assert_array_equal(of_booster.predict(objects), estimator.booster_.predict(objects))


def test_frames() -> None:
    pd = pytest.importorskip("pandas")
    trained = lightgbm_trained("nan")
    X = expected("nan", np.float64).X
    kinds = ["float64", "float32", "float64", "float32", "float64", "float32", "float32", "float64"]
    with np.errstate(over="ignore"):
        frame = pd.DataFrame({f"c{i}": X[:, i].astype(kind) for i, kind in enumerate(kinds)})
    raw = trained.booster.predict(frame, raw_score=True, num_threads=1)
    np.testing.assert_array_equal(trained.model.predict(frame, "raw"), raw)
    frame["c5"] = frame["c5"].fillna(0).clip(-1000, 1000).astype("int64")
    raw = trained.booster.predict(frame, raw_score=True, num_threads=1)
    np.testing.assert_array_equal(trained.model.predict(frame, "raw"), raw)


@pytest.mark.parametrize(("first", "n"), [(0, 5), (3, 4), (0, 1), (15, 100)])
@pytest.mark.parametrize("name", ["regression", "multiclass", "rf"])
def test_part_of_the_trees(name: str, first: int, n: int) -> None:
    trained = lightgbm_trained(name)
    X = expected(name, np.float64).X
    k = trained.model.n_outputs
    part = {"start_iteration": first, "num_iteration": n, "num_threads": 1}
    for engine in ("auto", *able(trained.model)):
        predict = partial(trained.model.predict, X, trees=slice(first * k, (first + n) * k), engine=engine)
        raw = trained.booster.predict(X, raw_score=True, **part)
        np.testing.assert_array_equal(predict("raw"), raw)
        np.testing.assert_array_equal(predict("value"), trained.booster.predict(X, **part))
        leaves = trained.booster.predict(X, pred_leaf=True, **part)
        np.testing.assert_array_equal(predict("leaf"), leaves)


@pytest.mark.parametrize("name", LIGHTGBM)
def test_fast_scores_are_within_their_bound(name: str) -> None:
    """Half a step of the fixed-point grid per tree, plus the rounding error of the library's own sums."""
    model = lightgbm_trained(name).model
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
    params = {"verbose": -1, "num_threads": 1, "min_data_per_group": 5, "cat_smooth": 1}
    booster = lgb.train(params, lgb.Dataset(frame, target), 10)
    model = gpuqs.from_model(booster)
    assert model.forest.has_categories
    raw = booster.predict(frame, raw_score=True, num_threads=1)
    np.testing.assert_array_equal(model.predict(frame, "raw"), raw)
    # Other categories in another order, some that the model has never seen.
    other, new = frame.copy(), ["new", "newer"] if kind == "text" else [-1, 999]
    known = frame["c1"].cat.categories[::-1]
    other["c1"] = frame["c1"].cat.add_categories(new).cat.reorder_categories([new[0], *known, new[1]])
    other.loc[other.index[:50], "c1"] = new[0]
    raw = booster.predict(other, raw_score=True, num_threads=1)
    np.testing.assert_array_equal(model.predict(other, "raw"), raw)
    table = pytest.importorskip("pyarrow").Table.from_pandas(other)
    np.testing.assert_array_equal(model.predict(table, "raw"), raw)
    if kind == "text":  # columns of plain strings are coded, too
        texts = other.assign(c1=other["c1"].astype(object))
        np.testing.assert_array_equal(model.predict(texts, "raw"), raw)
        np.testing.assert_array_equal(model.predict(table.set_column(1, "c1", table["c1"].cast("string")), "raw"), raw)
        placed = gpuqs.from_model(booster, categories=["c1", "c5"])
        np.testing.assert_array_equal(placed.predict(texts, "raw"), raw)
        with pytest.raises(InputError, match="'c5' holds numbers, but the model's categories are strings"):
            placed.predict(frame.assign(c5=1.0))
    else:  # and numbers by value if the category columns are known
        for number in ("float64", "Int64"):
            numbers = other.assign(c1=other["c1"].astype(number))
            with pytest.raises(InputError, match=r"2 category columns .* and X has 1: 'c5'"):
                model.predict(numbers)
            lists = dict(zip(["c5", "c1"], booster.pandas_categorical[::-1], strict=True))
            for columns in (["c1", "c5"], [1, 5], lists):
                placed = gpuqs.from_model(booster, categories=columns)
                np.testing.assert_array_equal(placed.predict(numbers, "raw"), raw)


@pytest.mark.parametrize("labels", [["no", "yes"], [3, 1, 7]])
def test_class_labels(labels: list) -> None:
    X, target = rows(np.random.default_rng(3))
    y = np.array(labels)[np.searchsorted(np.quantile(target, np.arange(1, len(labels)) / len(labels)), target)]
    classifier = lgb.LGBMClassifier(n_estimators=5, verbose=-1, n_jobs=1).fit(X, y)
    got = gpuqs.from_model(classifier).predict(X, "class")
    expected = classifier.predict(X)
    assert got.dtype.kind == expected.dtype.kind
    np.testing.assert_array_equal(got, expected)


def test_a_classifier_of_a_callers_own_objective_gives_no_labels() -> None:
    """LightGBM itself returns raw scores here: only the caller knows how they map to classes."""

    def logistic(y: np.ndarray, raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        p = 1 / (1 + np.exp(-raw))
        return p - y, p * (1 - p)

    X, target = rows(np.random.default_rng(3))
    classifier = lgb.LGBMClassifier(n_estimators=5, verbose=-1, n_jobs=1, objective=logistic).fit(X, target > 0)
    model = gpuqs.from_model(classifier)
    np.testing.assert_array_equal(model.predict(X), classifier.predict(X))
    with pytest.raises(ValueError, match=r"output='class' is for classifiers; .* scores are of a custom objective"):
        model.predict(X, "class")
