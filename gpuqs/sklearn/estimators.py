"""The estimators that `gpuqs.sklearn.wrap` makes: a regressor, a classifier, a detector of outliers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, OutlierMixin, RegressorMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import validate_data

from gpuqs.arrays.refusals import refuse_strangers
from gpuqs.cpu_fallback import NAMES_OF_THREADS, in_default_float_mode
from gpuqs.encoded import EncodedDocuments
from gpuqs.errors import UnsupportedModelError
from gpuqs.forest import Forest
from gpuqs.links import multi_label, tells_classes, tells_probabilities
from gpuqs.model import Model
from gpuqs.outputs import Output, Precision, class_labels, labels_as_array, objective_of

if TYPE_CHECKING:
    from typing_extensions import Self

#: Libraries whose leaves are not probabilities, so that without a link their scores say nothing about classes.
_BOOSTERS: Final = ("LightGBM", "XGBoost", "CatBoost")


def scores_tell_classes(forest: Forest) -> bool:
    """Whether scores say something about classes, or are classes."""
    own_labels = bool(forest.classes) and not forest.source.startswith(_BOOSTERS)
    return own_labels or tells_classes(forest)


class Prefitted(BaseEstimator):  # type: ignore[misc]
    """What the estimators have in common: they hold a model, and check documents as scikit-learn does."""

    model: Model
    n_threads: int | None
    precision: Precision

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, **fit_params: Any) -> Self:
        """Check the documents and learn nothing; ``y``, ``sample_weight`` and the other parameters are ignored."""
        self._checked(X)
        return self

    @property
    def n_features_in_(self) -> int:
        """Number of features of a document."""
        return self._model.n_features

    @property
    def feature_names_in_(self) -> np.ndarray:
        """Names of the features; absent where the model was trained without names."""
        names = self._model.feature_names if self._model.forest.schema.has_names else ()
        if all(name == str(i) for i, name in enumerate(names)):  # what pandas calls columns without names
            raise AttributeError("the model was trained without feature names")
        return np.asarray(names, dtype=object)

    @property
    def _model(self) -> Model:
        if not isinstance(self.model, Model):
            raise NotFittedError(
                f"model must be a gpuqs.Model, not {type(self.model).__name__}; use gpuqs.sklearn.wrap(model)"
            )
        return self.model

    def _scores(self, X: Any, output: Output, options: Mapping[str, Any] = MappingProxyType({})) -> np.ndarray:
        """``options``: keywords of `Model.predict`, which override the estimator's own settings."""
        if taken := [name for name in ("output", "out") if name in options]:
            raise TypeError(f"got an unexpected keyword argument {taken[0]!r}; use estimator.model.predict")
        model, settings = self._model, dict(options)
        ends = settings.get("iteration_range")
        if model.forest.library == "XGBoost" and isinstance(ends, (tuple, list)) and [*ends[1:]] == [0]:
            del settings["iteration_range"]  # an XGBModel then uses all, whatever comes first
        settings.setdefault("precision", "exact" if output == "leaf" else self.precision)
        if not any(name in options for name in NAMES_OF_THREADS):
            settings["n_threads"] = self.n_threads
        return np.asarray(model.predict(self._checked(X), output, **settings))

    def _staged(self, X: Any, output: Output) -> Iterator[np.ndarray]:
        return self._model.staged_predict(self._checked(X), output, n_threads=self.n_threads)

    def _checked(self, X: Any) -> Any:
        """``X``, checked as scikit-learn's estimators check it; tables stay tables, for the model to convert."""
        if self._passes(X):
            return X
        if isinstance(X, EncodedDocuments):
            refuse_strangers(X)
        names = _column_names(X)
        if names is None and not isinstance(X, np.ma.MaskedArray):  # whose mask check_array would drop
            objects = getattr(X, "dtype", None) in (None, np.dtype(object)) and not hasattr(X, "tocsr")  # or lists
            dtype = object if objects and _keeps_texts(self._model.forest) else "numeric"
            X = validate_data(self, X, reset=False, dtype=dtype, accept_sparse=True, ensure_all_finite=False)
            # Numbers that are still objects came from a list, which the model reads differently from object arrays.
            return list(X) if dtype == "numeric" and X.dtype == object else X
        # Names that LightGBM stores in another spelling are right, but `validate_data` would not accept them.
        stored = self._model.forest.schema.stored
        if names is None or list(map(stored, names)) != list(self._model.feature_names):
            validate_data(self, X, reset=False, skip_check_array=True)
        return X

    def _passes(self, X: Any) -> bool:
        """Whether ``X`` is an array in which `validate_data` would find nothing to do, or to warn about."""
        is_array = type(X) is np.ndarray and X.ndim == 2 and X.dtype in (np.float32, np.float64)
        return is_array and X.shape[1] == self.n_features_in_ and len(X) > 0 and not hasattr(self, "feature_names_in_")

    def __sklearn_is_fitted__(self) -> bool:
        return isinstance(self.model, Model)

    def __sklearn_clone__(self) -> Self:
        # Parameters are not copied: the model is immutable, and a copy would have to be prepared again.
        return type(self)(**self.get_params(deep=False))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.target_tags.required = False
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        return tags


