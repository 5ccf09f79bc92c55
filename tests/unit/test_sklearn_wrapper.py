"""Wrapped models as scikit-learn estimators: its own checks, parameters, clones, pickles, documents, errors."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

pytest.importorskip("sklearn", minversion="1.6")
import lightgbm as lgb
import pandas as pd
import polars as pl
import pyarrow as pa
import xgboost as xgb
from sklearn.base import BaseEstimator, clone, is_classifier, is_outlier_detector, is_regressor
from sklearn.ensemble import (
    GradientBoostingClassifier,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import estimator_checks_generator
from sklearn.utils.validation import check_is_fitted

import gpuqs
from gpuqs.errors import ModelFormatError, UnsupportedModelError
from gpuqs.sklearn import GpuqsClassifier, GpuqsOutlierDetector, GpuqsRegressor, wrap

# -- scikit-learn's checks ---------------------------------------------------------------------

#: Checks that an unmodified wrapper does not pass, since they fit their own data sets.
OTHER_DATA = {
    *("check_fit_score_takes_y", "check_estimators_overwrite_params", "check_dont_overwrite_parameters"),
    *("check_estimators_fit_returns_self", "check_readonly_memmap_input", "check_n_features_in_after_fitting"),
    *("check_positive_only_tag_during_fit", "check_dtype_object", "check_pipeline_consistency"),
    *("check_estimator_sparse_tag", "check_estimator_sparse_array", "check_estimator_sparse_matrix"),
    *("check_estimators_pickle", "check_f_contiguous_array_estimator", "check_classifier_data_not_an_array"),
    *("check_classifiers_classes", "check_classifiers_train", "check_decision_proba_consistency"),
    *("check_methods_sample_order_invariance", "check_methods_subset_invariance", "check_dict_unchanged"),
    *("check_fit_idempotent", "check_fit_check_is_fitted", "check_fit2d_predict1d", "check_fit2d_1sample"),
    *("check_fit2d_1feature", "check_regressors_train", "check_regressor_data_not_an_array", "check_regressors_int"),
    *("check_regressors_no_decision_function", "check_outliers_train", "check_outliers_fit_predict"),
    *("check_sample_weights_pandas_series", "check_sample_weights_not_an_array", "check_sample_weights_list"),
    *("check_sample_weights_shape", "check_sample_weights_not_overwritten", "check_all_zero_sample_weights_error"),
    *("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data"),
}
#: Checks of how `fit` learns from a target, or of an estimator before `fit`.
LEARNING = {
    *("check_classifiers_one_label", "check_classifiers_one_label_sample_weights"),
    *("check_classifiers_regression_target", "check_supervised_y_no_nan", "check_supervised_y_2d"),
    *("check_n_features_in", "check_requires_y_none"),
}


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 5))
    return X, (X[:, 0] + 0.5 * rng.normal(size=300) > 0).astype(int)


@cache
def as_they_are() -> dict[str, Any]:
    X, y = data()
    return {
        "classifier": wrap(GradientBoostingClassifier(n_estimators=3).fit(X, y)),
        "regressor": wrap(RandomForestRegressor(3).fit(X, y)),
        "outlier detector": wrap(IsolationForest(n_estimators=3).fit(X)),
    }


class _Trains(BaseEstimator):
    """A wrapper whose `fit` trains and wraps, so that checks can fit any data; predictions use the wrapper's code."""

    n_threads, precision = None, "exact"

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer

    def fit(self, X: Any, y: Any = None) -> Any:
        self.wrapper_ = wrap(clone(self.trainer).fit(X, y))
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = True
        return tags

    model = property(lambda self: self.wrapper_.model if "wrapper_" in vars(self) else None)
    classes = property(lambda self: self.wrapper_.classes)
    offset = property(lambda self: self.wrapper_.offset)
    expected_depth = property(lambda self: self.wrapper_.expected_depth)


class TrainsClassifier(_Trains, GpuqsClassifier):
    pass


class TrainsRegressor(_Trains, GpuqsRegressor):
    pass


class TrainsOutlierDetector(_Trains, GpuqsOutlierDetector):
    pass


