"""Treelite's trees, as its JSON holds them -> tables of nodes.

A tree's objects are turned into `Columns`, which take a fraction of their memory, as soon as they are parsed.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gpuqs.errors import ModelFormatError, UnsupportedModelError
from gpuqs.forest import CATEGORICAL, NAN_LEFT, SET_RIGHT
from gpuqs.formats.comparisons import MAX_WORDS, OPERATORS, canonical_tests, category_words
from gpuqs.formats.fields import INT32_MAX, get, numbers, whole
from gpuqs.formats.growing import offsets
from gpuqs.formats.sklearn_trees import NodeTable

#: Far above any real model; a file may not make us allocate for more.
MAX_FEATURES: Final = 1 << 24
#: Upper limit of the values of all nodes: _MAX_VALUES plus _MAX_VALUES_OF_LISTED for each listed one, so that a small
#: file cannot ask for more.
_MAX_VALUES: Final = 1 << 20
_MAX_VALUES_OF_LISTED: Final = 256
#: A node of the file; ``operator`` is the place of a numeric node's comparison among `OPERATORS`.
_NODE: Final = np.dtype(
    [(name, "?") for name in ("leaf", "numeric", "default_left")]
    + [("operator", "u1"), *((name, "i4") for name in ("left", "right", "feature")), ("threshold", "f8")]
)
#: Trees are converted together once they have about this many values: few calls, and little temporary memory.
_BLOCK_VALUES: Final = 1 << 15
#: A tree's memory besides its values, counted in values.
_TREE_VALUES: Final = 64


def flag(obj: Any, key: str, tree: int | None = None) -> bool:
    """A field that is true or false; false if it is absent."""
    value = obj.get(key, False)
    if not isinstance(value, bool):
        raise ModelFormatError("is not true or false", tree=tree, field=key)
    return value


@dataclass(frozen=True)
class Columns:
    """The nodes of a tree of the file, as arrays; n nodes.

    Parameters
    ----------
    nodes : _NODE [n]
    leaf_value : float64 [leaves, width]
    categories : tuple
        (node, its category list, whether its codes go right) of each node that tests categories.
    """

    __slots__ = ("categories", "leaf_value", "nodes")
    nodes: np.ndarray
    leaf_value: npt.NDArray[np.float64]
    categories: tuple[tuple[int, npt.NDArray[np.int64], bool], ...]


def condensed(obj: dict[str, Any]) -> dict[str, Any]:
    """An object of the file; a tree's nodes as `Columns`, which take a fraction of the memory, if they are sound."""
    if isinstance(obj.get("nodes"), list):
        with suppress(ModelFormatError):  # raised again when the tree's number is known
            obj["nodes"] = _columns(obj["nodes"], None)
    return obj


def tables_of(
    trees: list[Any],
    outputs: list[npt.NDArray[np.int64]],
    n_outputs: int,
    dtype: np.dtype,
    real: npt.NDArray[np.bool_],
) -> Iterator[NodeTable]:
    """The tree tables; the list is emptied as they are made."""
    scalar = all(len(places) == 1 for places in outputs)
    n_values, n_listed, n_words, block, room = 0, 0, 0, [], _BLOCK_VALUES
    for number, places in enumerate(outputs):
        tree, trees[number] = trees[number], None
        columns = tree.get("nodes") if isinstance(tree, dict) else None
        if not isinstance(columns, Columns):
            columns = _columns(get(tree, "nodes", list, tree=number), number)
        n_values += len(columns.nodes) * n_outputs
        n_listed += len(columns.nodes) * len(places)
        if not scalar and n_values > _MAX_VALUES + _MAX_VALUES_OF_LISTED * n_listed:
            raise ModelFormatError("leaf values take too much memory", tree=number, field="leaf_vector_shape")
        block.append(columns)
        room -= len(columns.nodes) * (1 if scalar else n_outputs) + _TREE_VALUES
        last = number + 1 == len(outputs)
        if not last and room > 0 and (scalar or outputs[number + 1] is places):
            continue
        table = _table_of_block(block, number + 1 - len(block), len(places), dtype)
        block, room = [], _BLOCK_VALUES
        n_words += sum(map(len, table.sets))
        if n_words > MAX_WORDS:
            raise ModelFormatError("category sets take too much memory", tree=number, field="category_list")
        if not scalar:
            value = np.zeros((len(table.leaf), n_outputs))
            value[:, places] = table.value
            value[:, ~real] = 0.0  # gtil adds nothing to classes that a target does not have
            table = NodeTable(**{**vars(table), "value": value})
        yield table


