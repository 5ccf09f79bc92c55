"""Treelite models: its JSON dump (``Model.dump_as_json``) and live ``treelite.Model`` objects.

Scores are those of ``treelite.gtil.predict``: sums in the type of the leaf outputs, in tree order, divided
by the number of trees where they are averaged, base scores last. Raw scores have the same bits, except in
float32 models whose base score is no float32 number (XGBoost's Poisson and Gamma): gtil adds it as float64, and
scores differ by at most ``2^-23 (|base score| + |score|)``. gtil takes documents of the leaf outputs' type
only: a float32 model casts documents to float32 here.

Outputs stand as in gtil's answer [rows, targets, classes], the last two axes made one. "raw" of a model that
averages is the sum, undivided. "leaf" is what ``treelite.gtil.predict_leaf`` gives. Treelite has no
classes: "class" is the largest or the likeliest of what it gives.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gpuqs.errors import ModelFormatError, UnsupportedModelError, naming
from gpuqs.forest import CATEGORICAL, NAN_LEFT, SET_RIGHT, Forest
from gpuqs.formats.comparisons import MAX_WORDS, OPERATORS, canonical_tests, category_words
from gpuqs.formats.fields import get, numbers, parse_json, whole
from gpuqs.formats.sklearn_trees import NodeTable, forest_arrays
from gpuqs.schema import Schema

NAME: Final = "Treelite JSON"

#: What is read, by `gpuqs.formats.FEATURES`.
FEATURES: Final = {
    "files": "JSON (`dump_as_json`)",
    "live objects": "`treelite.Model`",
    "missing values": "NaN",
    "categories": "codes",
    "outputs": "one, one per class, vector leaves",
    "raw scores": "same bits as `treelite.gtil`'s where base scores are of the leaves' type",
}

#: Postprocessors: our link, and what the factor inside it is called (negative and inverse: ratio_c).
_LINKS: Final = {
    "identity": ("identity", ""),
    "identity_multiclass": ("identity", ""),
    "signed_square": ("sqrt_signed", ""),
    "hinge": ("hinge", ""),
    "sigmoid": ("sigmoid", "sigmoid_alpha"),
    "multiclass_ova": ("ova_sigmoid", "sigmoid_alpha"),
    "exponential": ("exp", ""),
    "exponential_standard_ratio": ("exp2", "ratio_c"),
    "logarithm_one_plus_exp": ("log1p_exp", ""),
    "softmax": ("softmax", ""),
}

#: Postprocessors that gtil applies to the first class of a target only: the others are for all classes.
_OF_ONE_CLASS: Final = (
    *("signed_square", "hinge", "sigmoid", "exponential"),
    *("exponential_standard_ratio", "logarithm_one_plus_exp"),
)

_TYPES: Final = ("float32", "float64")
_INT32_MAX: Final = int(np.iinfo(np.int32).max)
_MAX_OUTPUTS: Final = 1 << 16
#: Far above any real model; a file may not make us allocate for more.
_MAX_FEATURES: Final = 1 << 24
#: Most values of all nodes: these, and so many for each that is listed; a small file may not ask for more.
_MAX_VALUES: Final = 1 << 20
_MAX_VALUES_OF_LISTED: Final = 256


def recognises(head: bytes) -> bool:
    """Whether a file that begins with ``head`` is JSON that begins with one of Treelite's keys."""
    keys = rb"threshold_type|leaf_output_type|num_feature|task_type|average_tree_output"
    return re.match(rb"\s*\{\s*\"(%s)\"\s*:" % keys, head) is not None


def from_object(obj: Any) -> Forest | None:
    """The Forest of a ``treelite.Model``; None for anything else."""
    kinds = {(kind.__module__.partition(".")[0], kind.__name__) for kind in type(obj).__mro__}
    if ("treelite", "Model") not in kinds:
        return None
    return read(obj.dump_as_json(pretty_print=False).encode(), "treelite.Model")


def read(data: bytes | memoryview, source: str) -> Forest:
    """Read Treelite's JSON.

    Parameters
    ----------
    data : bytes or memoryview
    source : str
        What error messages call the model: its file.

    Raises
    ------
    ModelFormatError
        The model is damaged.
    UnsupportedModelError
        A postprocessor or a form of leaves that is not evaluated.
    """
    with naming(source):
        return _forest(parse_json(data))