LIGHTGBM = {"n_estimators": 10, "min_child_samples": 1, "verbose": -1, "n_jobs": 1}
TRAINING: dict[str, tuple[Any, dict[str, str]]] = {
    "LightGBM classifier": (TrainsClassifier(lgb.LGBMClassifier(**LIGHTGBM)), {}),
    "LightGBM regressor": (TrainsRegressor(lgb.LGBMRegressor(**LIGHTGBM)), {}),
    "forest classifier": (TrainsClassifier(RandomForestClassifier(5, random_state=0)), {}),
    "forest regressor": (TrainsRegressor(RandomForestRegressor(5, random_state=0)), {}),
    "boosted classifier": (
        TrainsClassifier(GradientBoostingClassifier(n_estimators=2, random_state=0)),
        {"check_estimators_pickle": "GradientBoostingClassifier trains on no NaN, which the wrapper would score"},
    ),
    "isolation forest": (
        TrainsOutlierDetector(IsolationForest(n_estimators=5, random_state=0)),
        {"check_fit2d_1sample": "an isolation forest of one sample is refused: all its scores are alike"},
    ),
}


def cases() -> list[Any]:
    of_wrappers = [("wrapped", name, wrapper) for name, wrapper in as_they_are().items()]
    found = []
    for group, name, estimator in [*of_wrappers, *(("training", n, e) for n, (e, _) in TRAINING.items())]:
        for _, check in estimator_checks_generator(estimator, mark=None):
            keywords = "".join(f", {key}={value}" for key, value in check.keywords.items())
            found.append(pytest.param(group, name, check, id=f"{group} {name}: {check.func.__name__}{keywords}"))
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("group", "name", "check"), cases())
def test_estimator_checks(group: str, name: str, check: Any) -> None:
    """Every check of scikit-learn passes, except the listed ones, each of which fails."""
    if group == "wrapped":
        estimator, failing = as_they_are()[name], OTHER_DATA | LEARNING
    else:
        estimator, failing = TRAINING[name]
    if check.func.__name__ not in failing:
        check(estimator)
        return
    with pytest.raises((AssertionError, ValueError, NotImplementedError)):
        check(estimator)


# -- what is made of what ----------------------------------------------------------------------


@cache
def trained(kind: str) -> Any:
    X, y = data()
    frame = pd.DataFrame(X, columns=["a", "b c", "d", "e", "f"])
    return {
        "lightgbm": lambda: lgb.LGBMClassifier(**LIGHTGBM).fit(X, np.array(["no", "yes"])[y]),
        "lightgbm of a frame": lambda: lgb.LGBMClassifier(**LIGHTGBM).fit(frame, y),
        "forest of a frame": lambda: RandomForestClassifier(5, random_state=0).fit(frame, y),
        "xgboost": lambda: xgb.XGBClassifier(n_estimators=5, n_jobs=1).fit(X, y),
        "regressor": lambda: lgb.LGBMRegressor(**LIGHTGBM).fit(X, X[:, 1]),
        "ranker": lambda: lgb.LGBMRanker(**LIGHTGBM).fit(X, y, group=[30] * 10),
        "isolation": lambda: IsolationForest(n_estimators=5, contamination=0.1, random_state=0).fit(X),
    }[kind]()


@pytest.mark.parametrize(
    ("kind", "cls", "is_kind"),
    [
        ("lightgbm", GpuqsClassifier, is_classifier),
        ("xgboost", GpuqsClassifier, is_classifier),
        ("regressor", GpuqsRegressor, is_regressor),
        ("ranker", GpuqsRegressor, is_regressor),
        ("isolation", GpuqsOutlierDetector, is_outlier_detector),
    ],
)
def test_kinds(kind: str, cls: type, is_kind: Callable[[Any], bool]) -> None:
    wrapper = wrap(trained(kind))
    assert type(wrapper) is cls
    assert is_kind(wrapper)
    check_is_fitted(wrapper)
    assert wrapper.n_features_in_ == 5
    assert not hasattr(wrapper, "feature_names_in_")
    assert "gpuqs.Model" in repr(wrapper)
    assert cls.__name__ in wrapper._repr_html_()
    again = wrap(wrapper)
    assert type(again) is cls
    assert again.model is wrapper.model


@pytest.mark.parametrize(
    ("params", "cls"),
    [
        ({"objective": "binary"}, GpuqsClassifier),
        ({"objective": "multiclass", "num_class": 3}, GpuqsClassifier),
        ({"objective": "regression"}, GpuqsRegressor),
        ({"objective": "cross_entropy"}, GpuqsRegressor),
        ({"objective": "poisson"}, GpuqsRegressor),
    ],
)
def test_kinds_of_files(tmp_path: Any, params: dict[str, Any], cls: type) -> None:
    X, y = data()
    booster = lgb.train({"verbose": -1, "num_threads": 1, **params}, lgb.Dataset(X, y), 3)
    booster.save_model(tmp_path / "model.txt")
    for model in (tmp_path / "model.txt", str(tmp_path / "model.txt"), booster, gpuqs.from_model(booster)):
        wrapper = wrap(model)
        assert type(wrapper) is cls
        if cls is GpuqsRegressor:
            np.testing.assert_array_equal(wrapper.predict(X), wrapper.model.predict(X))


