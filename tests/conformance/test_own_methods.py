"""Live objects with custom prediction methods or settings are refused, whatever their library."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import gpuqs
from gpuqs.errors import UnsupportedModelError
from gpuqs.sklearn import wrap

lgb = pytest.importorskip("lightgbm")
xgb = pytest.importorskip("xgboost")
catboost = pytest.importorskip("catboost")
ensemble = pytest.importorskip("sklearn.ensemble")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3))
TARGET = X @ [1.0, -2.0, 3.0]
LABEL = (TARGET > 0).astype(int)

QUIET = {"iterations": 3, "silent": True, "allow_writing_files": False}
KINDS = {
    "LGBMRegressor": (lgb.LGBMRegressor, {"n_estimators": 3, "verbosity": -1, "n_jobs": 1}),
    "LGBMClassifier": (lgb.LGBMClassifier, {"n_estimators": 3, "verbosity": -1, "n_jobs": 1}),
    "XGBRegressor": (xgb.XGBRegressor, {"n_estimators": 3, "n_jobs": 1}),
    "XGBClassifier": (xgb.XGBClassifier, {"n_estimators": 3, "n_jobs": 1}),
    "CatBoostRegressor": (catboost.CatBoostRegressor, QUIET),
    "CatBoostClassifier": (catboost.CatBoostClassifier, QUIET),
    "RandomForestRegressor": (ensemble.RandomForestRegressor, {"n_estimators": 3}),
    "RandomForestClassifier": (ensemble.RandomForestClassifier, {"n_estimators": 3}),
}
REFUSED = "has its own {}, so it may predict something other than {} does"


def fitted(kind: Any, options: dict[str, Any]) -> Any:
    return kind(**options).fit(X, LABEL if hasattr(kind, "predict_proba") else TARGET)


def refused(model: Any, message: str) -> None:
    for take in (gpuqs.from_model, wrap):
        with pytest.raises(UnsupportedModelError, match=message):
            take(model)


@pytest.mark.parametrize("name", KINDS)
def test_estimators_with_methods_of_their_own(name: str) -> None:
    base, options = KINDS[name]
    method = "predict_proba" if hasattr(base, "predict_proba") else "predict"
    own = type(name, (base,), {method: lambda self, X: 2 * getattr(base, method)(self, X)})
    refused(fitted(own, options), REFUSED.format(method, name))
    changed = fitted(base, options)
    changed.predict = lambda X: np.zeros(len(X))
    refused(changed, REFUSED.format("predict", name))
    # A class that changes only training, or adds methods, still predicts as the library does.
    named = type(name, (base,), {"describe": lambda self: "mine", "fit": lambda self, *data: base.fit(self, *data)})
    given = fitted(named, options)
    np.testing.assert_array_equal(wrap(given).predict(X), np.ravel(given.predict(X)))


@pytest.mark.parametrize(
    ("name", "method", "own"),
    [
        ("XGBRegressor", "_get_iteration_range", lambda self, given: (0, 1)),
        ("XGBClassifier", "best_iteration", property(lambda self: 0)),
        ("LGBMClassifier", "_process_params", lambda self, stage: {"pred_early_stop": True}),
        ("CatBoostRegressor", "_predict", lambda self, *data, **options: 0),
        ("RandomForestRegressor", "_validate_X_predict", lambda self, X: X),
        ("XGBClassifier", "_can_use_inplace_predict", lambda self: False),
        ("LGBMRegressor", "_process_n_jobs", lambda self, n_jobs: 1),
        ("LGBMRegressor", "booster_", property(lambda self: self._Booster)),
        ("CatBoostRegressor", "_process_predict_input_data", lambda self, *data, **options: data),
        ("HistGradientBoostingRegressor", "_preprocess_X", lambda self, X, *, reset: -X),
        ("HistGradientBoostingRegressor", "_predictors", property(lambda self: [])),
        ("GradientBoostingRegressor", "_raw_predict_init", lambda self, X: X[:, :1]),
        ("IsolationForest", "_score_samples", lambda self, X: X[:, 0]),
        ("RandomForestRegressor", "__getattribute__", lambda self, name: object.__getattribute__(self, name)),
        ("XGBRegressor", "__getattr__", lambda self, name: None),
    ],
)
def test_what_methods_of_the_library_call(name: str, method: str, own: Any) -> None:
    base, options = KINDS.get(name) or (getattr(ensemble, name), {})
    model = fitted(base, options)
    for owner in (name, "Between"):
        if hasattr(own, "__module__"):
            own.__module__ = base.__module__  # a function's own __module__ proves nothing
        between = type(owner, (base,), {method: own})
        model.__class__ = type(name, (between,), {}) if owner == "Between" else between
        refused(model, REFUSED.format(method, name))


@pytest.mark.parametrize("name", ["XGBRegressor", "LGBMRegressor", "CatBoostRegressor", "RandomForestRegressor"])
def test_methods_that_an_object_or_its_class_was_given(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method = {"X": "_get_iteration_range", "L": "_process_params", "C": "_predict", "R": "_validate_X_predict"}[name[0]]
    base, options = KINDS[name]
    model = fitted(base, options)
    monkeypatch.setattr(model, method, lambda *data, **given: None, raising=False)
    refused(model, REFUSED.format(method, name))
    monkeypatch.undo()
    wrap(model)
    owner = next(kind for kind in base.__mro__ if method in vars(kind))
    monkeypatch.setattr(owner, method, lambda self, *data, **given: None)
    refused(model, REFUSED.format(method, name))


class Wrapping:
    """A wrapper that is not a function, like wrapt's; it reports the wrapped method's attributes as its own."""

    def __init__(self, method: Any) -> None:
        functools.update_wrapper(self, method)

    def __get__(self, obj: Any, kind: Any = None) -> Any:
        return lambda *data, **given: 2 * self.__wrapped__(obj, *data, **given)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", KINDS)
def test_methods_that_are_wrapped_where_they_lie(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods patched in place, as autologging does: `functools.wraps` copies the library's ``__module__``."""
    base, options = KINDS[name]
    model = fitted(base, options)
    owner = next(kind for kind in base.__mro__ if "predict" in vars(kind))
    method = owner.predict

    @functools.wraps(method)
    def doubled(self: Any, *data: Any, **given: Any) -> Any:
        return 2 * np.asarray(method(self, *data, **given))

    here = __name__.partition(".")[0]
    for own, who in ((doubled, here), (Wrapping(method), here), (functools.partialmethod(method), "functools")):
        monkeypatch.setattr(owner, "predict", own)
        refused(model, REFUSED.format("predict", name) + f"; {who} put it there; undo that")
    monkeypatch.undo()
    wrap(model)