def _forest(document: Any) -> Forest:
    dtype = _dtype(document)
    n_targets = whole(document, "num_target", 1, _MAX_OUTPUTS)
    n_classes = _ints(document, "num_class", n_targets, 1, _MAX_OUTPUTS)
    width = int(n_classes.max())
    if n_targets * width > _MAX_OUTPUTS:
        raise ModelFormatError(f"{n_targets} targets of {width} classes are too many", field="num_class")
    #: Which of the outputs [targets x classes] there are.
    real = (np.arange(width) < n_classes[:, None]).ravel()
    trees = get(document, "trees", list)
    if not trees:
        raise ModelFormatError("the model has no trees", field="trees")
    outputs = _outputs_of_trees(document, len(trees), n_targets, width)
    n_features = whole(document, "num_feature", 1, _MAX_FEATURES)
    tables = _tables(trees, outputs, n_targets * width, np.dtype(dtype), real)
    base = numbers(get(document, "base_scores", list), "base_scores", np.float64)
    if len(base) != len(real):
        raise ModelFormatError(f"holds {len(base)} values, not {len(real)}", field="base_scores")
    average = _flag(document, "average_tree_output")
    if average:
        _check_average(outputs, base, real)
    link, scale = _link(document, n_targets, width)
    classes: tuple[Any, ...] = ()
    if n_targets == 1 and width > 1 and get(document, "task_type", str, "") == "kMultiClf":
        classes = tuple(range(width))
    scalar = all(len(places) == 1 for places in outputs)
    return Forest(
        n_features=n_features,
        **forest_arrays(tables),
        sum_dtype=dtype,
        input_dtype=dtype,
        integer_dtype=dtype,
        n_outputs=n_targets * width,
        tree_output=np.array([places[0] if scalar else 0 for places in outputs], np.int32),
        base_score=np.where(real, base, 0.0),
        base_first=False,
        average=average,
        link=link,
        link_scale=scale,
        schema=Schema(absent=np.nan),
        classes=classes,
        source="Treelite",
        objective=f"{get(document, 'task_type', str, '')} {get(document, 'postprocessor', str)}".strip(),
    )


def _dtype(document: Any) -> str:
    """The type of thresholds, documents, leaves and sums."""
    get(document, "trees", list)
    if "threshold_type" not in document:
        raise ModelFormatError("is missing: dump the model with a newer Treelite", field="threshold_type")
    kinds = {get(document, key, str) for key in ("threshold_type", "leaf_output_type")}
    if len(kinds) > 1 or not kinds <= set(_TYPES):
        shown = " and ".join(sorted(kind[:20] for kind in kinds))
        raise ModelFormatError(f"{shown}: both must be float32, or both float64", field="threshold_type")
    return kinds.pop()


def _flag(obj: Any, key: str, tree: int | None = None) -> bool:
    value = obj.get(key, False)
    if not isinstance(value, bool):
        raise ModelFormatError("is not true or false", tree=tree, field=key)
    return value


def _ints(document: Any, key: str, length: int, low: int, high: int) -> npt.NDArray[np.int64]:
    values = numbers(get(document, key, list), key, np.int64)
    if len(values) != length:
        raise ModelFormatError(f"holds {len(values)} values, not {length}", field=key)
    if ((values < low) | (values > high)).any():
        raise ModelFormatError(f"holds values outside of [{low}, {high}]", field=key)
    return values


def _outputs_of_trees(document: Any, n_trees: int, n_targets: int, width: int) -> list[npt.NDArray[np.int64]]:
    """Outputs that each tree's leaf values add to, in their order; -1 stands for all targets or classes."""
    shape = tuple(_ints(document, "leaf_vector_shape", 2, 1, _MAX_OUTPUTS).tolist())
    target = _ints(document, "target_id", n_trees, -1, n_targets - 1)
    of_class = _ints(document, "class_id", n_trees, -1, width - 1)
    everything = np.arange(n_targets * width).reshape(n_targets, width)
    known: dict[tuple[int, int], npt.NDArray[np.int64]] = {}
    for tree, (t, c) in enumerate(zip(target.tolist(), of_class.tolist(), strict=True)):
        if (t, c) not in known:
            places = everything[slice(None) if t < 0 else slice(t, t + 1), slice(None) if c < 0 else slice(c, c + 1)]
            known[t, c] = places.ravel()
            if places.shape != shape:
                problem = f"leaves of shape {shape}, where target {t} and class {c} take {places.shape}"
                raise ModelFormatError(problem, tree=tree, field="leaf_vector_shape")
    return [known[t, c] for t, c in zip(target.tolist(), of_class.tolist(), strict=True)]


