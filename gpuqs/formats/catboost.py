"""CatBoost's models, binary (``save_model(path)``) and JSON (``format="json"``), and its live objects.

CatBoost casts documents to float32 and goes right where ``x > border``. It sums float64 leaf
values in tree order, for one document as for many, multiplies by the scale and adds the bias
last. Here, a scale other than 1 (``set_scale_and_bias``) is applied to the leaf values instead: raw
scores of T trees then differ from CatBoost's by rounding, at most by
``2 (T + 1) 2^-53 (sum of |scale * leaf value| + |bias|)``; a scale that is a power of two causes no
rounding.

For a file, "value" is the loss's link of the sums: a CatBoostClassifier's probabilities, a CatBoostRegressor's
means. For a live object it is what the object's own methods give: see `from_object`.

A categorical feature is compared by the hash of its string, or by statistics of the hash
(`gpuqs.formats.catboost_ctrs`). The compared categories are numbered here; as in CatBoost, an integer and its string (7
and "7") are one category, and integers in arrays are categories, too. All models except JSON that was saved together
with its training data hold only hashes: strings of documents are then hashed as CatBoost does.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gpuqs.cpu_fallback.ctrs import text_hashes
from gpuqs.errors import ModelFormatError, UnsupportedModelError, naming
from gpuqs.forest import Forest
from gpuqs.formats import catboost_binary
from gpuqs.formats.catboost_ctrs import read_ctrs, refuse_lost_tables
from gpuqs.formats.catboost_tests import CTR, FLOAT, ONE_HOT, Tests, reals, tests_of_borders
from gpuqs.formats.catboost_trees import ARRAYS, Condenser, Trees, json_trees, splits_of
from gpuqs.formats.fields import INT32_MAX, get, numbers, parse_json, whole
from gpuqs.formats.own_methods import refuse_own_methods
from gpuqs.schema import Schema

NAME: Final = "CatBoost"

#: The features that are read, by the columns of `gpuqs.formats.FEATURES`.
FEATURES: Final = {
    "files": "`.cbm`, JSON (`save_model`)",
    "live objects": "`CatBoost*`",
    "missing values": "NaN (Min, Max, Forbidden)",
    "categories": "one-hot and CTRs; by value, of frames and arrays of whole numbers or objects",
    "outputs": "one, vector leaves",
    "raw scores": "same bits where the model's scale is 1",
}

_LINKS: Final = {
    **dict.fromkeys(
        (
            *("RMSE", "MAE", "Quantile", "GroupQuantile", "MultiQuantile", "Expectile", "LogLinQuantile"),
            *("MAPE", "Lq", "Huber", "LogCosh", "MultiRMSE", "MultiRMSEWithMissingValues", "Cox", "SurvivalAft"),
            *("YetiRank", "YetiRankPairwise", "PairLogit", "PairLogitPairwise", "LambdaMart", "StochasticRank"),
            *("StochasticFilter", "QueryRMSE", "QuerySoftMax", "QueryCrossEntropy"),
            *("PythonUserDefinedPerObject", "PythonUserDefinedMultiTarget", "UserPerObjMetric"),
        ),
        "identity",
    ),
    **dict.fromkeys(("Logloss", "CrossEntropy", "Focal", "MultiLogloss", "MultiCrossEntropy"), "sigmoid"),
    "MultiClass": "softmax",
    "MultiClassOneVsAll": "ova_sigmoid",
    **dict.fromkeys(("Poisson", "Tweedie"), "exp"),
    "RMSEWithUncertainty": "mean_variance",
}

#: Links of classifiers' losses.
_OF_CLASSES: Final = ("sigmoid", "softmax", "ova_sigmoid")

#: Methods that determine what a live object predicts, and those by which it is read.
_METHODS: Final = (
    *("predict", "predict_proba", "predict_log_proba", "decision_function", "calc_leaf_indexes"),
    "save_model",
)

#: Losses for documents that may bear several labels at once: their outputs are not classes.
_MULTI_LABEL: Final = ("MultiLogloss", "MultiCrossEntropy")
#: Losses for several columns of labels.
_MULTI_TARGET: Final = (*_MULTI_LABEL, "MultiRMSE", "MultiRMSEWithMissingValues", "SurvivalAft")

#: Far above any real model; a file may not make us name more columns.
_MAX_FEATURES: Final = 1 << 20


def recognises(head: bytes) -> bool:
    """Whether a file that begins with ``head`` is a CatBoost model (its binary form included)."""
    if head.startswith(catboost_binary.MAGIC):
        return True
    keys = rb"ctr_data|features_info|model_info|oblivious_trees|scale_and_bias|trees"
    return re.match(rb"\s*\{\s*\"(%s)\"\s*:" % keys, head) is not None


def read(data: bytes | memoryview, source: str) -> Forest:
    """Read a file of CatBoost's, binary or JSON.

    Parameters
    ----------
    data : bytes or memoryview
    source : str
        What to call the model in errors, a path for example.

    Raises
    ------
    ModelFormatError
        The model is damaged or hostile.
    UnsupportedModelError
        The model is sound but tests what is not evaluated, or is JSON that may lack tables of CTRs.
    """
    with naming(source):
        if bytes(data[:4]) == catboost_binary.MAGIC:
            return _forest(*catboost_binary.taken_apart(memoryview(data)), complete=True)
        document = parse_json(data, Condenser(), ARRAYS)
        return _forest(document, partial(json_trees, document))


def from_object(obj: Any) -> Forest | None:
    """The Forest of a ``catboost.CatBoost`` or an object of a subclass; None for anything else.

    "value" is what ``predict`` gives: raw scores, except that a CatBoostRegressor gives means for Poisson, Tweedie and
    RMSEWithUncertainty. For a CatBoostClassifier it is what ``predict_proba`` gives (for two classes, the second's
    probability).
    """
    kinds = {(kind.__module__.partition(".")[0], kind.__name__) for kind in type(obj).__mro__}
    if ("catboost", "CatBoost") not in kinds:
        return None
    refuse_own_methods(obj, "catboost", _METHODS)
    source = f"catboost.{type(obj).__name__}"
    if not obj.is_fitted():
        raise ModelFormatError("the model is not fitted; call fit first", source=source)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.cbm"
        try:
            obj.save_model(str(path))
        except Exception as error:  # sums of models with CTRs may lack tables
            raise UnsupportedModelError(
                f"{source}: CatBoost cannot save this model, and so it is not read: {str(error)[:300]}"
            ) from error
        forest = read(path.read_bytes(), source)
    return replace(
        forest,
        link=_live_link(obj, kinds, forest, source),
        best_iteration=obj.best_iteration_,
    )


def _live_link(obj: Any, kinds: set[tuple[str, str]], forest: Forest, source: str) -> str:
    """The link that a live object's own methods apply; a plain CatBoost and a ranker apply none."""
    if ("catboost", "CatBoostClassifier") in kinds:
        if forest.link not in _OF_CLASSES:
            raise UnsupportedModelError(
                f"{source}: its loss ({forest.objective or 'unknown'}) is not a classifier's, and how CatBoost turns "
                "its scores into classes is not evaluated; for raw scores, save the model and load the file into a "
                "plain catboost.CatBoost"
            )
        return forest.link
    if ("catboost", "CatBoostRegressor") in kinds:
        return {"Exponent": "exp", "RMSEWithUncertainty": "mean_variance"}.get(
            obj._get_default_prediction_type(), "identity"
        )
    return "identity"