def test_boosters_whose_methods_are_wrapped_where_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    for estimator, method in (("LGBMRegressor", "predict"), ("XGBRegressor", "inplace_predict")):
        model = fitted(*KINDS[estimator])
        booster = model.booster_ if estimator == "LGBMRegressor" else model.get_booster()
        given = getattr(type(booster), method)
        monkeypatch.setattr(type(booster), method, functools.wraps(given)(lambda *data: 0))
        for each in (booster, model):
            refused(each, REFUSED.format(method, "Booster"))


@pytest.mark.parametrize(
    ("name", "trees"),
    [("RandomForestRegressor", "estimators_"), ("GradientBoostingRegressor", "estimators_"),
     ("HistGradientBoostingRegressor", "_predictors")],
)  # fmt: skip
def test_trees_with_methods_of_their_own(name: str, trees: str) -> None:
    model = fitted(getattr(ensemble, name), {})
    tree = np.ravel(np.array(getattr(model, trees), object))[-1]
    kind = type(tree)
    tree.__class__ = type("Mine", (kind,), {"predict": lambda self, *data: 2 * kind.predict(self, *data)})
    refused(model, "Mine: " + REFUSED.format("predict", kind.__name__))


@pytest.mark.parametrize("name", KINDS)
def test_honest_classes_are_taken(name: str) -> None:
    """Overrides that affect only training, parameters or display, and mixin classes that add methods."""
    base, options = KINDS[name]

    class Describing:
        def describe(self) -> str:
            return "mine"

    class Mine(Describing, base):  # type: ignore[misc, valid-type]
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)

        def __repr__(self) -> str:
            return self.describe()

        def fit(self, *data: Any, **options: Any) -> Any:
            return super().fit(*data, **options)

        def get_params(self, deep: bool = True) -> Any:
            return super().get_params(deep)

        def set_params(self, **options: Any) -> Any:
            return super().set_params(**options)

        def score(self, *data: Any) -> float:
            return 0.0

        # Libraries call methods with these names on other classes.
        def update(self, *data: Any) -> None: ...
        def shape(self) -> tuple[int, ...]: ...
        def transform(self, X: Any) -> Any: ...
        def format(self, *data: Any) -> str: ...
        def get(self, name: str) -> Any: ...

        def __sklearn_tags__(self) -> Any:
            return super().__sklearn_tags__()

        @property
        def feature_importances_(self) -> Any:
            return np.zeros(3)

    given = fitted(Mine, options)
    np.testing.assert_array_equal(wrap(given).predict(X), np.ravel(given.predict(X)))


