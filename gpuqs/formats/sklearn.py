"""Live, fitted estimators of scikit-learn; nothing is ever unpickled.

Trees, forests and GradientBoosting* cast documents to float32, HistGradientBoosting* compares
them as float64; all add float64 values up in tree order. What "value" means:

- classifiers: ``predict_proba``; GradientBoostingClassifier and HistGradientBoostingClassifier of
  two classes have one output, the second class's probability, which is the second column there;
- regressors: ``predict``;
- IsolationForest: ``score_samples``.

For the boosted ones, "raw" is their ``decision_function``; for forests, the sum that ``predict`` divides by
the number of trees. "leaf" is what ``apply`` gives: a leaf's number among all nodes of its tree (for
HistGradientBoosting*, which have no ``apply``, among the nodes of its predictor).
"""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt

from gpuqs.errors import ModelFormatError, UnsupportedModelError
from gpuqs.forest import Forest
from gpuqs.formats.labels import labels_of
from gpuqs.formats.own_methods import refuse_own_methods
from gpuqs.formats.sklearn_hist import hist_fields
from gpuqs.formats.sklearn_trees import forest_arrays, node_depths, table_of_tree
from gpuqs.schema import Schema

NAME: Final = "scikit-learn estimators"

#: The features that are read, by the columns of `gpuqs.formats.FEATURES`.
FEATURES: Final = {
    "files": "none (gpuqs unpickles nothing)",
    "live objects": "trees, forests, `GradientBoosting*`, `HistGradientBoosting*`, `IsolationForest`",
    "missing values": "NaN",
    "categories": "`HistGradientBoosting*`: whole numbers from 0 to 65,535, texts",
    "outputs": "one, one per class, vector leaves",
    "raw scores": "same bits",
}

#: The first bytes of an object's pickle: its protocol, and the object's class or (from 4 on) a frame.
_PICKLE: Final = re.compile(rb"\x80([\x02\x03]c|[\x04\x05]\x95)")

#: Methods that determine what an estimator predicts; a subclass of another library may have its own.
_METHODS: Final = ("predict", "predict_proba", "decision_function", "score_samples", "apply")

#: Strategies of ``sklearn.dummy`` estimators whose predictions depend neither on the document nor on chance.
_CONSTANT: Final = ("prior", "most_frequent", "uniform", "constant", "mean", "median", "quantile")


def recognises(head: bytes) -> bool:
    """Whether a file that begins with ``head`` is a pickle, plain or compressed as joblib does."""
    if _PICKLE.match(head):
        return True
    try:
        return _PICKLE.match(zlib.decompressobj(wbits=47).decompress(head, 3)) is not None
    except zlib.error:
        return False


def read(data: bytes | memoryview, source: str) -> NoReturn:
    """Refuse a pickle: loading one runs whatever code is in it.

    Raises
    ------
    UnsupportedModelError
        Always; the message says how to pass the model instead.
    """
    raise UnsupportedModelError(
        f"{source}: is a pickle, which gpuqs never loads, since that would run the code in it; if you trust it, "
        "load it yourself (joblib.load or pickle.load) and pass the object: gpuqs.from_model(estimator)"
    )


def from_object(obj: Any) -> Forest | None:
    """The Forest of a fitted scikit-learn estimator; None for another library's object.

    Raises
    ------
    ModelFormatError
        The estimator is not fitted.
    UnsupportedModelError
        An estimator, or something in it, that is not evaluated; the message says which, and what to do instead.
    """
    kinds = {kind.__name__ for kind in type(obj).__mro__ if kind.__module__.partition(".")[0] == "sklearn"}
    source = f"{type(obj).__module__.partition('.')[0]}.{type(obj).__name__}"
    fields_of = next((reader for name, reader in _READERS.items() if name in kinds), None)
    if fields_of is None:
        if "BaseEstimator" in kinds and ("Pipeline" in kinds or source.startswith("sklearn.")):
            raise UnsupportedModelError(f"{source}: {_mend(kinds)}")
        return None
    try:
        # Of parts with the same class and the same members, only one is checked: an ensemble has hundreds.
        for part in {(id(type(part)), *getattr(part, "__dict__", ())): part for part in (obj, *_parts(obj))}.values():
            refuse_own_methods(part, "sklearn", _METHODS)
        fields = fields_of(obj, source)
        return Forest(
            n_features=int(obj.n_features_in_),
            schema=Schema(
                tuple(str(name) for name in getattr(obj, "feature_names_in_", ())),
                fields.pop("categories", ()),
                library="scikit-learn",
            ),
            classes=labels_of(getattr(obj, "classes_", ())),
            source=f"scikit-learn {sys.modules['sklearn'].__version__}",
            **fields,
        )
    except ModelFormatError as error:
        raise error.at(source) from error.__cause__
    except (ValueError, TypeError, LookupError, AttributeError) as error:  # if trees were taken out or put in, say
        raise ModelFormatError(
            f"the estimator's parts do not fit together ({error}); pass it as fit left it", source=source
        ) from error


