"""Live objects that predict by methods or settings of their own are refused, whatever their library."""

from __future__ import annotations

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
REFUSED = "has a method {} of its own, and so may predict something else than {} does"


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
    # What changes training alone, or adds to it, is the library's.
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
    ],
)
def test_what_methods_of_the_library_call(name: str, method: str, own: Any) -> None:
    base, options = KINDS[name]
    model = fitted(base, options)
    model.__class__ = type(name, (base,), {method: own})
    refused(model, REFUSED.format(method, name))


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
    refused(given, f"{kind.__name__}: pred_early_stop=True is not evaluated.*or pass estimator.booster_")
    all_trees = gpuqs.from_model(given.booster_).predict(X, "raw")
    np.testing.assert_array_equal(all_trees, given.booster_.predict(X, raw_score=True))
    assert (all_trees != given.predict(X, raw_score=True)).any(), "the parameter changes what the estimator gives"
    given.set_params(pred_early_stop=False)
    np.testing.assert_array_equal(gpuqs.from_model(given).predict(X, "raw"), given.predict(X, raw_score=True))