def _forest(document: Any, read_trees: Callable[[Tests, int], Trees], complete: bool = False) -> Forest:
    """The Forest of a document in the form of CatBoost's JSON; ``complete``: it has all tables of CTRs."""
    info = get(document, "model_info", dict, {})
    loss = _loss(info)
    if loss and loss not in _LINKS:
        raise UnsupportedModelError(
            f"loss {loss[:100]!r} is not known to gpuqs, so neither is the meaning of its scores; "
            f"known are {', '.join(sorted(_LINKS))}"
        )
    features = get(document, "features_info", dict)
    tests, n_given, names = _features(features)
    ctrs = None
    if listed := get(features, "ctrs", list, []):
        if not document.get("ctr_data") and _computed_no_ctrs(info):
            raise UnsupportedModelError(
                "the model lacks the statistics of its categories (CTRs), without which CatBoost cannot predict "
                "either: it was trained with final_ctr_computation_mode='Skip'; train it with 'Default'"
            )
        tables = get(document, "ctr_data", dict)
        if not complete:
            refuse_lost_tables(listed, _object(info, "params"), several_targets=loss in _MULTI_TARGET)
        ctrs, tests.ctrs = read_ctrs(listed, tables, tests.floats, tests.columns, tests.hashes(), n_given)
        tests.table += tests_of_borders(CTR, {number: get(ctr, "borders", list) for number, ctr in enumerate(listed)})
    scale, bias = _scale_and_bias(document)
    if loss == "RMSEWithUncertainty" and len(bias) != 2:
        raise ModelFormatError(f"{len(bias)} outputs, but {loss} has 2", field="scale_and_bias")
    trees = read_trees(tests, len(bias))
    _check_scaled(trees, scale)
    arrays: dict[str, Any] = trees.arrays(tests)
    threshold = info.get("binclass_probability_threshold", "0.5")
    by_threshold = len(bias) == 1 or loss in _MULTI_LABEL  # of several classes, the likeliest
    return Forest(
        n_features=n_given if ctrs is None else ctrs.n_columns,
        **arrays,
        input_dtype="float32",
        integer_dtype="float32",
        n_outputs=len(bias),
        tree_weight=np.full(len(trees.n_leaves), scale),
        base_score=bias,
        base_first=False,
        link=_LINKS.get(loss, "identity"),
        schema=Schema(names, tests.categories(n_given), library="CatBoost"),
        classes=() if loss in _MULTI_LABEL else _classes(info, len(bias)),
        class_rule="other" if by_threshold and str(threshold) != "0.5" else "raw",
        source=_version(info),
        objective=loss,
        ctrs=ctrs,
    )