@pytest.mark.parametrize("objective", ["binary:logistic", "multi:softprob", "multi:softmax", "reg:logistic"])
def test_xgboost_files(tmp_path: Any, objective: str) -> None:
    X, y = data()
    params: dict[str, Any] = {"objective": objective, "nthread": 1}
    if objective.startswith("multi"):
        params["num_class"], y = 3, y + (X[:, 1] > 0.3)
    booster = xgb.train(params, xgb.DMatrix(X, y), 5)
    booster.save_model(tmp_path / "model.json")
    wrapper = wrap(tmp_path / "model.json")
    if objective == "reg:logistic":
        assert type(wrapper) is GpuqsRegressor
        return
    theirs = xgb.XGBClassifier()
    theirs.load_model(tmp_path / "model.json")
    np.testing.assert_array_equal(wrapper.classes_, theirs.classes_)
    np.testing.assert_array_equal(wrapper.predict(X), theirs.predict(X))
    np.testing.assert_array_max_ulp(wrapper.predict_proba(X), theirs.predict_proba(X), 4)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_a_file_keeps_what_the_wrapper_needs(tmp_path: Any) -> None:
    X, _ = data()
    for kind in ("lightgbm", "forest of a frame"):
        first = wrap(trained(kind))
        first.model.save(tmp_path / "model.gpuqs")
        second = wrap(tmp_path / "model.gpuqs")
        assert type(second) is type(first)
        np.testing.assert_array_equal(second.classes_, first.classes_)
        np.testing.assert_array_equal(second.predict(X), first.predict(X))


def test_classes_given(tmp_path: Any) -> None:
    X, _ = data()
    estimator = trained("lightgbm")
    estimator.booster_.save_model(tmp_path / "model.txt")
    np.testing.assert_array_equal(wrap(tmp_path / "model.txt").predict(X), (estimator.predict(X) == "yes").astype(int))
    wrapper = wrap(tmp_path / "model.txt", classes=["no", "yes"])
    np.testing.assert_array_equal(wrapper.predict(X), estimator.predict(X))
    np.testing.assert_array_equal(wrapper.classes_, estimator.classes_)
    renamed = wrap(estimator, classes=["yes", "no"])  # positions follow the model's classes, which sort the other way
    np.testing.assert_array_equal(renamed.predict(X) == "yes", estimator.predict(X) == "no")
    with pytest.raises(ValueError, match="classes has 3 labels; the model has 2 classes"):
        wrap(tmp_path / "model.txt", classes=["a", "b", "c"])


def test_kind_given() -> None:
    X, _ = data()
    estimator = trained("lightgbm")
    wrapper = wrap(estimator, kind="regressor")
    np.testing.assert_array_equal(wrapper.predict(X), wrap(estimator).predict_proba(X)[:, 1])
    with pytest.raises(ValueError, match="kind must be"):
        wrap(estimator, kind="ranker")  # type: ignore[arg-type]
    with pytest.raises(UnsupportedModelError, match="objective 'regression' do not determine classes"):
        wrap(trained("regressor"), kind="classifier")
    with pytest.raises(UnsupportedModelError, match="only scikit-learn's IsolationForest"):
        wrap(estimator, kind="outlier_detector")


def test_what_is_refused() -> None:
    X, y = data()
    with pytest.raises(ModelFormatError, match="not fitted"):
        wrap(RandomForestClassifier())
    with pytest.raises(NotFittedError, match=r"model must be a gpuqs.Model, not str; use gpuqs.sklearn.wrap"):
        GpuqsClassifier("model.txt").predict(X)  # type: ignore[arg-type]
    for last in ("passthrough", None):
        with pytest.raises(ModelFormatError, match=rf"the last step, 'last', is {last!r}, not an estimator"):
            wrap(Pipeline([("first", StandardScaler()), ("last", last)]).fit(X))
    own_objective = lgb.LGBMClassifier(**LIGHTGBM, objective=lambda y, score: (score - y, np.ones_like(y)))
    with pytest.raises(UnsupportedModelError, match="scores of a custom objective do not determine classes"):
        wrap(own_objective.fit(X, y))


def test_decision_function_only_where_the_estimator_has_one() -> None:
    for kind in ("xgboost", "forest of a frame"):
        assert not hasattr(wrap(trained(kind)), "decision_function")
    for wrapper in (wrap(trained("lightgbm")), as_they_are()["classifier"]):
        assert hasattr(wrapper, "decision_function")