def _table_of_block(block: list[Columns], first: int, width: int, dtype: np.dtype) -> NodeTable:
    """The table of some trees, the first of which has the number ``first``."""
    for number, columns in enumerate(block, first):
        if columns.leaf_value.shape[1] != width:
            raise ModelFormatError(f"is not {width} numbers at each leaf", tree=number, field="leaf_value")
    starts = offsets([len(columns.nodes) for columns in block])
    categories = [
        (start + place, codes, right)
        for start, columns in zip(starts.tolist(), block, strict=False)
        for place, codes, right in columns.categories
    ]
    joined = Columns(
        np.frombuffer(b"".join([columns.nodes.data for columns in block]), _NODE),
        np.concatenate([columns.leaf_value for columns in block]),
        tuple(categories),
    )
    try:
        return _table(joined, starts, first, dtype)
    except (ModelFormatError, UnsupportedModelError):  # in which tree?
        for number, columns in enumerate(block, first):
            _table(columns, np.array([0, len(columns.nodes)]), number, dtype)
        raise


def _columns(nodes: list[Any], tree: int | None) -> Columns:
    n = len(nodes)
    if not all(isinstance(node, dict) for node in nodes):
        raise ModelFormatError("is not an array of objects", tree=tree, field="nodes")

    def wholes(key: str, of: list[dict[str, Any]], high: int) -> npt.NDArray[np.int64]:
        values: list[Any] = [node.get(key) for node in of]
        if {*map(type, values)} <= {int} and 0 <= min(values, default=0) <= max(values, default=0) <= high:
            return np.frombuffer(array("q", values), np.int64)
        return np.array([whole(node, key, 0, high, tree=tree) for node in of], np.int64)  # strings; or raises for which

    places = wholes("node_id", nodes, INT32_MAX)
    if (places != np.arange(n)).any():
        problem = f"node {int(np.argmax(places != np.arange(n)))} has a different id"
        raise ModelFormatError(problem, tree=tree, field="node_id")
    leaf = np.array(["leaf_value" in node for node in nodes], bool)
    if not n or (leaf[0] and n > 1):
        raise ModelFormatError("the first node is missing, or is a leaf among others", tree=tree, field="nodes")
    inner = [node for node in nodes if "leaf_value" not in node]
    kinds = [get(node, "node_type", str, tree=tree) for node in inner]
    bad = next((kind for kind in kinds if kind not in ("numerical_test_node", "categorical_test_node")), None)
    if bad is not None:
        raise ModelFormatError(f"{bad[:40]!r} is not known", tree=tree, field="node_type")
    numeric = ~leaf
    numeric[~leaf] = [kind == "numerical_test_node" for kind in kinds]
    tested = [node for node, kind in zip(inner, kinds, strict=True) if kind == "numerical_test_node"]
    out = np.zeros(n, _NODE)
    out["leaf"], out["numeric"] = leaf, numeric
    out["default_left"][~leaf] = [flag(node, "default_left", tree) for node in inner]
    for name, key, high in (
        ("left", "left_child", n - 1),
        ("right", "right_child", n - 1),
        ("feature", "split_feature_id", MAX_FEATURES),
    ):
        out[name][~leaf] = wholes(key, inner, high)
    out["operator"][numeric] = [_operator(node, tree) for node in tested]
    thresholds = [node.get("threshold") for node in tested]
    out["threshold"][numeric] = numbers(thresholds, "threshold", np.float64, tree=tree)
    categories = tuple(
        (
            place,
            numbers(get(nodes[place], "category_list", list, tree=tree), "category_list", np.int64, tree=tree),
            flag(nodes[place], "category_list_right_child", tree),
        )
        for place in np.flatnonzero(~leaf & ~numeric).tolist()
    )
    values = [node["leaf_value"] for node in nodes if "leaf_value" in node]
    return Columns(out, _leaf_values(values, tree), categories)


