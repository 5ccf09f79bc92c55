"""XGBoost's JSON and UBJSON models (``Booster.save_model``, ``save_raw``) and its live objects.

XGBoost numbers a tree's inner nodes and leaves together and tests ``x < t`` in float32, which is
``x <= the float32 before t``. It sums float32 leaf values in tree order, beginning with the base
score, which the file holds in the objective's output space (a probability, say) and which
XGBoost turns into a margin in float32.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from functools import cache
from inspect import signature
from itertools import pairwise
from numbers import Integral, Real
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gpuqs.cpu_fallback import ubjson
from gpuqs.errors import ModelFormatError, UnsupportedModelError, naming
from gpuqs.forest import Forest
from gpuqs.forks import no_collection
from gpuqs.formats.fields import INT32_MAX, get, numbers, parse_json, refuse_depth, rounded_once, whole
from gpuqs.formats.own_methods import refuse_own_methods
from gpuqs.formats.xgboost_trees import ARRAYS, condensed, forest_arrays
from gpuqs.schema import Schema

NAME: Final = "XGBoost JSON or UBJSON"

#: The features that are read, by the columns of `gpuqs.formats.FEATURES`.
FEATURES: Final = {
    "files": "JSON, UBJSON (`save_model`)",
    "live objects": "`Booster`, `XGBModel`",
    "missing values": "NaN; the number `missing` of a live `XGBModel`",
    "categories": "codes; frames from XGBoost 3.1 on (of texts beyond ASCII, 3.4)",
    "outputs": "one, one per class, vector leaves",
    "raw scores": "same bits; of DART before 3.3 those of a `DMatrix`",
}

#: Objective -> (link, the space in which the file holds the base score).
_OBJECTIVES: Final = {
    **dict.fromkeys(
        (
            *("reg:squarederror", "reg:linear", "reg:squaredlogerror", "reg:pseudohubererror"),
            *("reg:absoluteerror", "reg:quantileerror", "reg:expectileerror", "binary:logitraw"),
            *("rank:pairwise", "rank:ndcg", "rank:map"),
        ),
        ("identity", "margin"),
    ),
    **dict.fromkeys(("binary:logistic", "reg:logistic"), ("sigmoid", "probability")),
    "multi:softprob": ("softmax", "margin"),
    "multi:softmax": ("argmax", "margin"),
    **dict.fromkeys(
        ("count:poisson", "reg:gamma", "reg:tweedie", "survival:cox", "survival:aft"), ("exp", "mean")
    ),
    "binary:hinge": ("hinge", "margin"),
}

#: XGBoost's numbers for the types of integer categories.
CATEGORY_TYPES: Final = {9: "i1", 10: "u1", 11: "i2", 12: "u2", 13: "i4", 14: "u4", 15: "i8", 16: "u8"}

#: Methods that determine what a live object predicts, and those by which it is read.
_METHODS: Final = (
    *("predict", "predict_proba", "decision_function", "inplace_predict", "apply"),
    *("get_booster", "save_raw"),
)

#: How the old binary form begins: up to XGBoost 1.0 with numbers, followed by the objective and the booster.
_OLD_BINARY: Final = re.compile(rb"binf|(?s:.{136})[\x01-\x40]\0{7}[\w:]{1,64}[\x04-\x08]\0{7}(?:gbtree|gblinear|dart)")

#: Far above any real model, and small enough to sum up for each of a block of documents.
_MAX_OUTPUTS: Final = 1 << 16


def recognises(head: bytes) -> bool:
    """Whether a file that begins with ``head`` is an XGBoost model (its old binary form included)."""
    if _OLD_BINARY.match(head):
        return True
    if re.match(rb"\s*\{\s*\"", head):
        return re.search(rb"\"learner\"\s*:\s*\{", head) is not None
    return re.match(rb"\{[iUIlL#$]", head) is not None and b"learner" in head


def read(data: bytes | memoryview, source: str) -> Forest:
    """Read XGBoost's JSON or UBJSON.

    All trees are taken, as ``Booster.predict`` does, whatever the best iteration.

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
        The model is sound but is not an ensemble of trees.
    """
    with naming(source):
        if _OLD_BINARY.match(data):
            raise UnsupportedModelError(
                "XGBoost's old binary format is not read; load it with XGBoost 2.0, or with the later one that wrote "
                'it, and save it again with save_model("model.json")'
            )
        return _forest(_parse(data))


def _refuse_old(source: str) -> None:
    """Refuse live models of releases that cannot export them as JSON."""
    library = sys.modules.get("xgboost")
    if library is not None and "raw_format" not in signature(library.Booster.save_raw).parameters:
        raise UnsupportedModelError(
            f"{source}: XGBoost before 1.6 cannot return the JSON of a live model; call "
            "save_model('model.json'), and load that file"
        )


def from_object(obj: Any) -> Forest | None:
    """The Forest of an ``xgboost.Booster`` or ``XGBModel``; None for anything else.

    As in their own ``predict`` by default, a Booster uses all trees, and an XGBModel stops at the
    best iteration if there is one. "value" is what the Booster's ``predict`` gives; for an
    XGBClassifier it is always what ``predict_proba`` gives (for two classes, the second's probability).
    """
    kinds = {(kind.__module__.partition(".")[0], kind.__name__) for kind in type(obj).__mro__}
    if kinds & {("xgboost", "Booster"), ("xgboost", "XGBModel")}:
        _refuse_old(f"xgboost.{type(obj).__name__}")
    if ("xgboost", "Booster") in kinds:
        refuse_own_methods(obj, "xgboost", _METHODS)
        return read(obj.save_raw("ubj"), "xgboost.Booster")
    if ("xgboost", "XGBModel") not in kinds:
        return None
    refuse_own_methods(obj, "xgboost", _METHODS)
    source = f"xgboost.{type(obj).__name__}"
    if not obj.__sklearn_is_fitted__():
        raise ModelFormatError("the model is not fitted; call fit first", source=source)
    booster = obj.get_booster()
    refuse_own_methods(booster, "xgboost", _METHODS)
    forest = read(booster.save_raw("ubj"), source)
    missing = _missing(obj.missing, source, forest.has_categories or forest.schema.has_categories)
    if missing is not None:
        forest = replace(forest, schema=replace(forest.schema, missing=missing))
    if ("xgboost", "XGBClassifier") in kinds and forest.link == "argmax":  # which applies softmax itself
        forest = replace(forest, link="softmax")
    best = forest.best_iteration
    if best is None or best + 1 >= forest.n_iterations:
        return forest
    best_trees = forest.select(slice(0, int(forest.iteration_starts[best + 1])))
    return replace(best_trees, iterations_left_out=forest.n_iterations - best - 1)


def _missing(value: Any, source: str, beside_categories: bool) -> float | None:
    """The number that an estimator's ``missing`` declares missing besides NaN, if there is one."""
    if value is None or (isinstance(value, Real) and value != value):
        return None
    why = " for models with categories" if beside_categories else ""
    if not isinstance(value, Real) or isinstance(value, bool):
        why = ", as it is not a number"
    elif isinstance(value, Integral) and abs(int(value)) > 2**53:
        why = ", as XGBoost reads integers that large in two ways"
    if why:
        raise UnsupportedModelError(
            f"{source}: missing={value!r} is not supported{why}; "
            f"replace {value!r} by NaN in the documents, and pass the model's get_booster()"
        )
    return rounded_once(repr(float(value)))  # XGBoost passes it on as a decimal string


def _parse(data: bytes | memoryview) -> Any:
    """JSON or UBJSON to Python objects."""
    if re.match(rb"\{[iUIlL#$]", data):
        with no_collection():
            return ubjson.decode(data, condensed)
    return parse_json(data, condensed, ARRAYS, single=True)


# -- the whole model ---------------------------------------------------------------------------


def _forest(document: Any) -> Forest:
    learner = get(document, "learner", dict)
    booster = get(learner, "gradient_booster", dict)
    kind = get(booster, "name", str)
    if kind not in ("gbtree", "dart"):
        raise UnsupportedModelError(
            f"booster {kind[:100]!r} is not an ensemble of trees; train with booster='gbtree' or 'dart'"
        )
    model = get(get(booster, "gbtree", dict) if kind == "dart" else booster, "model", dict)
    param = get(learner, "learner_model_param", dict)
    n_features = whole(param, "num_feature", 0, INT32_MAX)
    n_outputs = max(1, *(whole(param, key, 0, _MAX_OUTPUTS, 1) for key in ("num_class", "num_target")))
    version = _version(document)
    objective = get(get(learner, "objective", dict), "name", str)
    if objective not in _OBJECTIVES:
        raise UnsupportedModelError(
            f"objective {objective[:100]!r} is not known to gpuqs, so neither is the meaning of its scores; "
            f"known are {', '.join(sorted(_OBJECTIVES))}"
        )
    link, space = _link_and_space(objective, n_outputs, version)
    trees = get(model, "trees", list)
    n_trees = len(trees)
    arrays: dict[str, Any] = forest_arrays(trees if isinstance(trees, list) else trees.tolist(), n_outputs, n_features)
    weight: Any = np.ones(n_trees, np.float32)
    if kind == "dart":
        weight = get(booster, "weight_drop", list)
    elif version >= (3, 3):  # which has no separate booster for DART
        weight = booster.get("weight_drop", model.get("weight_drop", weight))
    weight = numbers(weight, "weight_drop", np.float32)
    weight = weight[:n_trees]  # process_type="update" appends some that belong to no tree
    output = numbers(get(model, "tree_info", list), "tree_info", np.int64)
    for name, values in (("weight_drop", weight), ("tree_info", output)):
        if len(values) != n_trees:
            raise ModelFormatError(f"{len(values)} values for {n_trees} trees", field=name)
    for bad, problem, name in (
        (~np.isfinite(weight), "weight is not finite", "weight_drop"),
        ((output < 0) | (output >= n_outputs), f"output is not in [0, {n_outputs})", "tree_info"),
    ):
        if bad.any():
            raise ModelFormatError(problem, tree=int(np.argmax(bad)), field=name)
    names = get(learner, "feature_names", list, [])
    if not all(isinstance(name, str) for name in names):
        raise ModelFormatError("is not an array of strings", field="feature_names")
    categories, lost = _categories(get(model, "cats", dict, {}), n_features, version >= (3, 4))
    return Forest(
        n_features=n_features,
        **arrays,
        sum_dtype="float32",
        input_dtype="float32",
        integer_dtype="float32",
        n_outputs=n_outputs,
        tree_output=output.astype(np.int32),
        tree_weight=weight.astype(np.float64),
        base_score=_base_margin(param, objective, space, n_outputs, version, n_trees > 0),
        base_first=True,
        link=link,
        schema=Schema(tuple(names), categories, absent=np.nan, library="XGBoost", lost=lost),
        # multi:softmax decides on margins; multi:softprob's users on the probabilities.
        class_rule="raw" if objective == "multi:softmax" else "value",
        iteration_starts=_iterations(model, n_trees, 1 if arrays["leaf_value"].shape[1] > 1 else n_outputs),
        best_iteration=_best_iteration(learner),
        source=".".join(["XGBoost", *map(str, version[:2])]).replace(".", " ", 1),
        objective=objective,
    )


def _version(document: dict[str, Any]) -> tuple[int, ...]:
    version = document.get("version")
    if version is None:
        return ()
    return tuple(numbers(version, "version", np.int64).tolist())


def _link_and_space(objective: str, n_outputs: int, version: tuple[int, ...]) -> tuple[str, str]:
    """The objective's link, and the space of its base score: as in `_OBJECTIVES`, except for several levels."""
    if n_outputs > 1 and objective == "reg:expectileerror":
        return "expectiles", "expectiles"
    if n_outputs > 1 and objective == "reg:quantileerror" and version >= (3, 4):
        return "ascending", "margin"
    return _OBJECTIVES[objective]


def _categories(
    cats: dict[str, Any], n_features: int, whole_texts: bool
) -> tuple[tuple[tuple[Any, ...] | None, ...], tuple[int, ...]]:
    """`Schema.categories` and `Schema.lost` of the data frame that the model was trained on, from 3.1 on."""
    columns = get(cats, "enc", list, [])
    if len(columns) not in (0, n_features):
        raise ModelFormatError(f"{len(columns)} columns for {n_features} features", field="cats.enc")
    found = [_column_categories(column, whole_texts) for column in columns]
    lost = tuple(feature for feature, known in enumerate(found) if known == ())
    known = tuple(values or None for values in found)
    return (known if any(known) else ()), lost


def _column_categories(column: Any, whole_texts: bool) -> tuple[Any, ...] | None:
    """The categories of one column: integers, or strings as UTF-8 bytes one after another.

    None if the column had none, empty if they are lost: before 3.4, XGBoost cuts strings of pandas frames by
    characters, not bytes, and does not say which frames were pandas's. 3.4 keeps the cut strings of older files.
    """
    values = numbers(get(column, "values", list), "cats.enc.values", np.int64)
    offsets = numbers(get(column, "offsets", list, []), "cats.enc.offsets", np.int64)
    if len(offsets) == 0:
        kind = CATEGORY_TYPES.get(whole(column, "type", 0, INT32_MAX, 0), "i8")
        if kind in ("u1", "u2", "u4"):  # UBJSON lacks unsigned types: it has signed numbers of the same bits
            values &= int(np.iinfo(kind).max)
        return tuple(values.tolist()) or None
    if offsets[0] != 0 or offsets[-1] != len(values) or (np.diff(offsets) < 0).any():
        raise ModelFormatError(f"must rise from 0 to {len(values)}", field="cats.enc.offsets")
    text = (values & 0xFF).astype(np.uint8).tobytes()
    parts = [text[a:b] for a, b in pairwise(offsets.tolist())]
    if not (text.isascii() or (whole_texts and len(set(parts)) == len(parts))):
        return ()
    try:
        return tuple(part.decode() for part in parts) or None
    except UnicodeDecodeError:
        return ()


def _iterations(model: dict[str, Any], n_trees: int, trees_at_once: int) -> npt.NDArray[np.int64]:
    """First tree of each boosting iteration, then the number of trees."""
    if "iteration_indptr" in model:
        starts = numbers(model["iteration_indptr"], "iteration_indptr", np.int64)
        if len(starts) == 0 or starts[0] != 0 or starts[-1] != n_trees or (np.diff(starts) < 0).any():
            raise ModelFormatError(f"must rise from 0 to {n_trees}", field="iteration_indptr")
        return starts
    param = get(model, "gbtree_model_param", dict)
    step = trees_at_once * max(1, whole(param, "num_parallel_tree", 0, INT32_MAX, 1))
    return np.append(np.arange(0, n_trees, step), n_trees)


def _best_iteration(learner: dict[str, Any]) -> int | None:
    """The best iteration of early stopping, from the string that XGBoost keeps; users may set any other."""
    text = get(learner, "attributes", dict, {}).get("best_iteration")
    return int(text) if isinstance(text, str) and re.fullmatch(r"\d{1,9}", text, re.ASCII) else None


def _base_margin(
    param: dict[str, Any], objective: str, space: str, n_outputs: int, version: tuple[int, ...], fitted: bool
) -> npt.NDArray[np.float64]:
    """The base score as a margin per output, with XGBoost's own float32 arithmetic."""
    text = param.get("base_score")
    try:  # "5E-1"; from 3.1 on "[2.5E-1,-1E0]"
        values = json.loads(text, parse_float=rounded_once, parse_int=rounded_once) if isinstance(text, str) else text
    except RecursionError:
        refuse_depth(str(text), "base_score")
        raise
    except ValueError:
        values = None
    values = values if isinstance(values, list) else [values]
    base = numbers(values, "base_score", np.float32)
    is_finite = bool(np.isfinite(base).all())
    if len(base) not in (1, n_outputs):
        raise ModelFormatError(f"{len(base)} values for {n_outputs} outputs", field="base_score")
    base = np.broadcast_to(base, n_outputs)
    if not fitted and (3, 1) <= version < (3, 5) and whole(param, "boost_from_average", 0, 1, 1):
        space = "margin"  # a placeholder until the first round, which never came
    if objective == "binary:logitraw" and () < version < (1, 3):
        space = "probability"  # a margin only since 1.3
    if space == "probability":
        if version >= (3, 2):  # which began to keep it away from 0 and 1
            base = np.clip(base, np.float32(1e-6), np.float32(1) - np.float32(1e-6))
        with np.errstate(divide="ignore", over="ignore"):
            odds = np.float32(1) / base - np.float32(1)
        base = -_log(odds)
    elif space == "mean":
        base = _log(base)
    elif space == "expectiles":  # the first, then the inverse softplus of each increase over the one before
        least = np.float32(1e-6)
        with np.errstate(invalid="ignore", over="ignore"):
            gap = np.maximum(np.diff(base) - least, least)
            base = np.append(base[:1], gap + _log(-_by_c("expm1f", -gap)))
    if not (is_finite and np.isfinite(base).all()):
        raise ModelFormatError(f"{str(text)[:100]} is not a base score of {objective}", field="base_score")
    return base.astype(np.float64)


def _log(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """float32 logarithm by the C library, which XGBoost uses too; NumPy's own differs in the last bit."""
    logarithms = _by_c("logf", np.where(values > 0, values, np.float32(1)))
    return np.where(values > 0, logarithms, np.float32(np.nan))


def _by_c(name: str, values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """A float32 function of the C library, applied to each value."""
    function = _c_function(name)
    return np.array([function(value) for value in values.tolist()], np.float32)


@cache
def _c_function(name: str) -> Any:
    import ctypes

    function = getattr(ctypes.CDLL(None), name)
    function.restype, function.argtypes = ctypes.c_float, [ctypes.c_float]
    return function
