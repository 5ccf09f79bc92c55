"""LightGBM's and XGBoost's own keywords and early-stopped models, compared with the libraries."""

from __future__ import annotations

import pickle
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from trained import labels, lightgbm_trained, rows, xgboost_trained

import gpuqs
from gpuqs.model import Model

X, TARGET = rows(np.random.default_rng(8), 400)
CLASSES = labels("class", TARGET)
NOISE = np.random.default_rng(9).permutation(TARGET[200:])


def assert_same(ours: np.ndarray, theirs: np.ndarray) -> None:
    assert ours.shape == theirs.shape
    np.testing.assert_array_equal(ours, theirs)


# -- LightGBM ------------------------------------------------------------------------------------

LIGHTGBM_ITERATIONS: list[dict[str, Any]] = [
    {},
    {"num_iteration": None},
    {"num_iteration": -1},
    {"num_iteration": 0},
    {"num_iteration": 3},
    {"num_iteration": np.int64(3)},
    {"num_iteration": 10_000},
    {"start_iteration": 2},
    {"start_iteration": 2, "num_iteration": 3},
    {"start_iteration": 2, "num_iteration": -1},
    {"start_iteration": -3, "num_iteration": 2},
    {"start_iteration": 4, "num_iteration": 10_000},
]


@pytest.mark.parametrize("iterations", LIGHTGBM_ITERATIONS, ids=str)
@pytest.mark.parametrize("name", ["regression", "multiclass", "rf", "dart"])
def test_lightgbm(name: str, iterations: dict[str, Any]) -> None:
    trained = lightgbm_trained(name)
    model, booster, x = trained.model, trained.booster, trained.rows[:100]
    for asked in ({"raw_score": True}, {"pred_leaf": True}):
        assert_same(model.predict(x, **asked, **iterations), booster.predict(x, **asked, **iterations))
    np.testing.assert_array_equal(model.predict(x, **iterations), booster.predict(x, **iterations))


def test_lightgbm_past_the_last_iteration() -> None:
    trained = lightgbm_trained("regression")
    ours = trained.model.predict(trained.rows, raw_score=True, start_iteration=10_000)
    assert_same(ours, trained.booster.predict(trained.rows, raw_score=True, start_iteration=10_000))


@pytest.mark.parametrize("objective", ["regression", "binary", "multiclass", "poisson"])
def test_an_average_of_no_trees(objective: str) -> None:
    X = np.random.default_rng(0).normal(size=(200, 3))
    label = {"regression": X[:, 0], "poisson": np.exp(X[:, 0]), "multiclass": np.digitize(X[:, 0], [-0.5, 0.5])}
    params = {"objective": objective, "boosting": "rf", "bagging_fraction": 0.6, "bagging_freq": 1, "verbosity": -1}
    params |= {"num_class": 3 if objective == "multiclass" else 1, "num_threads": 1}
    booster = lgb.train(params, lgb.Dataset(X, label.get(objective, X[:, 0] > 0)), 4)
    model = gpuqs.from_model(booster)
    for asked in ({"start_iteration": 4}, {"start_iteration": 100, "raw_score": True}):
        theirs = booster.predict(X, **asked)
        assert np.isnan(theirs).all() == ("raw_score" not in asked)
        np.testing.assert_array_equal(model.predict(X, **asked), theirs)
    assert np.isnan(model.predict(X, trees=slice(0, 0))).all()


@cache
def stopped_lightgbm() -> lgb.Booster:
    data = [lgb.Dataset(X[:200], TARGET[:200]), lgb.Dataset(X[200:], NOISE)]
    params = {"num_leaves": 7, "learning_rate": 0.05, "verbose": -1, "num_threads": 1, "min_data_in_leaf": 5}
    booster = lgb.train(params, data[0], 12, valid_sets=[data[1]])
    booster.best_iteration = 4  # as lightgbm.early_stopping leaves it if later trees are kept
    return booster