def _asks_for_other_output(options: Mapping[str, Any]) -> bool:
    return any(options.get(name) for name in ("raw_score", "output_margin", "pred_leaf", "pred_contrib"))


def _has_stages(estimator: Prefitted) -> bool:
    """CatBoost's estimators and scikit-learn's boosted ones predict stage by stage; others do not."""
    forest = estimator._model.forest
    boosted = forest.objective.startswith(("GradientBoosting", "HistGradientBoosting"))
    return forest.library == "CatBoost" or (forest.library == "scikit-learn" and boosted)


def _keeps_texts(forest: Forest) -> bool:
    """Whether strings in arrays must not become numbers: they may be categories or, for scikit-learn, unknown ones."""
    schema = forest.schema
    return schema.arrays_hold_values or (schema.library == "scikit-learn" and forest.has_categories)


def _column_names(X: Any) -> list[str] | None:
    """Names of a table's columns; None where ``X`` is not a table."""
    names = getattr(X, "column_names", None)  # Arrow tables, whose `columns` are the data
    if names is None and hasattr(X, "num_columns"):  # batches of pyarrow before 13
        names = getattr(getattr(X, "schema", None), "names", None)
    names = getattr(X, "columns", None) if names is None else names
    return None if names is None else [str(name) for name in names]


class GpuqsRegressor(RegressorMixin, Prefitted):  # type: ignore[misc]
    """A regressor or ranker that predicts with gpuqs; made by `wrap`.

    Parameters
    ----------
    model : Model
    n_threads : int, optional
        As in `gpuqs.Model.predict`.
    precision : {"exact", "fast"}
        As in `gpuqs.Model.predict`.
    """

    def __init__(self, model: Model, *, n_threads: int | None = None, precision: Precision = "exact") -> None:
        self.model = model
        self.n_threads = n_threads
        self.precision = precision

    def predict(self, X: Any, **options: Any) -> np.ndarray:
        """Predicted values [D], or [D, n_outputs] where the model has several outputs.

        ``options``: keywords of `gpuqs.Model.predict`, such as ``num_iteration`` or ``raw_score``.
        """
        return self._scores(X, "value", options)

    @available_if(_has_stages)  # type: ignore[untyped-decorator]
    def staged_predict(self, X: Any) -> Iterator[np.ndarray]:
        """`predict` after each iteration, with exact sums; only if the trained estimator has it."""
        return self._staged(X, "value")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = self.__sklearn_is_fitted__() and self.model.n_outputs > 1
        return tags


def _has_decision_function(estimator: GpuqsClassifier) -> bool:
    """LightGBM's and scikit-learn's boosted classifiers have one; other libraries' and random forests do not."""
    forest = estimator._model.forest
    return forest.source.startswith(("LightGBM", "scikit-learn")) and tells_probabilities(forest)


def _has_staged_scores(estimator: GpuqsClassifier) -> bool:
    return _has_stages(estimator) and _has_decision_function(estimator)


def _has_staged_logarithms(estimator: GpuqsClassifier) -> bool:
    return estimator._model.forest.library == "CatBoost" and _has_logarithms(estimator)


def _has_logarithms(estimator: GpuqsClassifier) -> bool:
    forest = estimator._model.forest
    if forest.library == "CatBoost":
        return tells_probabilities(forest)
    return forest.library == "scikit-learn" and not forest.objective.startswith("HistGradientBoosting")