#: Classes, or their bases, whose ``estimators_`` may be replaced by others that predict the same.
_COMBINING: Final = {
    *("_BaseHeterogeneousEnsemble", "_MultiOutputEstimator", "_BaseChain", "BaseBagging"),
    *("OneVsRestClassifier", "OneVsOneClassifier"),
}


def _mend(kinds: set[str]) -> str:
    if "Pipeline" in kinds:
        return (
            "pipelines are not read, only the trees at their end: pass pipeline[-1], and score "
            "pipeline[:-1].transform(X); or use gpuqs.sklearn.wrap(pipeline)"
        )
    if "BaseSearchCV" in kinds:
        return "searches are not read, only what they found: pass search.best_estimator_"
    if "FrozenEstimator" in kinds:
        return "is not read, only the estimator in it: pass frozen.estimator"
    if "TransformedTargetRegressor" in kinds:
        return (
            "is not read, only the regressor in it: pass estimator.regressor_, and give what it predicts to "
            "estimator.transformer_.inverse_transform"
        )
    if "CalibratedClassifierCV" in kinds:
        return (
            "is not read, only the estimators in it: for each in model.calibrated_classifiers_, set "
            "each.estimator = gpuqs.sklearn.wrap(each.estimator)"
        )
    if kinds & _COMBINING:
        return (
            "is not read, only the estimators in it: set "
            "model.estimators_ = [gpuqs.sklearn.wrap(each) for each in model.estimators_]"
        )
    return f"is not read; of scikit-learn's estimators these are: {', '.join(_READERS)}"


def _parts(obj: Any) -> Iterator[Any]:
    """The estimators and trees that an estimator uses when it predicts."""
    for name in ("estimators_", "_predictors"):
        for stage in getattr(obj, name, ()):
            yield from stage if isinstance(stage, (list, np.ndarray)) else [stage]


def _fitted(obj: Any, attribute: str, source: str) -> Any:
    value = getattr(obj, attribute, None)
    if value is None or (hasattr(value, "__len__") and len(value) == 0):
        raise ModelFormatError("the estimator is not fitted; call fit first", source=source)
    return value


# -- trees and forests ---------------------------------------------------------------------------


def _of_tree(model: Any, source: str) -> dict[str, Any]:
    _fitted(model, "tree_", source)
    return {**_averaged([model], model, source), "average": False}


def _of_forest(model: Any, source: str) -> dict[str, Any]:
    return _averaged(_fitted(model, "estimators_", source), model, source)


def _averaged(estimators: list[Any], model: Any, source: str) -> dict[str, Any]:
    n_outputs = int(model.n_outputs_)
    classifier = hasattr(model, "classes_")
    if classifier and n_outputs > 1:
        raise UnsupportedModelError(
            f"{source}: classifies {n_outputs} targets at once, which is not evaluated; fit one classifier for each"
        )
    values = [np.asarray(estimator.tree_.value, np.float64) for estimator in estimators]
    values = [_probabilities(value[:, 0]) if classifier else value[:, :, 0] for value in values]
    tables = [table_of_tree(estimator.tree_, value) for estimator, value in zip(estimators, values, strict=True)]
    return {
        **forest_arrays(tables),
        "input_dtype": "float32",
        "integer_dtype": "float32",
        "n_outputs": values[0].shape[1],
        "average": True,
        "objective": f"{type(model).__name__} {model.criterion}",
    }


