"""gpuqs.sklearn.wrap compared with the estimators that it wraps, and used in scikit-learn's tools for estimators."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", minversion="1.6")
import catboost as cb
import cloudpickle  # joblib's requirement
import joblib
import lightgbm as lgb
import pandas as pd
import xgboost as xgb
from sklearn import ensemble, multiclass, multioutput, tree
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.frozen import FrozenEstimator
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.metrics import accuracy_score, get_scorer, make_scorer
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

import gpuqs
from gpuqs.errors import UnsupportedModelError
from gpuqs.sklearn import wrap


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """With more threads than processors, scikit-learn's histograms take seconds instead of milliseconds."""
    with threadpool_limits(1):
        yield


N = 500
TEXTS = np.array(["low", "middle", "high"])
LIGHTGBM = {"n_estimators": 12, "verbose": -1, "n_jobs": 1, "min_child_samples": 5}
XGBOOST = {"n_estimators": 12, "n_jobs": 1, "max_depth": 4}
CATBOOST = {"iterations": 12, "verbose": 0, "allow_writing_files": False, "thread_count": 1, "depth": 4}
SKLEARN = {"random_state": 1, "max_depth": 5}
FORESTS = {"n_estimators": 12, **SKLEARN}
HISTOGRAMS = {"max_iter": 12, "random_state": 1}
EARLY = {"early_stopping_rounds": 3, "n_estimators": 300, "learning_rate": 0.5}


@cache
def rows(missing: bool) -> np.ndarray:
    rng = np.random.default_rng(11)
    X = rng.normal(size=(N, 6)) * [1, 10, 1, 1e3, 1, 1]
    X[:, 4] = rng.integers(0, 5, N)
    if missing:
        X[rng.random(X.shape) < 0.05] = np.nan
    return X


@cache
def target(kind: str) -> np.ndarray:
    X = np.nan_to_num(rows(True))
    value = X[:, 0] + 0.1 * X[:, 1] + np.sin(3 * X[:, 2]) + 0.3 * np.random.default_rng(12).normal(size=N)
    grade = np.digitize(value, np.quantile(value, [0.3, 0.7]))
    return {
        "value": value,
        "count": np.floor(np.abs(value)) + 1,
        "several": np.column_stack([value, -(value**2)]),
        "binary": (value > 0.2).astype(int),
        "bool": value > 0.2,
        "int32": np.where(value > 0.2, 7, -3).astype(np.int32),
        "float": np.where(value > 0.2, 1.0, 0.0),
        "class": grade,
        "texts": TEXTS[grade],
        "two texts": np.where(value > 0.2, "yes", "no"),
        "object texts": TEXTS[grade].astype(object),
        "labels": np.column_stack([value > 0.2, X[:, 0] > 0, X[:, 2] > 0.4]).astype(int),
        "one": np.full(N, 7),
        "zero": np.zeros(N, int),
    }[kind]


def early(estimator: Any, y: np.ndarray) -> Any:
    """Train with early stopping on separate documents; it stops early, since half of the labels are random."""
    X, y = rows(True), np.where(np.random.default_rng(1).random(N) < 0.5, y, np.roll(y, 7))
    return estimator.fit(X[:300], y[:300], eval_set=[(X[300:], y[300:])])


def fitted(estimator: Any, kind: str, missing: bool = True, **fields: Any) -> Callable[[], Any]:
    return lambda: estimator.fit(rows(missing), target(kind), **fields)