class GpuqsClassifier(ClassifierMixin, Prefitted):  # type: ignore[misc]
    """A classifier that predicts with gpuqs; made by `wrap`.

    Parameters
    ----------
    model : Model
    classes : array-like [n_classes], optional
        Labels of the classes, in the model's order. By default the model's own labels, or 0, 1, ... if it has none.
    n_threads : int, optional
        As in `gpuqs.Model.predict`.
    precision : {"exact", "fast"}
        As in `gpuqs.Model.predict`.
    """

    def __init__(
        self,
        model: Model,
        *,
        classes: Any = None,
        n_threads: int | None = None,
        precision: Precision = "exact",
    ) -> None:
        self.model = model
        self.classes = classes
        self.n_threads = n_threads
        self.precision = precision

    @property
    def classes_(self) -> np.ndarray:
        """Labels of the classes [n_classes]."""
        return self._own_labels if self.classes is None else np.asarray(self.classes)

    def predict(self, X: Any, **options: Any) -> np.ndarray:
        """The likeliest class of each document [D]; for multi-label models, 0 or 1 for each label [D, n_labels].

        ``options``: keywords of `gpuqs.Model.predict`, such as ``num_iteration``. With ``raw_score``, ``output_margin``
        or ``pred_leaf`` the answer is `gpuqs.Model.predict`'s, as with LightGBM's and XGBoost's classifiers.
        """
        if _asks_for_other_output(options):
            return self._scores(X, "value", options)
        self._check_classes()
        return self._own_kind(self._scores(X, "class", options))

    @available_if(_has_stages)  # type: ignore[untyped-decorator]
    def staged_predict(self, X: Any) -> Iterator[np.ndarray]:
        """`predict` after each iteration, with exact sums; only if the trained estimator has it."""
        self._check_classes()
        return map(self._own_kind, self._staged(X, "class"))

    def predict_proba(self, X: Any, **options: Any) -> np.ndarray:
        """Probabilities of the classes [D, n_classes]; for multi-label models, those of the labels.

        ``options``: as for `predict`.
        """
        if _asks_for_other_output(options):
            return self._scores(X, "value", options)
        self._check_classes()
        return self._of_classes(self._scores(X, "value", options))

    @available_if(_has_stages)  # type: ignore[untyped-decorator]
    def staged_predict_proba(self, X: Any) -> Iterator[np.ndarray]:
        """`predict_proba` after each iteration, with exact sums; only if the trained estimator has it."""
        self._check_classes()
        return map(self._of_classes, self._staged(X, "value"))

    @available_if(_has_logarithms)  # type: ignore[untyped-decorator]
    @in_default_float_mode
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of `predict_proba`; only for models of scikit-learn and CatBoost whose estimators have it."""
        if self._model.forest.library != "CatBoost":
            return cast(np.ndarray, np.log(self.predict_proba(X)))
        self._check_classes()
        return self._logarithms(self._scores(X, "raw"))

    @available_if(_has_staged_logarithms)  # type: ignore[untyped-decorator]
    def staged_predict_log_proba(self, X: Any) -> Iterator[np.ndarray]:
        """`predict_log_proba` after each iteration, with exact sums; only for models of CatBoost."""
        self._check_classes()
        return map(self._logarithms, self._staged(X, "raw"))

    @available_if(_has_decision_function)  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> np.ndarray:
        """Raw scores [D], or [D, n_classes] for more than two classes; only if the trained estimator has this."""
        return self._scores(X, "raw")

    @available_if(_has_staged_scores)  # type: ignore[untyped-decorator]
    def staged_decision_function(self, X: Any) -> Iterator[np.ndarray]:
        """`decision_function` after each iteration, with exact sums; only if the trained estimator has it.

        For two classes, the answers of a ``GradientBoostingClassifier`` are columns [D, 1], as in scikit-learn.
        """
        column = self._model.forest.objective.startswith("GradientBoosting")
        return (raw[:, None] if column and raw.ndim == 1 else raw for raw in self._staged(X, "raw"))

    def _own_kind(self, labels: np.ndarray) -> np.ndarray:
        """Convert the model's labels to the estimator's own, in their type."""
        forest = self._model.forest
        if self.classes is not None and not multi_label(forest):
            own = self._own_labels
            order = np.argsort(own)
            labels = self.classes_[order[np.searchsorted(own, labels, sorter=order)]]
        if forest.library == "XGBoost" and labels.dtype.kind == "i":  # whose types differ with the objective
            if multi_label(forest):
                return labels.astype(np.float64)
            if forest.objective == "multi:softmax":
                return labels.astype(np.int32)
        return labels

    @in_default_float_mode
    def _of_classes(self, values: np.ndarray) -> np.ndarray:
        """A column for each class."""
        if values.ndim == 2:
            return values
        if not tells_probabilities(self._model.forest):  # a forest that has seen only one class
            return values[:, None]
        return np.column_stack([1 - values, values])

    @in_default_float_mode
    def _logarithms(self, raw: np.ndarray) -> np.ndarray:
        """Logarithms of probabilities as CatBoost computes them: finite even for tiny ones."""
        with np.errstate(over="ignore"):
            if self._model.forest.link == "softmax":
                raw = raw - raw.max(axis=1, keepdims=True)
                return cast(np.ndarray, raw - np.log(np.exp(raw).sum(axis=1, keepdims=True)))
            sides = np.column_stack([-raw, raw]) if raw.ndim == 1 else raw
            return cast(np.ndarray, -np.log(1 + np.exp(-sides)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = self.__sklearn_is_fitted__() and multi_label(self.model.forest)
        return tags

    @property
    def _own_labels(self) -> np.ndarray:
        """The model's own labels, each once: where training saw one class only, the model has it twice."""
        forest = self._model.forest
        return labels_as_array([*dict.fromkeys(forest.classes)]) if forest.classes else class_labels(forest)

    def _check_classes(self) -> None:
        """Refuse labels that do not fit the model's classes, and models whose scores say nothing about classes."""
        forest = self._model.forest
        if not scores_tell_classes(forest):
            raise UnsupportedModelError(
                f"{forest.source}: scores of {objective_of(forest)} do not determine classes; "
                "use gpuqs.sklearn.wrap(model, kind='regressor') for the scores"
            )
        if self.classes is None or multi_label(forest):  # each of whose labels is 0 or 1
            return
        labels, n_classes = self.classes_, len(self._own_labels)
        if labels.ndim != 1:
            raise ValueError(f"classes must be a list of labels, not {self.classes!r}")
        if len(labels) != n_classes:
            raise ValueError(f"classes has {len(labels)} labels; the model has {n_classes} classes")
        if len(set(labels.tolist())) < n_classes:
            raise ValueError(f"classes holds a label twice: {labels.tolist()}")