def _check_average(
    outputs: list[npt.NDArray[np.int64]], base: npt.NDArray[np.float64], real: npt.NDArray[np.bool_]
) -> None:
    """Averages that a Forest can express: over as many trees for each output, and nothing added to them."""
    n_trees = np.bincount(np.concatenate(outputs), minlength=len(real))
    scalar = all(len(places) == 1 for places in outputs)
    if (n_trees[real] != (len(outputs) / len(real) if scalar else len(outputs))).any():
        raise UnsupportedModelError("averages over different numbers of trees for the outputs are not evaluated")
    if base[real].any():
        raise UnsupportedModelError(
            "base scores added to an average (average_tree_output) are not evaluated; add them to the leaves instead"
        )


def _link(document: Any, n_targets: int, width: int) -> tuple[str, float]:
    name = get(document, "postprocessor", str)
    if name not in _LINKS:
        raise UnsupportedModelError(
            f"postprocessor {name[:40]!r} is not known, and so not what the scores mean; known are {', '.join(_LINKS)}"
        )
    if (name in _OF_ONE_CLASS and width > 1) or (name == "softmax" and n_targets > 1):
        raise UnsupportedModelError(
            f"postprocessor {name!r} of {n_targets} targets of {width} classes is not evaluated; use 'identity' and "
            "apply it yourself"
        )
    link, factor = _LINKS[name]
    if not factor:
        return link, 1.0
    (scale,) = numbers([document.get(factor)], factor, np.float64).tolist()
    if not 0.0 < scale < np.inf:
        raise ModelFormatError("is not a positive number", field=factor)
    return link, -1.0 / scale if factor == "ratio_c" else scale


# -- trees ---------------------------------------------------------------------------------------


def _tables(
    trees: list[Any],
    outputs: list[npt.NDArray[np.int64]],
    n_outputs: int,
    dtype: np.dtype,
    real: npt.NDArray[np.bool_],
) -> list[NodeTable]:
    scalar = all(len(places) == 1 for places in outputs)
    tables, n_values, n_listed, n_words = [], 0, 0, 0
    for number, (tree, places) in enumerate(zip(trees, outputs, strict=True)):
        nodes = get(tree, "nodes", list, tree=number)
        n_values += len(nodes) * n_outputs
        n_listed += len(nodes) * len(places)
        if not scalar and n_values > _MAX_VALUES + _MAX_VALUES_OF_LISTED * n_listed:
            raise ModelFormatError("leaf values take too much memory", tree=number, field="leaf_vector_shape")
        table = _table(nodes, number, len(places), dtype)
        n_words += sum(map(len, table.sets))
        if n_words > MAX_WORDS:
            raise ModelFormatError("category sets take too much memory", tree=number, field="category_list")
        if not scalar:
            value = np.zeros((len(nodes), n_outputs))
            value[:, places] = table.value
            value[:, ~real] = 0.0  # gtil adds nothing to classes that a target has not
            table = NodeTable(**{**vars(table), "value": value})
        tables.append(table)
    return tables