def test_lightgbms_best_iteration(tmp_path: Path) -> None:
    booster = stopped_lightgbm()
    model = gpuqs.from_model(booster)
    assert (model.best_iteration, model.n_iterations, booster.num_trees()) == (4, 4, 12)
    for iterations in ({}, {"num_iteration": None}, {"num_iteration": 2}, {"num_iteration": model.best_iteration}):
        assert_same(model.predict(X, **iterations), booster.predict(X, **iterations))
    # Trees after the best iteration were dropped: asking for them is an error.
    for iterations in ({"num_iteration": -1}, {"num_iteration": 7}, {"start_iteration": 2}):
        with pytest.raises(ValueError, match=r"ends at its best.*8 that followed.*num_iteration=-1"):
            model.predict(X, **iterations)
    whole = gpuqs.from_model(booster.model_to_string(num_iteration=-1))
    assert (whole.best_iteration, whole.n_iterations) == (None, 12)
    assert_same(whole.predict(X, num_iteration=7), booster.predict(X, num_iteration=7))
    model.save(tmp_path / "model.gpuqs")
    for again in (gpuqs.load(tmp_path / "model.gpuqs"), pickle.loads(pickle.dumps(model))):
        assert (again.best_iteration, again.forest.iterations_left_out) == (4, 8)
    assert gpuqs.from_model(lightgbm_trained("regression").booster).best_iteration is None


# -- XGBoost -------------------------------------------------------------------------------------

XGBOOST_ITERATIONS: list[dict[str, Any]] = [
    {},
    *({"iteration_range": given} for given in ((0, 0), (0, 3), (2, 5), (2, 0), [1, np.int32(2)], (0, 1))),
]


@cache
def boosted(name: str) -> tuple[xgb.Booster, Model]:
    params = {"max_depth": 3, "nthread": 1}
    params |= {
        "parallel": {"num_parallel_tree": 3, "subsample": 0.5},
        "parallel classes": {"num_parallel_tree": 2, "subsample": 0.5, "objective": "multi:softprob", "num_class": 4},
        "vector leaves": {"multi_strategy": "multi_output_tree", "num_parallel_tree": 2, "subsample": 0.5},
        "labels": {"objective": "multi:softmax", "num_class": 4},
    }[name]
    targets = {"parallel": TARGET, "vector leaves": np.column_stack([TARGET, -TARGET])}
    booster = xgb.train(params, xgb.DMatrix(X, targets.get(name, CLASSES)), 6)
    return booster, gpuqs.from_model(booster)


@pytest.mark.parametrize("iterations", XGBOOST_ITERATIONS, ids=str)
@pytest.mark.parametrize(
    "name", ["regression", "softprob", "dart", "parallel", "parallel classes", "vector leaves", "labels"]
)
def test_xgboost(name: str, iterations: dict[str, Any]) -> None:
    if name in ("regression", "softprob", "dart"):
        booster, model, x = xgboost_trained(name).booster, xgboost_trained(name).model, xgboost_trained(name).rows[:100]
    else:
        (booster, model), x = boosted(name), X[:100]
    theirs = {key: tuple(map(int, value)) for key, value in iterations.items()}
    data = xgb.DMatrix(x)
    assert_same(model.predict(x, output_margin=True, **iterations), booster.predict(data, output_margin=True, **theirs))
    first, last = theirs.pop("iteration_range", (0, 0)) if iterations else (0, 0)
    # XGBoost gives leaves only for ranges that start at the first iteration.
    leaves = booster.predict(data, pred_leaf=True, iteration_range=(0, last)).reshape(len(x), -1)
    skipped = model.forest.iteration_starts[first]
    assert_same(model.predict(x, pred_leaf=True, **iterations), leaves[:, skipped:].astype(np.int32))
    theirs = {"iteration_range": (first, last)}
    np.testing.assert_array_equal(model.predict(x, **iterations), booster.predict(data, **theirs))


@pytest.mark.parametrize("beyond", [(0, 100), (5, 3), (-1, 3), (7, 0)])
def test_xgboost_refuses_iterations_that_are_not_there(beyond: tuple[int, int]) -> None:
    booster, model = boosted("labels")
    with pytest.raises(ValueError, match="not within the model's 6 iterations"):
        model.predict(X, iteration_range=beyond)
    if 0 <= beyond[0] <= 6:  # otherwise XGBoost reads past its table of iterations and refuses or not by chance
        with pytest.raises(xgb.core.XGBoostError):
            booster.predict(xgb.DMatrix(X), iteration_range=beyond)