def _computed_no_ctrs(info: dict[str, Any]) -> bool:
    """Whether training left out the tables of CTRs, as it was told to."""
    given: dict[str, Any] = get(_object(info, "params"), "flat_params", dict, {})
    return given.get("final_ctr_computation_mode") == "Skip"


def _check_scaled(trees: Trees, scale: float) -> None:
    """Refuse leaf values that are not finite when multiplied by the scale."""
    if abs(scale) > 1:
        too_large = (np.abs(trees.value) > np.finfo(np.float64).max / abs(scale)).any(axis=1)
        if too_large.any():
            tree = int(np.searchsorted(trees.leaf_offsets, np.argmax(too_large), "right")) - 1
            raise ModelFormatError("leaf values times the scale are not finite", tree=tree, field="scale_and_bias")


def _loss(info: dict[str, Any]) -> str:
    """Name of the loss; empty if the model does not say."""
    params = _object(info, "params")  # models made by sum_models have only the loss
    loss: str = get(_object(params if "loss_function" in params else info, "loss_function"), "type", str, "")
    return loss


def _object(obj: dict[str, Any], key: str) -> dict[str, Any]:
    """An object of the file, parsed if the file holds it as a string; empty if it is absent."""
    value = obj.get(key, {})
    found: dict[str, Any] = get({key: parse_json(value) if isinstance(value, str) else value}, key, dict)
    return found


def _version(info: dict[str, Any]) -> str:
    found = re.search(r"\bv(\d+\.\d+)", str(info.get("catboost_version_info", "")), re.ASCII)
    return f"CatBoost {found[1]}" if found else "CatBoost"


def _classes(info: dict[str, Any], n_outputs: int) -> tuple[Any, ...]:
    params = get(info, "class_params", dict, {})
    labels = get(params, "class_names", list, [])
    n_classes = max(len(labels), whole(params, "classes_count", 0, INT32_MAX, 0))
    if 1 < n_outputs < n_classes:
        raise UnsupportedModelError(
            f"the model was given {n_classes} classes, of which {n_outputs} occurred in training; CatBoost gives "
            "the others probabilities of 0, which gpuqs does not; train it without classes_count, and with only those "
            "class_names that occur"
        )
    told = list(map(str, get(params, "class_to_label", list, [])))
    if len(set(told)) < len(told):
        raise ModelFormatError("gives two classes the same label", field="class_to_label")
    if not all(isinstance(label, (str, int, float)) for label in labels):
        raise ModelFormatError("is not an array of labels", field="class_names")
    if params.get("class_label_type") == "Float":
        return tuple(numbers(labels, "class_names", np.float64).tolist())
    return tuple(labels)


def _scale_and_bias(document: dict[str, Any]) -> tuple[float, npt.NDArray[np.float64]]:
    """The scale, and the bias of each output."""
    name = "scale_and_bias"
    pair = get(document, name, list, [1, 0])
    if len(pair) != 2:
        raise ModelFormatError(f"has {len(pair)} elements, not 2", field=name)
    (scale,) = reals([pair[0]], name)
    if isinstance(pair[1], list):
        bias = reals(pair[1], name)
    else:  # one number for all outputs, in files from before 0.24
        trees = get(document, "oblivious_trees", list, [])
        first = trees[0] if trees and isinstance(trees[0], dict) and "splits" in trees[0] else {}
        n_values = len(get(first, "leaf_values", list, [], tree=0))
        depth = len(splits_of(first, 0)) if first else 0
        bias = np.repeat(reals([pair[1]], name), max(1, n_values >> depth))
        if len(bias) > 1 and bias.any():
            raise ModelFormatError(f"holds one bias for {len(bias)} outputs", field=name)
    if len(bias) == 0 or not np.isfinite([scale, *bias]).all():
        raise ModelFormatError("must be a finite scale and a finite bias for each output", field=name)
    return float(scale), bias