def test_boosters_with_methods_of_their_own() -> None:
    class Mine(lgb.Booster):  # type: ignore[misc]
        def predict(self, *args: Any, **options: Any) -> Any:
            return 2 * super().predict(*args, **options)

    text = lgb.train({"verbosity": -1, "num_threads": 1}, lgb.Dataset(X, TARGET), 2).model_to_string()
    refused(Mine(model_str=text), "Mine: " + REFUSED.format("predict", "Booster"))

    class Other(xgb.Booster):  # type: ignore[misc]
        def inplace_predict(self, *args: Any, **options: Any) -> Any:
            return 2 * super().inplace_predict(*args, **options)

    raw = xgb.train({"nthread": 1}, xgb.DMatrix(X, TARGET), 2).save_raw()
    refused(Other(model_file=raw), REFUSED.format("inplace_predict", "Booster"))
    for name in ("LGBMRegressor", "XGBRegressor"):
        estimator = fitted(*KINDS[name])
        booster = estimator.booster_ if name == "LGBMRegressor" else estimator.get_booster()
        booster.predict = lambda X: X
        refused(estimator, REFUSED.format("predict", "Booster"))


@pytest.mark.parametrize("kind", [lgb.LGBMClassifier, lgb.LGBMRanker])
@pytest.mark.parametrize("when", ["constructor", "set_params"])
def test_lightgbm_that_leaves_trees_out(kind: Any, when: str) -> None:
    hasty = {"pred_early_stop": True, "pred_early_stop_freq": 1, "pred_early_stop_margin": 0.01}
    data = {"group": [30] * 4} if kind is lgb.LGBMRanker else {}
    given = kind(n_estimators=20, verbosity=-1, n_jobs=1, **(hasty if when == "constructor" else {}))
    given.fit(X, LABEL, **data)
    if when == "set_params":
        given.set_params(**hasty)
    refused(given, f"{kind.__name__}: pred_early_stop=True would leave out trees.*or pass estimator.booster_")
    all_trees = gpuqs.from_model(given.booster_).predict(X, "raw")
    np.testing.assert_array_equal(all_trees, given.booster_.predict(X, raw_score=True))
    assert (all_trees != given.predict(X, raw_score=True)).any(), "the parameter changes what the estimator gives"
    given.set_params(pred_early_stop=False)
    np.testing.assert_array_equal(gpuqs.from_model(given).predict(X, "raw"), given.predict(X, raw_score=True))