def test_labels_of_softmax(tmp_path: Path) -> None:
    booster, model = boosted("labels")
    booster.save_model(tmp_path / "model.json")
    labels = booster.predict(xgb.DMatrix(X))
    assert labels.dtype == np.float32
    for read in (model, gpuqs.load(tmp_path / "model.json"), pickle.loads(pickle.dumps(model))):
        for ours in (read.predict(X), read.predict(X, precision="fast"), read.predict(read.encode(X))):
            assert ours.dtype == np.float32
            assert_same(ours, labels)
        out = np.empty(len(X), np.float32)
        assert_same(read.predict(X, out=out), labels)
        assert_same(read.predict(X, "class"), labels.astype(np.int64))
        assert read.predict(X[:0]).shape == (0,)
        assert read.predict(X, "raw").shape == (len(X), 4)
    # The classifier turns the margins into probabilities, so gpuqs does so for the estimator, too.
    classifier = xgb.XGBClassifier(objective="multi:softmax", n_estimators=6, max_depth=3).fit(X, CLASSES)
    read = gpuqs.from_model(classifier)
    np.testing.assert_array_equal(read.predict(X), classifier.predict_proba(X))
    assert_same(read.predict(X, "class"), classifier.predict(X).astype(np.int64))


@cache
def stopped_xgboost() -> xgb.XGBRegressor:
    regressor = xgb.XGBRegressor(n_estimators=40, early_stopping_rounds=5, learning_rate=0.5, max_depth=3, n_jobs=1)
    return regressor.fit(X[:200], TARGET[:200], eval_set=[(X[200:], NOISE)], verbose=False)


def test_xgboosts_best_iteration(tmp_path: Path) -> None:
    regressor = stopped_xgboost()
    booster, best = regressor.get_booster(), regressor.best_iteration
    n = booster.num_boosted_rounds()
    assert best + 1 < n
    regressor.save_model(tmp_path / "model.json")
    for source in (booster, tmp_path / "model.json", bytes(booster.save_raw("ubj"))):
        with pytest.warns(UserWarning, match=rf"iteration {best} was its best, but it holds {n}.*iteration_range="):
            model = gpuqs.load(source) if isinstance(source, Path) else gpuqs.from_model(source)
        assert (model.best_iteration, model.n_iterations) == (best, n)
        assert_same(model.predict(X), booster.predict(xgb.DMatrix(X)))
        assert_same(model.predict(X, iteration_range=(0, model.best_iteration + 1)), regressor.predict(X))
    model.save(tmp_path / "model.gpuqs")
    with pytest.warns(UserWarning, match="stopped early"):
        assert gpuqs.load(tmp_path / "model.gpuqs").best_iteration == best


def test_the_warning_names_the_callers_line(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    stopped_xgboost().save_model(path)
    for call in (gpuqs.load, gpuqs.from_model):
        with pytest.warns(UserWarning, match="stopped early") as caught:
            call(path)
        assert [warning.filename for warning in caught] == [__file__]


def test_a_stopped_xgbmodel_is_as_its_own_predict_uses_it() -> None:
    regressor = stopped_xgboost()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = gpuqs.from_model(regressor)
    best = regressor.best_iteration
    assert (model.best_iteration, model.n_iterations) == (best, best + 1)
    for given in (None, (0, 0), (0, best + 1)):
        assert_same(model.predict(X, iteration_range=given), regressor.predict(X, iteration_range=given))
    with pytest.raises(ValueError, match=r"ends at its best one; 5 followed: convert get_booster\(\)"):
        model.predict(X, iteration_range=(0, best + 2))


def test_dart_is_scored_as_a_matrix_is() -> None:
    """As README says: XGBoost's in-place prediction sums DART's trees in another way."""
    trained = xgboost_trained("dart")
    x = trained.rows.astype(np.float32)
    ours = trained.model.predict(x)
    assert_same(ours, trained.booster.predict(xgb.DMatrix(x)))
    np.testing.assert_allclose(ours, trained.booster.inplace_predict(x), rtol=1e-5, atol=1e-5)


# -- CatBoost ------------------------------------------------------------------------------------


def test_catboosts_best_iteration() -> None:
    catboost = pytest.importorskip("catboost")
    quiet = {"iterations": 30, "learning_rate": 0.5, "depth": 3, "verbose": 0, "allow_writing_files": False}
    stopped = catboost.CatBoostRegressor(**quiet).fit(X[:200], TARGET[:200], eval_set=(X[200:], NOISE))
    model = gpuqs.from_model(stopped)
    assert (model.best_iteration, model.n_iterations) == (stopped.get_best_iteration(), stopped.tree_count_)
    assert model.best_iteration + 1 == model.n_iterations
    assert_same(model.predict(X, iteration_range=(0, model.best_iteration + 1)), stopped.predict(X))
    assert gpuqs.from_model(catboost.CatBoostRegressor(**quiet).fit(X, TARGET)).best_iteration is None