def _features(info: dict[str, Any]) -> tuple[Tests, int, tuple[str, ...]]:
    """The tests that splits may name, the number of columns, and their names."""
    for kind in ("text", "embedding"):
        if get(info, f"{kind}_features", list, []):
            raise UnsupportedModelError(
                f"{kind} features are not evaluated; turn them into numbers beforehand"
            )
    tests, name_of, has_names = Tests(), {}, False
    borders: dict[int, list[Any]] = {}
    one_hot: list[Any] = []
    for kind in ("float_features", "categorical_features"):
        known: dict[int, Any] = tests.floats if kind == "float_features" else tests.columns
        for feature in get(info, kind, list, []):
            index = whole(_feature(feature, kind), "feature_index", 0, INT32_MAX)
            column = whole(feature, "flat_feature_index", 0, _MAX_FEATURES - 1)
            if index in known or column in name_of:
                raise ModelFormatError(f"feature {index}, column {column} appears twice", field=kind)
            given = get(feature, "feature_id", str, "")
            has_names |= bool(given)  # those of a frame, even "0", "1", ...
            name_of[column] = get(feature, "feature_name", str, "") or given
            if kind == "float_features":
                tests.floats[index] = column, _nan_right(feature)
                borders[index] = get(feature, "borders", list, [])
            else:
                tests.columns[index] = column
                values = numbers(get(feature, "values", list, []), "values", np.int64) % (1 << 32)
                if len(np.unique(values)) < len(values):  # which CatBoost distinguishes by position
                    raise ModelFormatError(f"feature {index}: a hash appears twice", field="values")
                tests.values[index] = values.tolist()
                one_hot += [(ONE_HOT, index, value) for value in tests.values[index]]
    tests.table += tests_of_borders(FLOAT, borders) + one_hot
    tests.texts = _texts(info)
    n_features = max(name_of, default=-1) + 1
    if not has_names and all(name in ("", str(column)) for column, name in name_of.items()):  # CatBoost's own
        return tests, n_features, ()
    return tests, n_features, tuple(name_of.get(column, str(column)) for column in range(n_features))


def _texts(info: dict[str, Any]) -> dict[int, list[str]]:
    """The strings of each hash, if the file holds them."""
    name = "cat_features_hash"
    # CatBoost writes null where a model without categories is saved together with a pool.
    entries = [] if info.get(name) is None else get(info, name, list)
    texts = [get(_feature(entry, name), "value", str) for entry in entries]
    try:
        hashes = text_hashes(texts).tolist()
    except UnicodeEncodeError:  # a lone surrogate, as JSON's escapes can write it
        raise ModelFormatError("holds strings that cannot be encoded as UTF-8", field=name) from None
    of_hash: dict[int, list[str]] = {}
    for entry, text, code in zip(entries, texts, hashes, strict=True):
        if whole(entry, "hash", -INT32_MAX - 1, 2 * INT32_MAX + 1) % (1 << 32) != code:
            raise ModelFormatError(f"{text[:100]!r} does not match its hash: the file is damaged", field=name)
        of_hash.setdefault(code, []).append(text)
    if len(set(texts)) < len(texts):
        raise ModelFormatError("a string appears twice", field=name)
    return of_hash


def _feature(value: Any, field: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ModelFormatError("is not an array of objects", field=field)
    return value


def _nan_right(feature: dict[str, Any]) -> bool:
    """Whether NaN goes right; as it is ("AsIs") it does not, since NaN is above no border."""
    treatment = get(feature, "nan_value_treatment", str, "AsIs")
    if treatment not in ("AsIs", "AsFalse", "AsTrue"):
        raise ModelFormatError(f"{treatment[:100]!r} is not known", field="nan_value_treatment")
    has_nans = feature.get("has_nans", False)
    if not isinstance(has_nans, bool):
        raise ModelFormatError("is not true or false", field="has_nans")
    # CatBoost looks for NaN only if there were some in training.
    return treatment == "AsTrue" and has_nans