# -- parameters, clones, pickles ---------------------------------------------------------------


def test_clones_are_fitted() -> None:
    X, y = data()
    wrapper = wrap(trained("lightgbm"), n_threads=1)
    copy = clone(wrapper)
    assert copy is not wrapper
    assert copy.model is wrapper.model
    copy.set_params(n_threads=2)
    assert (wrapper.n_threads, copy.n_threads) == (1, 2)
    expected = wrapper.predict(X)
    assert copy.fit(X, 1 - y) is copy
    np.testing.assert_array_equal(copy.predict(X), expected)
    assert set(wrapper.get_params()) == {"model", "classes", "n_threads", "precision"}


def test_threads_and_precision_reach_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    X, _ = data()
    seen: list[dict[str, Any]] = []
    predict = gpuqs.Model.predict
    monkeypatch.setattr(gpuqs.Model, "predict", lambda *args, **named: seen.append(named) or predict(*args, **named))
    wrapper = wrap(trained("regressor"), n_threads=2, precision="fast")
    np.testing.assert_array_equal(wrapper.predict(X), predict(wrapper.model, X, precision="fast"))
    assert seen == [{"n_threads": 2, "precision": "fast"}]


def test_keywords_reach_the_model() -> None:
    """As LightGBM's own estimators take them."""
    X, _ = data()
    theirs, ours = trained("lightgbm"), wrap(trained("lightgbm"), n_threads=1)
    regressor, fast = trained("regressor"), wrap(trained("regressor"))
    for options in ({"num_iteration": 2}, {"start_iteration": 1, "num_iteration": 1}, {"raw_score": True}):
        np.testing.assert_array_equal(ours.predict(X, **options), theirs.predict(X, **options))
        np.testing.assert_array_equal(ours.predict_proba(X, **options), theirs.predict_proba(X, **options))
        np.testing.assert_array_equal(fast.predict(X, **options), regressor.predict(X, **options))
    np.testing.assert_array_equal(ours.predict(X, pred_leaf=True), theirs.predict(X, pred_leaf=True))
    harmless = {"precision": "exact", "n_jobs": 2, "verbosity": -1, "raw_score": False}
    np.testing.assert_array_equal(ours.predict(X, **harmless), theirs.predict(X))
    for name in ("output", "out"):
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'; use estimator.model.predict"):
            ours.predict(X, **{name: None})
    with pytest.raises(TypeError, match=r"predict\(\) got an unexpected keyword argument 'nope'"):
        ours.predict_proba(X, nope=1)


def test_xgboosts_keywords_reach_the_model() -> None:
    X, _ = data()
    theirs, ours = trained("xgboost"), wrap(trained("xgboost"))
    ranges = [{"iteration_range": ends} for ends in ((0, 2), (2, 4), (3, 0), (0, 0))]
    for options in (*ranges, {"base_margin": np.linspace(-1, 1, len(X))}):
        np.testing.assert_array_equal(ours.predict(X, **options), theirs.predict(X, **options))
        np.testing.assert_array_equal(ours.predict_proba(X, **options), theirs.predict_proba(X, **options))
    np.testing.assert_array_equal(ours.predict(X, output_margin=True), theirs.predict(X, output_margin=True))


def test_pickles_do_not_need_the_training_library() -> None:
    X, _ = data()
    wrapper = wrap(trained("lightgbm"))
    program = (
        "import pickle, sys; wrapper, X, expected = pickle.load(sys.stdin.buffer)\n"
        "assert (wrapper.predict(X) == expected).all()\n"
        "assert 'lightgbm' not in sys.modules"
    )
    sent = pickle.dumps((wrapper, X, wrapper.predict(X)))
    subprocess.run([sys.executable, "-c", program], input=sent, check=True)


# -- documents ---------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [lambda f: f, pl.from_pandas, pa.Table.from_pandas], ids=["pandas", "polars", "Arrow"])
@pytest.mark.parametrize("kind", ["lightgbm of a frame", "forest of a frame"])
def test_tables(kind: str, make: Callable[[pd.DataFrame], Any], recwarn: pytest.WarningsRecorder) -> None:
    X, _ = data()
    frame = pd.DataFrame(X, columns=["a", "b c", "d", "e", "f"])
    estimator = trained(kind)
    wrapper = wrap(estimator)
    assert list(wrapper.feature_names_in_) == list(estimator.feature_names_in_)
    np.testing.assert_array_equal(wrapper.predict(make(frame)), estimator.predict(frame))
    assert not recwarn.list
    with pytest.raises(ValueError, match="should match those that were passed during fit"):
        wrapper.predict(make(frame[["a", "d", "b c", "e", "f"]]))
    with pytest.raises(ValueError, match=r"unseen at fit time:\n(- b c\n)?- g\nFeature names seen at fit time"):
        wrapper.predict(make(frame.rename(columns={"a": "g"})))
    with pytest.raises(ValueError, match=r"yet now missing:\n(- b_c\n)?- f"):
        wrapper.predict(make(frame[["a", "b c", "d", "e"]]))


