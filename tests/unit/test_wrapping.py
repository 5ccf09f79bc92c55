"""What gpuqs.sklearn.wrap keeps of its input, what callers must specify, and what it refuses."""

from __future__ import annotations

import pickle
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("sklearn", minversion="1.6")
import lightgbm as lgb
import xgboost as xgb
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import (
    AdaBoostClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    IsolationForest,
    RandomForestClassifier,
)
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.tree import DecisionTreeRegressor

import gpuqs
from gpuqs.errors import ModelFormatError, UnsupportedModelError
from gpuqs.sklearn import GpuqsClassifier, GpuqsOutlierDetector, GpuqsRegressor, wrap

RNG = np.random.default_rng(5)
X = RNG.normal(size=(300, 5))
Y = (X[:, 0] + 0.5 * RNG.normal(size=300) > 0).astype(int)


@cache
def lightgbm() -> Any:
    return lgb.LGBMClassifier(n_estimators=5, verbose=-1, n_jobs=1).fit(X, np.array(["no", "yes"])[Y])


@cache
def isolation() -> Any:
    return IsolationForest(n_estimators=5, contamination=0.2, random_state=0).fit(X)


@cache
def stopped() -> Any:
    chance = np.random.default_rng(6).integers(0, 2, 300)
    model = xgb.XGBClassifier(n_estimators=60, early_stopping_rounds=5, learning_rate=0.5, n_jobs=1)
    return model.fit(X[:200], Y[:200], eval_set=[(X[200:], np.where(chance, Y, 1 - Y)[200:])], verbose=False)


# -- wrappers wrapped again ----------------------------------------------------------------------


def test_a_wrapper_keeps_its_settings() -> None:
    first = wrap(lightgbm(), classes=["n", "y"], n_threads=2, precision="fast")
    again = wrap(first)
    assert again is not first
    assert again.get_params() == first.get_params()
    other = wrap(make_pipeline("passthrough", first), precision="exact", n_threads=1, classes=["a", "b"])[-1]
    assert (other.n_threads, other.precision, other.classes) == (1, "exact", ["a", "b"])
    detector = wrap(isolation(), n_threads=2)
    assert wrap(detector).get_params() == detector.get_params()
    assert wrap(detector, offset=-0.4).get_params() == {**detector.get_params(), "offset": -0.4}


def test_a_wrapper_keeps_its_kind() -> None:
    of_scores = wrap(lightgbm(), kind="regressor", n_threads=2)
    assert type(wrap(of_scores)) is GpuqsRegressor
    assert type(wrap(wrap(lightgbm().booster_, kind="classifier"))) is GpuqsClassifier
    scores = wrap(isolation(), kind="regressor")
    assert type(wrap(scores)) is GpuqsRegressor
    changed = wrap(of_scores, kind="classifier")
    assert (type(changed), changed.n_threads) == (GpuqsClassifier, 2)


# -- pipelines -----------------------------------------------------------------------------------


def test_pipelines_stay_as_they_were_fitted() -> None:
    """All their steps are kept: fitting a copy or a clone changes neither the answers nor the original pipeline."""
    frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(X.shape[1])])
    scaled = ColumnTransformer([("scaled", StandardScaler(), list(frame)[:2])], remainder="passthrough")
    theirs = make_pipeline(scaled, "passthrough", RandomForestClassifier(5, random_state=0)).fit(frame, Y)
    want = theirs.predict_proba(frame)
    fast = wrap(theirs)
    name = "randomforestclassifier"
    search = GridSearchCV(fast, {f"{name}__precision": ["exact", "fast"]}, cv=2)
    best = search.fit(frame, Y).best_estimator_
    for fitted in (fast, fast.fit(frame[:50] * 9 + 5, Y[:50]), clone(fast), wrap(fast), best):
        np.testing.assert_allclose(fitted.predict_proba(frame), want, atol=1e-6)
    np.testing.assert_array_equal(fast.predict_proba(frame), want)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fast)).predict_proba(frame), want)
    assert list(cross_val_score(fast, frame, Y, cv=3)) == list(cross_val_score(FrozenEstimator(theirs), frame, Y, cv=3))
    fast.set_output(transform="pandas")
    assert isinstance(fast[:-1].transform(frame), pd.DataFrame) and isinstance(theirs[:-1].transform(frame), np.ndarray)
    np.testing.assert_array_equal(theirs.predict_proba(frame), want)
    assert (fast.n_features_in_, list(fast.feature_names_in_)) == (X.shape[1], list(frame))


def test_steps_that_cannot_be_copied_are_shared() -> None:
    def same(rows: np.ndarray, uncopied: Any = None) -> np.ndarray:
        return rows

    shared = FunctionTransformer(same, kw_args={"uncopied": (i for i in ())})
    theirs = make_pipeline(shared, RandomForestClassifier(5, random_state=0)).fit(X, Y)
    np.testing.assert_array_equal(wrap(theirs).predict_proba(X), theirs.predict_proba(X))


# -- isolation forests ---------------------------------------------------------------------------