class GpuqsOutlierDetector(OutlierMixin, Prefitted):  # type: ignore[misc]
    """An IsolationForest that predicts with gpuqs; made by `wrap`.

    Parameters
    ----------
    model : Model
    offset : float
        Documents with scores below it are outliers: the trained estimator's ``offset_``.
    expected_depth : float, optional
        Depth that scores are measured against. By default the model's, which may differ from the trained estimator's
        in the last bit.
    n_threads : int, optional
        As in `gpuqs.Model.predict`.
    precision : {"exact", "fast"}
        As in `gpuqs.Model.predict`.
    """

    def __init__(
        self,
        model: Model,
        *,
        offset: float,
        expected_depth: float | None = None,
        n_threads: int | None = None,
        precision: Precision = "exact",
    ) -> None:
        self.model = model
        self.offset = offset
        self.expected_depth = expected_depth
        self.n_threads = n_threads
        self.precision = precision

    @property
    def offset_(self) -> float:
        """The score below which documents are outliers."""
        return self.offset

    @in_default_float_mode
    def score_samples(self, X: Any) -> np.ndarray:
        """Scores of documents [D]: the lower, the more abnormal."""
        forest = self._model.forest
        expected = 1 / forest.link_scale if self.expected_depth is None else self.expected_depth
        # From the sums, in scikit-learn's order: a document may lie on the offset, where the last bit decides.
        return cast(np.ndarray, -(2 ** -(self._scores(X, "raw") / (forest.n_trees * expected))))

    @in_default_float_mode
    def decision_function(self, X: Any) -> np.ndarray:
        """Scores minus the offset [D]: negative for outliers."""
        return self.score_samples(X) - self.offset

    @in_default_float_mode
    def predict(self, X: Any) -> np.ndarray:
        """-1 for outliers, 1 for inliers [D]."""
        return np.where(self.decision_function(X) < 0, -1, 1)
