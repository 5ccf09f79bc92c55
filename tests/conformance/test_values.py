"""Values after a link equal the training library's bit for bit: raw scores of every size, few and many documents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from agreement import assert_same_bits
from trained import rows

import gpuqs
from gpuqs.model import Model

lgb = pytest.importorskip("lightgbm")
xgb = pytest.importorskip("xgboost")

N = 30_000
#: (Documents, threads): one document, few, more than few, and many on two threads.
CALLS = ((1, None), (100, None), (1000, 1), (N, 2))


def assert_values(model: Model, X: np.ndarray, theirs: np.ndarray, **words: Any) -> None:
    for n, threads in CALLS:
        got = model.predict(X[-n:], n_threads=threads, **{k: v[-n:] for k, v in words.items()})
        assert_same_bits(got, theirs[-n:])


def spread(n: int, n_outputs: int, largest: float) -> np.ndarray:
    """Raw scores around zero, up to the limits of the exponentials, and at these limits."""
    rng = np.random.default_rng(3)
    sizes = rng.choice([1e-3, 1, 10, largest], (n, n_outputs))
    raw = rng.normal(size=(n, n_outputs)) * sizes
    raw[:40] = rng.choice([88.7, 88.72, 88.73, 103, 104, 709, 710, 745, 746, 0], (40, n_outputs))
    raw[20:40] *= -1
    return raw


def one_leaf_each(objective: dict[str, Any], raw: np.ndarray) -> tuple[Any, np.ndarray]:
    """A LightGBM model whose leaves are those raw scores, and documents that reach each leaf."""
    n, k = raw.shape
    X = np.arange(n, dtype=np.float64)[:, None]
    y = np.arange(n) % max(k, 2)
    booster = lgb.train(
        {"num_leaves": n, "min_data_in_leaf": 1, "min_data_in_bin": 1, "max_bin": n, "min_sum_hessian_in_leaf": 0}
        | {"boost_from_average": False, "verbosity": -1, "num_threads": 1}
        | objective,
        lgb.Dataset(X, y),
        1,
    )
    leaves = booster.predict(X, pred_leaf=True).reshape(n, -1)
    for tree in range(k):
        for leaf in np.unique(leaves[:, tree]):
            booster.set_leaf_output(tree, int(leaf), raw[int(leaf), tree])
    return booster, X


LIGHTGBM: dict[str, dict[str, Any]] = {
    "sigmoid": {"objective": "binary"},
    "steep sigmoid": {"objective": "binary", "sigmoid": 1.7},
    "cross_entropy": {"objective": "cross_entropy"},
    "cross_entropy_lambda": {"objective": "cross_entropy_lambda"},
    "poisson": {"objective": "poisson"},
    "softmax": {"objective": "multiclass", "num_class": 5},
    "ova": {"objective": "multiclassova", "num_class": 3, "sigmoid": 0.7},
    "square root": {"objective": "regression", "reg_sqrt": True},
}


@pytest.mark.parametrize("name", LIGHTGBM)
def test_lightgbm(name: str) -> None:
    objective = LIGHTGBM[name]
    booster, X = one_leaf_each(objective, spread(600, objective.get("num_class", 1), 800))
    X = np.random.default_rng(4).permutation(np.resize(X, (N, 1)))
    theirs = booster.predict(X, num_threads=1)
    assert len(np.unique(theirs)) > 300  # of some hundred leaves
    assert_values(gpuqs.from_model(booster), X, theirs)


XGBOOST: dict[str, dict[str, Any]] = {
    "sigmoid": {"objective": "binary:logistic"},
    "poisson": {"objective": "count:poisson"},
    "gamma": {"objective": "reg:gamma"},
    "tweedie": {"objective": "reg:tweedie"},
    "softmax": {"objective": "multi:softprob", "num_class": 5},
}


@pytest.mark.parametrize("name", XGBOOST)
def test_xgboost(name: str) -> None:
    objective, rng = XGBOOST[name], np.random.default_rng(5)
    n_outputs = objective.get("num_class", 1)
    X, target = rows(rng, N)
    y = (target > 0) + (np.arange(N) % n_outputs if n_outputs > 1 else 0.5 * ("reg:" in objective["objective"]))
    y = y % n_outputs if n_outputs > 1 else y
    booster = xgb.train(objective | {"nthread": 1}, xgb.DMatrix(X[:2000], y[:2000]), 5)
    model = gpuqs.from_model(booster)
    assert_values(model, X, booster.predict(xgb.DMatrix(X)))
    margin = spread(N, n_outputs, 60).astype(np.float32)
    theirs = booster.predict(xgb.DMatrix(X, base_margin=margin))
    assert_values(model, X, theirs, base_margin=margin)


def test_xgboosts_failure_times() -> None:
    X, target = rows(np.random.default_rng(11), N)
    data, times = xgb.DMatrix(X[:2000]), np.exp(target[:2000] / 10)
    data.set_float_info("label_lower_bound", times)
    data.set_float_info("label_upper_bound", times)
    booster = xgb.train({"objective": "survival:aft", "nthread": 1}, data, 5)
    margin = np.random.default_rng(12).normal(size=(N, 1)).astype(np.float32) * 20
    theirs = booster.predict(xgb.DMatrix(X, base_margin=margin))
    assert_values(gpuqs.from_model(booster), X, theirs, base_margin=margin)


@pytest.mark.parametrize("kind", ["GradientBoostingClassifier", "HistGradientBoostingClassifier"])
@pytest.mark.parametrize("n_classes", [2, 4, 9])  # NumPy sums eight and more numbers in its own order
def test_sklearn(kind: str, n_classes: int) -> None:
    ensemble = pytest.importorskip("sklearn.ensemble")
    X, target = rows(np.random.default_rng(6), N)
    X = X.astype(np.float32).astype(np.float64)
    y = np.digitize(target, np.quantile(target, np.arange(1, n_classes) / n_classes))
    iterations = {"max_iter" if kind.startswith("Hist") else "n_estimators": 5}
    estimator = getattr(ensemble, kind)(**iterations).fit(X[:2000], y[:2000])
    model = gpuqs.from_model(estimator)
    for n, threads in CALLS:
        theirs = estimator.predict_proba(X[-n:])
        assert_same_bits(model.predict(X[-n:], n_threads=threads), theirs[:, 1] if n_classes == 2 else theirs)


def test_a_chunk_of_one_row_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last chunk of a call: NumPy sums a single row in another order."""
    ensemble = pytest.importorskip("sklearn.ensemble")
    X, target = rows(np.random.default_rng(9), 5001)
    y = np.digitize(target, np.quantile(target, np.arange(1, 9) / 9))
    estimator = ensemble.HistGradientBoostingClassifier(max_iter=5).fit(X, y)
    monkeypatch.setattr(gpuqs.calls, "rows_for_cpu", lambda *_: 1000)
    assert_same_bits(gpuqs.from_model(estimator).predict(X, engine="walk"), estimator.predict_proba(X))