def _probabilities(value: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """What a tree's ``predict_proba`` gives for each node [M, n_classes]."""
    release = re.match(r"(\d+)\.(\d+)", sys.modules["sklearn"].__version__)
    if release is not None and tuple(map(int, release.groups())) >= (1, 4):
        return value
    total = value.sum(axis=1, keepdims=True)
    total[total == 0.0] = 1.0  # weights of samples are stored, and divided at prediction
    shares: npt.NDArray[np.float64] = value / total
    return shares


# -- gradient boosting ---------------------------------------------------------------------------


def _of_gradient_boosting(model: Any, source: str) -> dict[str, Any]:
    stages = _fitted(model, "estimators_", source)
    n_outputs = stages.shape[1]
    init = model.init_
    dummy = type(init).__module__ == "sklearn.dummy" and init.strategy in _CONSTANT
    if not dummy and not (isinstance(init, str) and init == "zero"):
        raise UnsupportedModelError(
            f"{source}: starts at the predictions of another model (init={init!r}), which is not evaluated; fit "
            "with init=None or init='zero', or add its raw predictions to those of gpuqs"
        )
    tables = [
        table_of_tree(estimator.tree_, np.asarray(estimator.tree_.value[:, 0], np.float64), missing=False)
        for estimator in stages.ravel()
    ]
    # By scikit-learn's own arithmetic; any document will do, since all start at the same score.
    base_score = model._raw_predict_init(np.zeros((1, model.n_features_in_), np.float32))
    link, link_scale = "identity", 1.0
    if hasattr(model, "classes_"):
        link = "sigmoid" if n_outputs == 1 else "softmax"
        link_scale = 2.0 if type(model._loss).__name__ == "ExponentialLoss" else 1.0  # ``loss`` may be set after fit
    return {
        **forest_arrays(tables),
        "input_dtype": "float32",
        "integer_dtype": "float32",
        "n_outputs": n_outputs,
        "tree_output": (np.arange(len(tables)) % n_outputs).astype(np.int32),
        "tree_weight": np.full(len(tables), model.learning_rate, np.float64),
        "base_score": np.asarray(base_score, np.float64).reshape(-1),
        "link": link,
        "link_scale": link_scale,
        "class_rule": "raw_or_zero",
        "objective": f"{type(model).__name__} {model.loss}",
    }


# -- isolation forests ---------------------------------------------------------------------------


def _of_isolation_forest(model: Any, source: str) -> dict[str, Any]:
    estimators = _fitted(model, "estimators_", source)
    expected = float(average_path_length(np.array([model.max_samples_]))[0])
    if expected == 0.0:
        raise UnsupportedModelError(
            f"{source}: trees of one sample each (max_samples_=1) score all documents alike; fit with max_samples=2 "
            "or more"
        )
    n_features = int(model.n_features_in_)
    tables = []
    for estimator, columns in zip(estimators, model.estimators_features_, strict=True):
        tree = estimator.tree_
        length = node_depths(tree) + 1.0 + average_path_length(np.asarray(tree.n_node_samples)) - 1.0
        table = table_of_tree(tree, length[:, None])
        if len(columns) < n_features:  # an estimator of all features uses the columns as they come
            table = replace(table, feature=np.asarray(columns)[np.where(table.leaf, 0, table.feature)])
        tables.append(table)
    return {
        **forest_arrays(tables),
        "input_dtype": "float32",
        "integer_dtype": "float32",
        "average": True,
        "link": "isolation",
        "link_scale": 1.0 / expected,
        "objective": type(model).__name__,
    }


def average_path_length(n_samples: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Mean length of an unsuccessful search in a binary search tree of ``n_samples`` keys, as in scikit-learn."""
    n = np.maximum(n_samples, 3).astype(np.float64)
    length = 2.0 * (np.log(n - 1.0) + np.euler_gamma) - 2.0 * (n - 1.0) / n
    return np.where(n_samples > 2, length, n_samples == 2)


_READERS: Final[dict[str, Callable[[Any, str], dict[str, Any]]]] = {
    **dict.fromkeys(
        ("RandomForestClassifier", "RandomForestRegressor", "ExtraTreesClassifier", "ExtraTreesRegressor"),
        _of_forest,
    ),
    **dict.fromkeys(("GradientBoostingClassifier", "GradientBoostingRegressor"), _of_gradient_boosting),
    **dict.fromkeys(("HistGradientBoostingClassifier", "HistGradientBoostingRegressor"), hist_fields),
    "IsolationForest": _of_isolation_forest,
    **dict.fromkeys(
        ("DecisionTreeClassifier", "DecisionTreeRegressor", "ExtraTreeClassifier", "ExtraTreeRegressor"), _of_tree
    ),
}