def _table(columns: Columns, starts: npt.NDArray[np.int64], tree: int, dtype: np.dtype) -> NodeTable:
    """The table of some trees; ``tree`` is for error messages."""
    nodes = columns.nodes
    leaf, default_left = np.ascontiguousarray(nodes["leaf"]), np.ascontiguousarray(nodes["default_left"])
    operator = np.array(OPERATORS)[np.where(nodes["numeric"], nodes["operator"], OPERATORS.index("<="))]
    tests = canonical_tests(operator, numbers(nodes["threshold"], "threshold", dtype, tree=tree), default_left, tree)
    routing = tests.routing
    sets = dict(zip(np.flatnonzero(routing & CATEGORICAL).tolist(), tests.sets, strict=True))
    n_words = sum(map(len, tests.sets))
    for place, listed, set_right in columns.categories:
        routing[place] = CATEGORICAL | (SET_RIGHT if set_right else 0) | (NAN_LEFT if default_left[place] else 0)
        codes = _category_codes(listed, tree, dtype)
        n_words += int(codes.max(initial=-1)) // 32 + 1
        if n_words > MAX_WORDS:
            problem = "the sets take too much memory: number the categories densely from 0"
            raise ModelFormatError(problem, tree=tree, field="category_list")
        sets[place] = category_words(codes)
    value = np.zeros((len(leaf), columns.leaf_value.shape[1]))
    value[leaf] = numbers(columns.leaf_value, "leaf_value", dtype, tree=tree)
    return NodeTable(
        leaf=leaf,
        left=np.where(tests.swap, nodes["right"], nodes["left"]),
        right=np.where(tests.swap, nodes["left"], nodes["right"]),
        feature=nodes["feature"],
        threshold=tests.threshold,
        routing=routing,
        value=value,
        sets=tuple(sets[place] for place in sorted(sets)),
        starts=starts,
    )


def _operator(node: dict[str, Any], tree: int | None) -> int:
    operator = get(node, "comparison_op", str, tree=tree)
    if operator not in OPERATORS:
        raise ModelFormatError(f"{operator[:20]!r} is not one of {OPERATORS}", tree=tree, field="comparison_op")
    return OPERATORS.index(operator)


def _category_codes(codes: npt.NDArray[np.int64], tree: int, dtype: np.dtype) -> npt.NDArray[np.int64]:
    if ((codes < 0) | (codes >= 1 << 32)).any():
        raise ModelFormatError("holds a code outside of uint32", tree=tree, field="category_list")
    # Treelite treats larger values as no category: float32 cannot hold odd integers above.
    return codes[codes <= 1 << 24] if dtype == np.float32 else codes


def _leaf_values(values: list[Any], tree: int | None) -> npt.NDArray[np.float64]:
    """Values of all leaves [leaves, width]."""
    width = 1
    if any(isinstance(value, list) for value in values):
        width = len(values[0]) if isinstance(values[0], list) else 0
        if not width or not all(isinstance(value, list) and len(value) == width for value in values):
            raise ModelFormatError("is not the same number of values at each leaf", tree=tree, field="leaf_value")
        values = list(chain.from_iterable(values))
    return numbers(values, "leaf_value", np.float64, tree=tree).reshape(-1, width)