def test_names_that_lightgbm_made_up_are_none() -> None:
    X, y = data()
    booster = lgb.train({"verbose": -1, "num_threads": 1}, lgb.Dataset(X[:, :3], y), 2)
    text = booster.model_to_string()
    assert not hasattr(wrap(text), "feature_names_in_")
    for names in ("Column_0 x Column_2", "Column_0 Column_2 Column_1", "Column_1 Column_2 Column_3"):
        given = text.replace("Column_0 Column_1 Column_2", names)
        assert list(wrap(given).feature_names_in_) == names.split()


def test_names_on_one_side_only() -> None:
    X, _ = data()
    frame = pd.DataFrame(X, columns=list("abcde"))
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        wrap(trained("forest of a frame")).predict(X)
    with pytest.warns(UserWarning, match="X has feature names, but GpuqsClassifier was fitted without"):
        wrap(trained("lightgbm")).predict(frame)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros(5), "Reshape your data"),
        (np.zeros((2, 4)), "X has 4 features, but GpuqsClassifier is expecting 5 features"),
        (np.zeros((0, 5)), "0 sample"),
        (np.zeros((2, 5), complex), "Complex data not supported"),
        (np.full((2, 5), "a"), "not compatible with arrays of bytes/strings"),
        (pd.Series(np.zeros(5)), "Expected a 2-dimensional container"),
        (np.ma.masked_equal(np.eye(5), 1), "masked array"),
    ],
)
def test_bad_documents(X: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wrap(trained("lightgbm")).predict(X)


def test_sparse_matrices_reach_the_model_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    X = scipy.sparse.csr_array(data()[0])
    seen: list[Any] = []
    monkeypatch.setattr(gpuqs.Model, "predict", lambda self, X, *args, **named: seen.append(X))
    wrapper = wrap(trained("regressor"))
    assert wrapper.__sklearn_tags__().input_tags.sparse
    wrapper.predict(X)
    assert seen[0] is X


def test_lists_integers_and_objects() -> None:
    X, _ = data()
    wrapper = wrap(trained("lightgbm"))
    whole = np.round(X * 3)
    expected = wrapper.predict_proba(whole)
    for same in (whole.tolist(), whole.astype(np.int8), whole.astype(object), ArrayLike(whole)):
        np.testing.assert_array_equal(wrapper.predict_proba(same), expected)
    frozen = FrozenEstimator(wrapper)
    np.testing.assert_array_equal(frozen.fit(X, None).predict_proba(whole), expected)


class ArrayLike:
    """An array only by its interface."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.values if dtype is None else self.values.astype(dtype)


def test_without_scikit_learn() -> None:
    program = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import gpuqs\n"
        "try:\n    import gpuqs.sklearn\n"
        "except ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "gpuqs.sklearn needs scikit-learn 1.6 or later: pip install 'scikit-learn>=1.6'\n"


@pytest.mark.parametrize(
    "labels",
    [
        np.array([2**63 + 5, 2**63 + 6, 7], np.uint64),
        np.array([2**63 - 1, 2**63 - 2, -7]),
        np.array(["a\0", "a", "b"], object),
        np.array(["a\0c", "a", "b"], object),
    ],
    ids=["uint64 and int64", "int64", "a last NUL", "a NUL"],
)
def test_labels_that_numpy_takes_for_each_other(labels: np.ndarray, tmp_path: Path) -> None:
    """Labels as they appear in an array of mixed types, or of strings of one length."""
    X = np.arange(3.0)[:, None]
    tree = DecisionTreeClassifier().fit(X, labels)
    model, wrapper = gpuqs.from_model(tree), wrap(tree)
    model.save(tmp_path / "model.gpuqs")
    saved = gpuqs.load(tmp_path / "model.gpuqs")
    for found in (model.predict(X, "class"), saved.predict(X, "class"), wrapper.predict(X), wrap(saved).predict(X)):
        assert found.tolist() == labels.tolist()
    assert wrap(saved).classes_.tolist() == tree.classes_.tolist()