GROUPS = {"group": [25] * (N // 25)}
WITHOUT_NAN = ("ExtraTree", "GradientBoosting", "IsolationForest")

ESTIMATORS: dict[str, Callable[[], Any]] = {
    **{
        f"LGBMClassifier, {kind}": fitted(lgb.LGBMClassifier(**LIGHTGBM), kind)
        for kind in ("binary", "bool", "int32", "float", "class", "texts", "two texts", "object texts", "one")
    },
    "LGBMClassifier, one against all": fitted(lgb.LGBMClassifier(**LIGHTGBM, objective="multiclassova"), "class"),
    "LGBMClassifier, forest": fitted(
        lgb.LGBMClassifier(**LIGHTGBM, boosting_type="rf", subsample=0.6, subsample_freq=1), "binary"
    ),
    "LGBMClassifier, early": lambda: early(lgb.LGBMClassifier(**LIGHTGBM | EARLY), target("binary")),
    "LGBMRegressor": fitted(lgb.LGBMRegressor(**LIGHTGBM), "value"),
    "LGBMRegressor, poisson": fitted(lgb.LGBMRegressor(**LIGHTGBM, objective="poisson"), "count"),
    "LGBMRanker": fitted(lgb.LGBMRanker(**LIGHTGBM), "class", **GROUPS),
    **{
        f"XGBClassifier, {kind}": fitted(xgb.XGBClassifier(**XGBOOST), kind)
        for kind in ("binary", "bool", "class", "labels", "zero")
    },
    "XGBClassifier, softmax": fitted(xgb.XGBClassifier(**XGBOOST, objective="multi:softmax"), "class"),
    "XGBClassifier, hinge": fitted(xgb.XGBClassifier(**XGBOOST, objective="binary:hinge"), "binary"),
    "XGBClassifier, early": lambda: early(xgb.XGBClassifier(**XGBOOST | EARLY), target("class")),
    "XGBRFClassifier": fitted(xgb.XGBRFClassifier(**XGBOOST), "binary"),
    "XGBRegressor": fitted(xgb.XGBRegressor(**XGBOOST), "value"),
    "XGBRegressor, poisson": fitted(xgb.XGBRegressor(**XGBOOST, objective="count:poisson"), "count"),
    "XGBRegressor, several": fitted(xgb.XGBRegressor(**XGBOOST), "several"),
    "XGBRegressor, early": lambda: early(xgb.XGBRegressor(**XGBOOST | EARLY), target("value")),
    "XGBRanker": fitted(xgb.XGBRanker(**XGBOOST), "class", **GROUPS),
    **{
        f"CatBoostClassifier, {kind}": fitted(cb.CatBoostClassifier(**CATBOOST), kind)
        for kind in ("binary", "bool", "int32", "float", "class", "texts", "two texts")
    },
    # Labels in an order chosen by the user.
    "CatBoostClassifier, named": fitted(cb.CatBoostClassifier(**CATBOOST, class_names=["yes", "no"]), "two texts"),
    "CatBoostClassifier, labels": fitted(cb.CatBoostClassifier(**CATBOOST, loss_function="MultiLogloss"), "labels"),
    "CatBoostRegressor": fitted(cb.CatBoostRegressor(**CATBOOST), "value"),
    "CatBoostRegressor, poisson": fitted(cb.CatBoostRegressor(**CATBOOST, loss_function="Poisson"), "count"),
    "CatBoostRegressor, several": fitted(cb.CatBoostRegressor(**CATBOOST, loss_function="MultiRMSE"), "several"),
    "CatBoostRanker": fitted(
        cb.CatBoostRanker(**CATBOOST, loss_function="YetiRank"), "class", group_id=np.repeat(np.arange(20), 25)
    ),
    **{
        f"{name}, {kind}": fitted(getattr(module, name)(**params), kind, not name.startswith(WITHOUT_NAN))
        for module, name, params, kinds in (
            (tree, "DecisionTreeClassifier", SKLEARN, ("binary", "texts", "one")),
            (tree, "ExtraTreeClassifier", SKLEARN, ("class",)),
            (tree, "DecisionTreeRegressor", SKLEARN, ("value", "several")),
            (ensemble, "RandomForestClassifier", FORESTS, ("binary", "bool", "int32", "object texts", "one")),
            (ensemble, "ExtraTreesClassifier", FORESTS, ("two texts",)),
            (ensemble, "RandomForestRegressor", FORESTS, ("value", "several")),
            (ensemble, "GradientBoostingClassifier", FORESTS, ("binary", "two texts", "texts")),
            (ensemble, "GradientBoostingRegressor", FORESTS, ("value",)),
            (ensemble, "HistGradientBoostingClassifier", HISTOGRAMS, ("binary", "int32", "texts", "one")),
            (ensemble, "HistGradientBoostingRegressor", HISTOGRAMS, ("value",)),
        )
        for kind in kinds
    },
    "GradientBoostingClassifier, exponential": fitted(
        ensemble.GradientBoostingClassifier(**FORESTS, loss="exponential"), "binary", False
    ),
    "IsolationForest": fitted(ensemble.IsolationForest(n_estimators=12, random_state=1), "value", False),
    # One in four of 497 documents: the offset equals the score of one document.
    "IsolationForest, contamination": lambda: ensemble.IsolationForest(
        n_estimators=12, contamination=0.25, random_state=1
    ).fit(rows(False)[:497]),
}


@cache
def estimator(name: str) -> Any:
    return ESTIMATORS[name]()


def documents(name: str) -> np.ndarray:
    return rows(not name.startswith(WITHOUT_NAN))


def assert_same_values(got: np.ndarray, theirs: np.ndarray, name: str = "") -> None:
    """Same shape, type and numbers; CatBoost's may differ in the last bits because it has its own exponential."""
    assert (got.shape, got.dtype) == (theirs.shape, theirs.dtype)
    eps = np.finfo(theirs.dtype).eps if name.startswith("CatBoost") else 0
    np.testing.assert_allclose(got, theirs, rtol=8 * eps, atol=4 * eps)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")  # raised by LightGBM itself
@pytest.mark.parametrize("name", ESTIMATORS)
def test_predictions(name: str) -> None:
    theirs, X = estimator(name), documents(name)
    ours = wrap(theirs)
    assert ours.n_features_in_ == theirs.n_features_in_
    assert hasattr(ours, "predict_proba") == hasattr(theirs, "predict_proba")
    of_lightgbm = isinstance(theirs, lgb.LGBMClassifier)  # LightGBM has it since 4.7
    assert hasattr(ours, "decision_function") == (hasattr(theirs, "decision_function") or of_lightgbm)
    expected = np.asarray(theirs.predict(X))
    if isinstance(theirs, ensemble.IsolationForest):
        np.testing.assert_array_equal(ours.predict(X), expected)
        return
    if not hasattr(ours, "classes_"):
        if ours.model.forest.link == "identity":
            np.testing.assert_array_equal(ours.predict(X), expected)
        assert_same_values(ours.predict(X), expected, name)
        return
    if isinstance(theirs, cb.CatBoostClassifier) and ours.model.n_outputs > 1 and "labels" not in name:
        expected = expected[:, 0]  # only CatBoost returns one column
    np.testing.assert_array_equal(ours.predict(X), expected)
    assert ours.predict(X).dtype == expected.dtype
    np.testing.assert_array_equal(ours.classes_, theirs.classes_)
    assert ours.classes_.dtype == theirs.classes_.dtype
    assert_same_values(ours.predict_proba(X), theirs.predict_proba(X), name)
    assert hasattr(ours, "predict_log_proba") == hasattr(theirs, "predict_log_proba")
    if hasattr(theirs, "predict_log_proba"):
        with np.errstate(divide="ignore"):
            assert_same_values(ours.predict_log_proba(X), theirs.predict_log_proba(X), name)
    if hasattr(theirs, "decision_function"):
        np.testing.assert_array_equal(ours.decision_function(X), theirs.decision_function(X))


STAGED = ("staged_predict", "staged_predict_proba", "staged_predict_log_proba", "staged_decision_function")


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_predictions_by_stages(name: str) -> None:
    """CatBoost's own stages sum in another order and give raw scores for regressors."""
    theirs, X = estimator(name), documents(name)
    ours = wrap(theirs)
    assert [hasattr(ours, method) for method in STAGED] == [hasattr(theirs, method) for method in STAGED]
    for method in filter(partial(hasattr, theirs), STAGED):
        raw = name.startswith("CatBoost") and ours.model.forest.link not in ("identity", "softmax", "sigmoid")
        stages = zip(getattr(ours, method)(X), getattr(theirs, method)(X), strict=True)
        for got, want in stages if not raw or hasattr(ours, "classes_") else ():
            if name.startswith("CatBoost") and method == "staged_predict" and hasattr(ours, "classes_"):
                assert (got == (want if got.ndim == want.ndim else want[:, 0])).mean() > 0.99
            elif name.startswith("CatBoost"):
                np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-13, strict=True)
            else:
                np.testing.assert_array_equal(got, want, strict=True)
    for method in filter(partial(hasattr, ours), STAGED):
        *_, last = getattr(ours, method)(X)
        whole = getattr(ours, method.removeprefix("staged_"))(X)
        np.testing.assert_array_equal(last.reshape(whole.shape), whole)


@pytest.mark.parametrize("name", ["XGBClassifier, early", "XGBRegressor, early"])
def test_early_stopping_left_trees_out(name: str) -> None:
    """Otherwise the test above would not cover early stopping."""
    theirs = estimator(name)
    best = theirs.best_iteration + 1
    assert best < theirs.get_booster().num_boosted_rounds()
    assert wrap(theirs).model.n_trees == best * (3 if "XGBC" in name else 1)


@pytest.mark.parametrize("name", ["IsolationForest", "IsolationForest, contamination"])
def test_outliers(name: str) -> None:
    theirs, X = estimator(name), rows(False)
    ours = wrap(theirs)
    np.testing.assert_array_equal(ours.score_samples(X), theirs.score_samples(X))
    np.testing.assert_array_equal(ours.decision_function(X), theirs.decision_function(X))
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    assert ours.offset_ == theirs.offset_
    assert ("contamination" in name) == (theirs.decision_function(X) == 0).any()


def test_category_frames() -> None:
    frame = pd.DataFrame(rows(True), columns=list("abcdef"))
    frame["e"] = pd.Categorical(np.array(["v", "w", "x", "y", "z"])[rows(False)[:, 4].astype(int)])
    models = [
        lgb.LGBMClassifier(**LIGHTGBM, min_data_per_group=5, cat_smooth=1),
        xgb.XGBClassifier(**XGBOOST, enable_categorical=True),
        ensemble.HistGradientBoostingClassifier(**HISTOGRAMS, categorical_features="from_dtype"),
    ]
    y = target("class") + (frame["e"] == "x")
    for model in models:
        model.fit(frame, y)
        ours = wrap(model)
        assert ours.model.forest.has_categories
        np.testing.assert_array_equal(ours.predict(frame), model.predict(frame))
        assert_same_values(ours.predict_proba(frame), model.predict_proba(frame))


def test_texts_are_no_numbers_to_sklearns_categories() -> None:
    """scikit-learn treats such a string as an unknown category; numbers in object arrays get the same scores."""
    X, y = rows(False), target("class")
    theirs = ensemble.HistGradientBoostingClassifier(**HISTOGRAMS, categorical_features=[4]).fit(X, y)
    ours, texts = wrap(theirs), X.astype(str).astype(object)
    assert (theirs.predict_proba(texts) != theirs.predict_proba(X)).any()
    for given in (texts, texts.tolist()):
        with pytest.raises(ValueError, match="str"):
            ours.predict_proba(given)
    assert_same_values(ours.predict_proba(X.astype(object)), theirs.predict_proba(X))
    assert_same_values(ours.predict_proba(X.tolist()), theirs.predict_proba(X))


@pytest.mark.parametrize("kind", ["M8[ns]", "M8[D]", "m8[ns]"])
def test_times_as_labels(kind: str, tmp_path: Any) -> None:
    X, labels = rows(False), np.arange(3).astype(kind)[target("class")]
    for theirs in (lgb.LGBMClassifier(**LIGHTGBM), ensemble.RandomForestClassifier(3, random_state=0)):
        model = gpuqs.from_model(theirs.fit(X, labels))
        want, copy = theirs.predict(X), pickle.loads(pickle.dumps(model))
        for found in (model.predict(X, "class"), wrap(theirs).predict(X), copy.predict(X, "class")):
            assert found.dtype == want.dtype
            np.testing.assert_array_equal(found, want)
        with pytest.raises(UnsupportedModelError, match="only strings, numbers and booleans"):
            model.save(tmp_path / "model.gpuqs")
    one = ensemble.RandomForestClassifier(3, random_state=0).fit(X, np.repeat(labels[:1], len(X)))
    found = gpuqs.from_model(one).predict(X, "class")
    assert found.dtype == labels.dtype and (found == labels[0]).all()


# -- scikit-learn's tools ----------------------------------------------------------------------


def pair(name: str = "RandomForestClassifier, binary") -> tuple[Any, Any, np.ndarray]:
    return estimator(name), wrap(estimator(name)), documents(name)


def test_pipelines() -> None:
    X = rows(False)
    frame = pd.DataFrame(X, columns=list("abcdef"))
    scale = make_column_transformer((StandardScaler(), ["a", "d"]), remainder="passthrough")
    theirs = make_pipeline(scale, lgb.LGBMClassifier(**LIGHTGBM)).set_output(transform="pandas")
    theirs.fit(frame, target("texts"))
    ours = wrap(theirs)
    assert theirs[-1] is not ours[-1]
    assert isinstance(ours[0], FrozenEstimator) and ours[0].estimator is not theirs[0]
    np.testing.assert_array_equal(ours.predict(frame), theirs.predict(frame))
    assert_same_values(ours.predict_proba(frame), theirs.predict_proba(frame))
    np.testing.assert_array_equal(ours.classes_, theirs.classes_)
    assert ours.score(frame, target("texts")) == theirs.score(frame, target("texts"))
    assert list(ours.feature_names_in_) == list("abcdef")
    by_hand = make_pipeline(theirs[0], wrap(theirs[-1]))
    np.testing.assert_array_equal(by_hand.predict(frame), theirs.predict(frame))


def test_importances() -> None:
    theirs, ours, X = pair()
    for scoring in (None, "roc_auc", ["accuracy", "neg_log_loss"]):
        expected, got = (
            permutation_importance(one, X, target("binary"), scoring=scoring, n_repeats=2, random_state=0)
            for one in (theirs, ours)
        )
        for key in expected if isinstance(scoring, list) else [None]:
            np.testing.assert_allclose(
                (got[key] if key else got).importances, (expected[key] if key else expected).importances, atol=1e-12
            )


@pytest.mark.parametrize("kind", ["average", "individual", "both"])
@pytest.mark.parametrize("name", ["RandomForestClassifier, object texts", "LGBMRegressor", "XGBClassifier, binary"])
def test_partial_dependence(name: str, kind: str) -> None:
    theirs, ours, _ = pair(name)
    of_classes = {"response_method": "predict_proba"} if hasattr(ours, "classes_") else {}
    expected, got = (
        partial_dependence(one, rows(False), [0, 2], kind=kind, method=method, grid_resolution=6, **of_classes)
        for one, method in ((theirs, "brute"), (ours, "auto"))
    )
    for key in {"average", "individual"} & set(expected):
        np.testing.assert_allclose(got[key], expected[key], rtol=1e-6)


@pytest.mark.parametrize("name", ["GradientBoostingClassifier, binary", "HistGradientBoostingClassifier, binary"])
def test_partial_dependence_of_boosted_estimators(name: str) -> None:
    """By default the originals use raw scores by recursion, the wrappers probabilities by brute force."""
    theirs, ours, _ = pair(name)
    X = rows(False)
    default = (partial_dependence(one, X, [0], grid_resolution=6)["average"] for one in (theirs, ours))
    assert not np.allclose(*default, rtol=0.01)
    brute = (partial_dependence(one, X, [0], grid_resolution=6, method="brute")["average"] for one in (theirs, ours))
    np.testing.assert_allclose(*brute, rtol=1e-9)


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
@pytest.mark.parametrize("name", ["RandomForestClassifier, binary", "GradientBoostingClassifier, texts"])
def test_calibration(name: str, method: str) -> None:
    theirs, ours, X = pair(name)
    y = target(name.rpartition(", ")[2])
    expected, got = (
        CalibratedClassifierCV(FrozenEstimator(one), method=method, cv=3).fit(X[:250], y[:250]).predict_proba(X)
        for one in (theirs, ours)
    )
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_scorers() -> None:
    theirs, ours, X = pair("HistGradientBoostingClassifier, binary")
    y = target("binary")
    for scorer in (get_scorer("roc_auc"), get_scorer("neg_log_loss"), make_scorer(accuracy_score)):
        assert scorer(ours, X, y) == pytest.approx(scorer(theirs, X, y), rel=1e-12)
    frozen = (cross_val_score(FrozenEstimator(one), X, y, scoring="roc_auc", cv=4) for one in (theirs, ours))
    np.testing.assert_allclose(*frozen, rtol=1e-12)
    np.testing.assert_array_equal(cross_val_predict(ours, X, y, cv=4), theirs.predict(X))


def test_ensembles_of_wrappers() -> None:
    names = ("RandomForestClassifier, binary", "HistGradientBoostingClassifier, binary")
    X, y = rows(True), target("binary")
    expected, got = (
        [
            ensemble.StackingClassifier(members, cv="prefit").fit(X, y).predict_proba(X),
            ensemble.VotingClassifier(members, voting="soft").fit(X, y).predict_proba(X),
        ]
        for members in (
            [(str(i), FrozenEstimator(estimator(name))) for i, name in enumerate(names)],
            [(str(i), wrap(estimator(name))) for i, name in enumerate(names)],
        )
    )
    np.testing.assert_allclose(got, expected, rtol=1e-9)
    regressors = [("a", wrap(estimator("LGBMRegressor"))), ("b", wrap(estimator("XGBRegressor")))]
    voted = ensemble.VotingRegressor(regressors).fit(X, target("value")).predict(X)
    np.testing.assert_allclose(voted, sum(estimator(n).predict(X) for n in ("LGBMRegressor", "XGBRegressor")) / 2)


def test_searches() -> None:
    _, ours, X = pair()
    y = target("binary")
    with pytest.raises(ValueError, match="Invalid parameter 'n_estimators' for estimator GpuqsClassifier"):
        GridSearchCV(ours, {"n_estimators": [5, 10]}, error_score="raise").fit(X, y)
    models = [ours.model, wrap(estimator("HistGradientBoostingClassifier, binary")).model]
    search = GridSearchCV(clone(ours), {"model": models}, cv=3).fit(X, y)
    scores = [np.mean(wrap(model).predict(X) == y) for model in models]
    assert scores[0] != scores[1]
    assert search.best_estimator_.model.forest.objective == models[int(np.argmax(scores))].forest.objective


def test_copies_and_processes(tmp_path: Any) -> None:
    theirs, ours, X = pair("LGBMClassifier, texts")
    y = target("texts")
    expected = ours.predict_proba(X)
    joblib.dump(ours, tmp_path / "model.joblib", compress=3)
    copies = [
        joblib.load(tmp_path / "model.joblib"),
        pickle.loads(pickle.dumps(ours)),
        cloudpickle.load(io.BytesIO(cloudpickle.dumps(ours))),
        pickle.loads(pickle.dumps(wrap(make_pipeline("passthrough", theirs)))),
    ]
    for copy in copies:
        np.testing.assert_array_equal(copy.predict_proba(X), expected)
        np.testing.assert_array_equal(copy.classes_, theirs.classes_)
    for backend in ("loky", "threading"):
        with joblib.parallel_backend(backend):
            scores = cross_val_score(ours, X, y, cv=4, n_jobs=2)
        np.testing.assert_array_equal(scores, cross_val_score(FrozenEstimator(theirs), X, y, cv=4))


@pytest.mark.parametrize("kind", ["stacking", "voting", "calibrated", "one for each target", "one against the rest"])
def test_fitted_estimators_within_others_are_replaced(kind: str) -> None:
    """As errors advise for estimators that combine others."""
    forest = ensemble.RandomForestClassifier(5, max_depth=4, random_state=0)
    X = rows(True)
    y = target("labels") if kind == "one for each target" else np.digitize(X[:, 0], [-0.5, 0.5])
    members = [("a", forest), ("b", tree.DecisionTreeClassifier(max_depth=3))]
    combined = {
        "stacking": lambda: ensemble.StackingClassifier(members),
        "voting": lambda: ensemble.VotingClassifier(members, voting="soft"),
        "calibrated": lambda: CalibratedClassifierCV(forest, cv=2),
        "one for each target": lambda: multioutput.MultiOutputClassifier(forest),
        "one against the rest": lambda: multiclass.OneVsRestClassifier(forest),
    }[kind]().fit(X, y)
    expected = combined.predict_proba(X)
    with pytest.raises(UnsupportedModelError, match="only the estimators in it"):
        gpuqs.from_model(combined)
    if kind == "calibrated":
        for each in combined.calibrated_classifiers_:
            each.estimator = wrap(each.estimator)
    else:
        combined.estimators_ = [wrap(each) for each in combined.estimators_]
    np.testing.assert_array_equal(combined.predict_proba(X), expected)
