"""Live HistGradientBoosting* estimators of scikit-learn.

They compare float64 documents with float64 thresholds and start their sums at the baseline.
An encoder of their own puts categorical columns first and numbers their categories before the trees see
them; here the trees' tests are translated to the user's columns and values instead. Categories that the
encoder has not seen become NaN in scikit-learn, and so go wherever the node sends missing values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gpuqs.errors import ModelFormatError, UnsupportedModelError
from gpuqs.forest import CATEGORICAL, NAN_LEFT, SET_RIGHT, WHOLE_CODES
from gpuqs.formats.growing import offsets
from gpuqs.formats.sklearn_trees import NodeTable, forest_arrays

#: Integers below this are tested as they are: a category set takes a bit for each.
_MAX_CODE: Final = 1 << 16

#: Class of ``estimator._loss.link`` -> our link and its scale.
_LINKS: Final = {
    "IdentityLink": ("identity", 1.0),
    "LogLink": ("exp", 1.0),
    "LogitLink": ("sigmoid", 1.0),
    "HalfLogitLink": ("sigmoid", 2.0),
    "MultinomialLogit": ("softmax", 1.0),
}


@dataclass(frozen=True)
class _Columns:
    """The trees' features as columns of the user's documents.

    Parameters
    ----------
    column : int64 [F]
        Column of each of the trees' features.
    codes : dict of int64 [n_categories]
        By column of a categorical feature: the number that stands for each category in documents.
    categories : tuple
        As in `gpuqs.schema.Schema`, for the columns whose categories are strings.
    """

    column: npt.NDArray[np.int64]
    codes: dict[int, npt.NDArray[np.int64]]
    categories: tuple[tuple[Any, ...] | None, ...] = ()


def hist_fields(model: Any, source: str) -> dict[str, Any]:
    """The fields of a Forest that follow from a fitted HistGradientBoosting* estimator.

    Raises
    ------
    ModelFormatError
        The estimator is not fitted.
    UnsupportedModelError
        A loss with a link that is not known, or categories that are not evaluated.
    """
    if not getattr(model, "_predictors", None):
        raise ModelFormatError("the estimator is not fitted; call fit first", source=source)
    kind = type(model._loss.link).__name__
    if kind not in _LINKS:
        raise UnsupportedModelError(
            f"{source}: the loss {type(model._loss).__name__} with the link {kind} is not evaluated; "
            f"known links are {', '.join(_LINKS)}"
        )
    columns = _columns(model, source)
    n_outputs = int(model.n_trees_per_iteration_)
    predictors = [predictor for of_iteration in model._predictors for predictor in of_iteration]
    link, link_scale = _LINKS[kind]
    return {
        **forest_arrays([_table(predictors, columns)] if predictors else []),
        "input_dtype": "float64",
        "integer_dtype": "float64",
        "n_outputs": n_outputs,
        "tree_output": (np.arange(len(predictors)) % n_outputs).astype(np.int32),
        "base_score": np.asarray(model._baseline_prediction, np.float64).reshape(-1),
        "link": link,
        "link_scale": link_scale,
        "class_rule": "raw",
        "categories": columns.categories,
        "objective": f"{type(model).__name__} {model.loss if isinstance(model.loss, str) else kind}",
    }


def _table(predictors: list[Any], columns: _Columns) -> NodeTable:
    """The table of all trees."""
    nodes = np.concatenate([predictor.nodes for predictor in predictors])
    starts = offsets([len(predictor.nodes) for predictor in predictors])
    leaf = nodes["is_leaf"].astype(bool)
    feature = nodes["feature_idx"].astype(np.int64)
    known = (feature >= 0) & (feature < len(columns.column))
    column = np.where(known, columns.column[np.where(known, feature, 0)], -1)  # which a Forest refuses
    categorical = nodes["is_categorical"].astype(bool) & ~leaf & known
    nan_left = nodes["missing_go_to_left"].astype(bool)
    routing = np.where(nan_left, NAN_LEFT, 0)
    # The set holds the categories that go the other way than missing values; all others go with these.
    routing[categorical] |= CATEGORICAL | WHOLE_CODES
    routing[categorical & nan_left] |= SET_RIGHT
    sets = []
    for node in np.flatnonzero(categorical):
        predictor = predictors[np.searchsorted(starts, node, "right") - 1]
        bits = np.ascontiguousarray(predictor.raw_left_cat_bitsets[nodes["bitset_idx"][node]], "<u4")
        codes = columns.codes[int(column[node])]
        goes_left = np.unpackbits(bits.view(np.uint8), bitorder="little")[: len(codes)].astype(bool)
        sets.append(_words(codes[goes_left != nan_left[node]]))
    return NodeTable(
        leaf=leaf,
        left=nodes["left"].astype(np.int64),
        right=nodes["right"].astype(np.int64),
        feature=column,
        threshold=np.where(categorical, 0.0, nodes["num_threshold"]),
        routing=routing.astype(np.uint8),
        value=nodes["value"].astype(np.float64)[:, None],
        sets=sets,
        starts=starts,
    )


def _words(codes: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """The bitset of these codes."""
    words = np.zeros(int(codes.max(initial=-1)) // 32 + 1, np.uint32)
    np.bitwise_or.at(words, codes // 32, np.uint32(1) << (codes % 32).astype(np.uint32))
    return words


def _columns(model: Any, source: str) -> _Columns:
    n_features = int(model.n_features_in_)
    is_categorical = getattr(model, "is_categorical_", None)
    if is_categorical is None or not np.any(is_categorical):
        return _Columns(np.arange(n_features), {})
    preprocessor = getattr(model, "_preprocessor", None)
    if preprocessor is None:
        raise UnsupportedModelError(
            f"{source}: categorical features are read only from scikit-learn 1.4 on; fit the model with a newer release"
        )
    categorical = np.flatnonzero(is_categorical)
    encoder = preprocessor.named_transformers_["encoder"]
    names = getattr(model, "feature_names_in_", range(n_features))
    codes, texts = {}, {}
    for column, values in zip(categorical.tolist(), encoder.categories_, strict=True):
        known = [value for value in np.asarray(values).tolist() if value == value]  # without NaN, which comes last
        if all(isinstance(value, str) for value in known):
            texts[column] = tuple(known)
            codes[column] = np.arange(len(known))
        else:
            codes[column] = _whole_numbers(known, f"{source}: categorical feature {names[column]!r}")
    return _Columns(
        column=np.concatenate([categorical, np.flatnonzero(~np.asarray(is_categorical))]),
        codes=codes,
        categories=tuple(texts.get(column) for column in range(n_features)) if texts else (),
    )


def _whole_numbers(known: list[Any], what: str) -> npt.NDArray[np.int64]:
    """The categories as integers, which they must be."""
    odd = [value for value in known if not isinstance(value, str)]
    if len(odd) == len(known):  # no strings among them, with which every number would be odd
        odd = [value for value in known if not _is_code(value)]
    if odd:
        raise UnsupportedModelError(
            f"{what} has the category {odd[0]!r}; its categories must be all strings, or all integers from 0 to "
            f"{_MAX_CODE - 1}; number them (sklearn.preprocessing.OrdinalEncoder), or make them strings in a data "
            "frame, and fit the model again"
        )
    return np.array(known, np.int64)


def _is_code(value: Any) -> bool:
    return isinstance(value, (bool, int, float)) and 0 <= value < _MAX_CODE and value == int(value)