def _table(nodes: list[Any], tree: int, width: int, dtype: np.dtype) -> NodeTable:
    n = len(nodes)
    for place, node in enumerate(nodes):
        if not isinstance(node, dict) or whole(node, "node_id", 0, _INT32_MAX, tree=tree) != place:
            raise ModelFormatError(f"node {place} is not numbered so", tree=tree, field="node_id")
    leaf = np.array(["leaf_value" in node for node in nodes], bool)
    if not n or (leaf[0] and n > 1):
        raise ModelFormatError("the first node is missing, or is a leaf beside others", tree=tree, field="nodes")
    leaves, inner = [nodes[i] for i in np.flatnonzero(leaf)], [nodes[i] for i in np.flatnonzero(~leaf)]

    def of_inner(key: str, kind: type) -> list[Any]:
        return [get(node, key, kind, tree=tree) for node in inner]

    def places(key: str, high: int) -> npt.NDArray[np.int64]:
        values = np.zeros(n, np.int64)
        values[~leaf] = [whole(node, key, 0, high, tree=tree) for node in inner]
        return values

    kinds = of_inner("node_type", str)
    bad = next((kind for kind in kinds if kind not in ("numerical_test_node", "categorical_test_node")), None)
    if bad is not None:
        raise ModelFormatError(f"{bad[:40]!r} is not known", tree=tree, field="node_type")
    numeric = np.zeros(n, bool)
    numeric[~leaf] = [kind == "numerical_test_node" for kind in kinds]
    tested = [nodes[i] for i in np.flatnonzero(numeric)]
    operator = np.full(n, "<=")
    operator[numeric] = [_operator(node, tree) for node in tested]
    value = np.zeros(n, dtype)
    value[numeric] = numbers([node.get("threshold") for node in tested], "threshold", dtype, tree=tree)
    default_left = np.zeros(n, bool)
    default_left[~leaf] = [_flag(node, "default_left", tree) for node in inner]
    left, right = places("left_child", n - 1), places("right_child", n - 1)
    tests = canonical_tests(operator, value, default_left, tree)
    routing = tests.routing
    sets = dict(zip(np.flatnonzero(routing & CATEGORICAL).tolist(), tests.sets, strict=True))
    n_words = sum(map(len, tests.sets))
    for place in np.flatnonzero(~leaf & ~numeric).tolist():
        set_right = _flag(nodes[place], "category_list_right_child", tree)
        routing[place] = CATEGORICAL | (SET_RIGHT if set_right else 0) | (NAN_LEFT if default_left[place] else 0)
        codes = _category_codes(nodes[place], tree, dtype)
        n_words += int(codes.max(initial=-1)) // 32 + 1
        if n_words > MAX_WORDS:
            problem = "the sets take too much memory: number the categories densely from 0"
            raise ModelFormatError(problem, tree=tree, field="category_list")
        sets[place] = category_words(codes)
    return NodeTable(
        leaf=leaf,
        left=np.where(tests.swap, right, left),
        right=np.where(tests.swap, left, right),
        feature=places("split_feature_id", _MAX_FEATURES),
        threshold=tests.threshold,
        routing=routing,
        value=_leaf_values(leaves, leaf, width, dtype, tree),
        sets=tuple(sets[place] for place in sorted(sets)),
    )


def _operator(node: dict[str, Any], tree: int) -> str:
    operator = get(node, "comparison_op", str, tree=tree)
    if operator not in OPERATORS:
        raise ModelFormatError(f"{operator[:20]!r} is not one of {OPERATORS}", tree=tree, field="comparison_op")
    return operator


def _category_codes(node: dict[str, Any], tree: int, dtype: np.dtype) -> npt.NDArray[np.int64]:
    codes = numbers(get(node, "category_list", list, tree=tree), "category_list", np.int64, tree=tree)
    if ((codes < 0) | (codes >= 1 << 32)).any():
        raise ModelFormatError("holds a code outside of uint32", tree=tree, field="category_list")
    # Treelite takes larger values for no category: float32 has no odd ones above.
    return codes[codes <= 1 << 24] if dtype == np.float32 else codes


def _leaf_values(
    leaves: list[Any], leaf: npt.NDArray[np.bool_], width: int, dtype: np.dtype, tree: int
) -> npt.NDArray[np.float64]:
    """Values of all nodes [n, width]; zeros for nodes that are no leaves."""
    values = [node["leaf_value"] for node in leaves]
    if any(isinstance(value, list) for value in values):
        if not all(isinstance(value, list) and len(value) == width for value in values):
            raise ModelFormatError(f"is not {width} numbers at each leaf", tree=tree, field="leaf_value")
        values = list(chain.from_iterable(values))
    held = numbers(values, "leaf_value", dtype, tree=tree)
    if len(held) != len(leaves) * width:
        raise ModelFormatError(f"is not {width} numbers at each leaf", tree=tree, field="leaf_value")
    out = np.zeros((len(leaf), width))
    out[leaf] = held.reshape(-1, width)
    return out
