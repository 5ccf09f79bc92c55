"""Fitted estimators for scikit-learn that predict with gpuqs: put ``wrap(estimator)`` where ``estimator`` stood.

>>> from gpuqs.sklearn import wrap
>>> fast = wrap(estimator)  # doctest: +SKIP
>>> fast.predict_proba(X)  # what estimator.predict_proba(X) gives  # doctest: +SKIP

`wrap` takes a fitted estimator of LightGBM, XGBoost, CatBoost or scikit-learn, a `Pipeline` that ends in one, a
model's file, or a `gpuqs.Model`. The estimator that it returns holds the trees and no longer needs the library that
grew them.

These estimators are fitted from the beginning, like ``sklearn.frozen.FrozenEstimator``: ``fit`` checks the documents,
learns nothing and returns the estimator itself, and a clone is fitted, too. So cross-validation and searches score the
same trees on every fold. docs/sklearn.md says where they were tried, and which of scikit-learn's checks they pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from copy import copy, deepcopy
from dataclasses import replace
from inspect import signature
from typing import Any, Final, Literal

import numpy as np

try:
    from sklearn.frozen import FrozenEstimator
    from sklearn.pipeline import Pipeline
except ImportError as error:
    raise ImportError("gpuqs.sklearn needs scikit-learn 1.6 or later: pip install 'scikit-learn>=1.6'") from error

from gpuqs.errors import ModelFormatError, UnsupportedModelError
from gpuqs.forest import Forest
from gpuqs.formats.labels import labels_of
from gpuqs.formats.sklearn import average_path_length
from gpuqs.keywords import output_and_trees
from gpuqs.loading import model_of, warn_of_later_iterations
from gpuqs.model import Model
from gpuqs.outputs import Precision
from gpuqs.sklearn.estimators import (
    GpuqsClassifier,
    GpuqsOutlierDetector,
    GpuqsRegressor,
    Prefitted,
    scores_tell_classes,
)

__all__ = ["GpuqsClassifier", "GpuqsOutlierDetector", "GpuqsRegressor", "wrap"]

Kind = Literal["classifier", "regressor", "outlier_detector"]

#: Objectives whose targets are probabilities, though their link is a classifier's.
_OF_REGRESSORS: Final = ("reg:logistic", "cross_entropy", "xentropy")


def wrap(
    model: Any,
    *,
    kind: Kind | None = None,
    classes: Any = None,
    n_threads: int | None = None,
    precision: Precision | None = None,
    offset: float | None = None,
    expected_depth: float | None = None,
    iteration_range: Sequence[int] | None = None,
) -> Any:
    """Make an estimator that predicts with gpuqs what ``model`` predicts.

    An estimator that `wrap` made may be wrapped again: keywords that are not given keep their values.

    Parameters
    ----------
    model : estimator, Pipeline, str, os.PathLike, bytes, live model or Model
        A fitted estimator; a fitted Pipeline, whose last step is wrapped; or anything that `gpuqs.from_model` accepts.
    kind : {"classifier", "regressor", "outlier_detector"}, optional
        Which kind of estimator to make. By default, the kind of the estimator (a ranker becomes a regressor), or the
        kind that the trees of a file were trained for.
    classes : array-like [n_classes], optional
        Labels of the classes, in the model's order, for files that do not hold them (LightGBM's and XGBoost's).
    n_threads : int, optional
        As in `gpuqs.Model.predict`.
    precision : {"exact", "fast"}, optional
        As in `gpuqs.Model.predict`; "exact" by default.
    offset : float, optional
        ``offset_`` of an IsolationForest, which neither `gpuqs.Model` nor its files hold.
    expected_depth : float, optional
        As for `GpuqsOutlierDetector`.
    iteration_range : (int, int), optional
        The iterations that the estimator scores with, as in `gpuqs.Model.predict`. By default all.

    Returns
    -------
    GpuqsClassifier, GpuqsRegressor, GpuqsOutlierDetector or Pipeline
        A returned Pipeline is a copy whose steps are frozen: fitting it, or a clone of it, changes neither its steps
        nor those of ``model``.

    Raises
    ------
    ModelFormatError
        The estimator is not fitted, or the file is damaged.
    UnsupportedModelError
        The model uses something that gpuqs does not evaluate.
    ValueError
        A keyword does not apply to the model, or one that the model needs is missing.
    """
    options: dict[str, Any] = {"classes": classes, "n_threads": n_threads, "precision": precision}
    options |= {"offset": offset, "expected_depth": expected_depth}
    return _wrapped(model, kind, iteration_range, options, callers=2)


def _wrapped(
    model: Any, kind: Kind | None, iteration_range: Sequence[int] | None, options: dict[str, Any], callers: int
) -> Any:
    """The work of `wrap`; a warning names the line that is ``callers`` levels up from here."""
    while isinstance(model, FrozenEstimator):
        model = model.estimator
    if isinstance(model, Pipeline):
        name, last = model.steps[-1]
        if last is None or isinstance(last, str):
            raise ModelFormatError(f"the last step, {name!r}, is {last!r}, not an estimator", source="Pipeline")
        before = [(called, _frozen(step)) for called, step in model.steps[:-1]]
        pipeline = copy(model)
        pipeline.steps = [*before, (name, _wrapped(last, kind, iteration_range, options, callers + 1))]
        return pipeline
    read = model.model if isinstance(model, Prefitted) else model_of(model)
    if iteration_range is not None:
        read = _part(read, iteration_range)
    elif not isinstance(model, (Prefitted, Model)):
        mend = f"iteration_range=(0, {(read.best_iteration or 0) + 1}) to wrap"
        warn_of_later_iterations(read, mend, callers)
    made = _class_of(kind or _kind_of(model, read.forest), read.forest)
    given = {name: value for name, value in options.items() if value is not None}
    takes = signature(made).parameters
    for name in given:
        if name not in takes:
            raise ValueError(f"{name}= does not apply to the {made.__name__} that this model becomes; leave it out")
    kept = model.get_params(deep=False) if isinstance(model, Prefitted) else _settings(model, made)
    settings = {name: value for name, value in (kept | given).items() if name in takes and name != "model"}
    if made is GpuqsOutlierDetector and "offset" not in settings:
        raise ValueError(
            "the trees of an IsolationForest do not say which scores mean outliers: pass offset=estimator.offset_ "
            "(-0.5 where contamination is 'auto'), wrap the estimator itself, or pass kind='regressor' for scores only"
        )
    if made is GpuqsClassifier:
        read = _as_classifier(read, kept.get("classes"))
    wrapper = made(read, **settings)
    if isinstance(wrapper, GpuqsClassifier):
        wrapper._check_classes()
    return wrapper


def _frozen(step: Any) -> Any:
    """A step before the last, as it was fitted, independent of what happens to the pipeline that it is from."""
    if step is None or isinstance(step, str):  # "passthrough"
        return step
    with suppress(TypeError):  # what holds a lock or a connection cannot be copied: it is shared
        step = deepcopy(step)
    return step if isinstance(step, FrozenEstimator) else FrozenEstimator(step)


def _kind_of(model: Any, forest: Forest) -> Kind:
    if isinstance(model, GpuqsRegressor):  # whatever its trees are for
        return "regressor"
    if forest.link == "isolation":
        return "outlier_detector"
    if hasattr(model, "get_params"):  # an estimator, of whichever library
        return "classifier" if hasattr(model, "predict_proba") else "regressor"
    of_regressor = forest.objective.partition(" ")[0] in _OF_REGRESSORS
    return "classifier" if scores_tell_classes(forest) and not of_regressor else "regressor"


def _class_of(kind: Kind, forest: Forest) -> type[Prefitted]:
    made = {"classifier": GpuqsClassifier, "regressor": GpuqsRegressor, "outlier_detector": GpuqsOutlierDetector}
    if kind not in made:
        raise ValueError(f"kind must be 'classifier', 'regressor' or 'outlier_detector', not {kind!r}")
    if kind == "outlier_detector" and forest.link != "isolation":
        raise UnsupportedModelError(f"{forest.source}: only scikit-learn's IsolationForest detects outliers")
    return made[kind]


def _settings(model: Any, made: type[Prefitted]) -> dict[str, Any]:
    """A live estimator's settings besides its trees."""
    if made is GpuqsClassifier:  # the estimator's own array keeps its dtype; a forest does not
        return {"classes": getattr(model, "classes_", None)}
    if made is GpuqsOutlierDetector and hasattr(model, "offset_"):
        expected = float(average_path_length(np.array([model.max_samples_]))[0])
        return {"offset": float(model.offset_), "expected_depth": expected}
    return {}


def _part(model: Model, iteration_range: Sequence[int]) -> Model:
    _, trees = output_and_trees(model.forest, "value", None, iteration_range=iteration_range)
    if trees is None:
        return model
    # If iterations are cut off at the front, the best iteration's number no longer fits.
    best = None if trees.start else model.best_iteration
    return Model(replace(model.forest.select(trees), best_iteration=best))


def _as_classifier(model: Model, own_classes: Any) -> Model:
    """The model with probabilities; if training saw only one class, that class is the label of both outcomes."""
    forest = model.forest
    if forest.link == "argmax":  # XGBoost's multi:softmax gives labels; the same sums give probabilities
        return Model(replace(forest, link="softmax"))
    if own_classes is not None and len(own_classes) == 1 and not forest.classes and forest.n_outputs == 1:
        return Model(replace(forest, classes=labels_of(own_classes)))
    return model