def test_all_digits_of_a_live_boosters_sigmoid() -> None:
    """The text form has six digits; a model made from the text has no more, whatever its parameters say."""
    X, target = rows(np.random.default_rng(10), 2000)
    for objective in ({"objective": "binary"}, {"objective": "multiclassova", "num_class": 3}):
        y = np.digitize(target, [0.0, 1.0])[: len(X)] % objective.get("num_class", 2)
        given = objective | {"sigmoid": 1 / 3, "verbosity": -1, "num_threads": 1}
        for keep in (True, False):
            booster = lgb.train(given, lgb.Dataset(X, y), 10, keep_training_booster=keep)
            model = gpuqs.from_model(booster)
            assert (model.forest.link_scale == 1 / 3) is keep
            assert_same_bits(model.predict(X), booster.predict(X))


def test_sklearn_counts() -> None:
    ensemble = pytest.importorskip("sklearn.ensemble")
    X, target = rows(np.random.default_rng(7), N)
    estimator = ensemble.HistGradientBoostingRegressor(loss="poisson", max_iter=5).fit(X[:2000], np.exp(target[:2000]))
    assert_values(gpuqs.from_model(estimator), X, estimator.predict(X))


@pytest.mark.parametrize("loss", ["Logloss", "MultiClassOneVsAll"])
def test_catboost(loss: str) -> None:
    catboost = pytest.importorskip("catboost")
    X, target = rows(np.random.default_rng(8), N)
    y = np.digitize(target, np.quantile(target, [1 / 3, 2 / 3])) if "Multi" in loss else (target > 0).astype(int)
    quiet = {"verbose": 0, "allow_writing_files": False, "thread_count": 1}
    trained = catboost.CatBoostClassifier(iterations=5, loss_function=loss, **quiet).fit(X[:2000], y[:2000])
    theirs = trained.predict_proba(X)
    assert_values(gpuqs.from_model(trained), X, theirs[:, 1] if loss == "Logloss" else theirs)