def test_an_isolation_forests_offset_must_be_told(tmp_path: Path) -> None:
    live = wrap(isolation())
    live.model.save(tmp_path / "model.gpuqs")
    for source in (live.model, tmp_path / "model.gpuqs"):
        with pytest.raises(ValueError, match=r"do not say.*pass offset=estimator\.offset_"):
            wrap(source)
        told = wrap(source, offset=live.offset_, expected_depth=live.expected_depth)
        assert type(told) is GpuqsOutlierDetector
        np.testing.assert_array_equal(told.predict(X), isolation().predict(X))
        np.testing.assert_array_equal(wrap(source, kind="regressor").predict(X), live.model.predict(X))
    with pytest.raises(TypeError, match="offset"):
        GpuqsOutlierDetector(live.model)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"offset": -0.5}, "offset= does not apply to the GpuqsClassifier"),
        ({"expected_depth": 3.0}, "expected_depth= does not apply to the GpuqsClassifier"),
        ({"kind": "regressor", "classes": ["a", "b"]}, "classes= does not apply to the GpuqsRegressor"),
    ],
)
def test_keywords_of_other_kinds_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        wrap(lightgbm(), **options)


# -- what scikit-learn asks of fit ---------------------------------------------------------------


def test_fit_takes_weights() -> None:
    wrapper = wrap(RandomForestClassifier(3, random_state=0).fit(X, Y))
    with config_context(enable_metadata_routing=True):
        assert wrapper.set_fit_request(sample_weight=True).fit(X, Y, sample_weight=np.ones(300)) is wrapper
    boosted = AdaBoostClassifier(wrapper, n_estimators=2).fit(X, Y)
    np.testing.assert_array_equal(boosted.predict(X), wrapper.predict(X))


def test_log_probabilities_only_where_the_estimator_has_them() -> None:
    for model in (GradientBoostingClassifier(n_estimators=2), HistGradientBoostingClassifier(max_iter=2)):
        model.fit(X, Y)
        assert hasattr(wrap(model), "predict_log_proba") == hasattr(model, "predict_log_proba")


# -- parts of models -----------------------------------------------------------------------------


def test_a_stopped_models_file_as_what_it_was(tmp_path: Path) -> None:
    path, best = tmp_path / "model.json", stopped().best_iteration
    stopped().save_model(path)
    with pytest.warns(UserWarning, match=rf"stopped early.*pass iteration_range=\(0, {best + 1}\) to wrap$") as caught:
        whole = wrap(path)
    assert [warning.filename for warning in caught] == [__file__]
    part = wrap(path, iteration_range=(0, best + 1))
    assert part.model.n_iterations == best + 1 < whole.model.n_iterations
    np.testing.assert_array_equal(part.predict(X), stopped().predict(X))
    np.testing.assert_array_max_ulp(part.predict_proba(X), stopped().predict_proba(X), 4)
    assert wrap(part).model is part.model
    later = wrap(whole, iteration_range=(1, 3)).model
    np.testing.assert_array_equal(later.predict(X), whole.model.predict(X, iteration_range=(1, 3)))
    assert (later.n_iterations, later.best_iteration) == (2, None)
    booster = xgb.Booster(model_file=path)
    with pytest.warns(UserWarning, match="stopped early") as caught:
        wrap(make_pipeline("passthrough", booster))
    assert [warning.filename for warning in caught] == [__file__]
    in_a_pipeline = wrap(make_pipeline("passthrough", stopped()), iteration_range=(0, 1))
    assert in_a_pipeline[-1].model.n_iterations == 1
    with pytest.raises(ValueError, match="is not within the model's"):
        wrap(path, iteration_range=(0, 1000))


# -- labels --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        (["a"], "classes has 1 labels; the model has 2 classes"),
        (["a", "a"], r"classes holds a label twice: \['a', 'a'\]"),
        ("ab", "classes must be a list of labels, not 'ab'"),
        ([["a", "b"]], "classes must be a list of labels"),
    ],
)
def test_bad_classes_are_refused_at_once(classes: Any, said: str) -> None:
    for model in (lightgbm(), lightgbm().booster_):
        with pytest.raises(ValueError, match=said):
            wrap(model, classes=classes)


def test_one_class_only() -> None:
    wrapper = wrap(xgb.XGBClassifier(n_estimators=2, n_jobs=1).fit(X, np.zeros(300, int)))
    assert wrapper.classes_.tolist() == [0]
    assert wrap(wrapper, classes=["a"]).predict(X).tolist() == ["a"] * 300


# -- what is taken, and what is not --------------------------------------------------------------


def test_a_model_is_given_back() -> None:
    model = gpuqs.from_model(lightgbm())
    assert gpuqs.from_model(model) is model
    named = gpuqs.from_model(model, categories={0: ["a", "b"]})
    assert named is not model
    assert named.forest.schema.categories[0]


def test_frozen_estimators_are_opened() -> None:
    theirs = lightgbm()
    wrapper = wrap(FrozenEstimator(make_pipeline("passthrough", FrozenEstimator(theirs))))
    np.testing.assert_array_equal(wrapper.predict(X), theirs.predict(X))
    with pytest.raises(UnsupportedModelError, match=r"pass frozen\.estimator"):
        gpuqs.from_model(FrozenEstimator(theirs))


def test_transformed_targets_say_what_to_pass() -> None:
    model = TransformedTargetRegressor(DecisionTreeRegressor(max_depth=2)).fit(X, Y)
    for take in (wrap, gpuqs.from_model):
        with pytest.raises(UnsupportedModelError, match=r"pass estimator\.regressor_"):
            take(model)


def test_what_is_no_model_is_told_apart(tmp_path: Path) -> None:
    for model, said in (
        (lgb.LGBMRegressor(), "lightgbm.LGBMRegressor: the model is not fitted; call fit first"),
        ("", "path: is empty; pass the path"),
        (tmp_path, "is a directory; pass the path"),
    ):
        with pytest.raises(ModelFormatError, match=said):
            gpuqs.from_model(model)
