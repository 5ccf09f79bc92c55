"""CatBoost's trees, as its JSON holds them -> the canonical arrays of a `Forest`.

A symmetric tree is one list of tests, the lowest bit of the leaf index first: it becomes a
complete binary tree with the test of the highest bit at its root, so that its leaves stand from
left to right in index order. The tests of a forest repeat, so each is read once and then named
by its number; and `Condenser` makes the objects of trees small as soon as they are parsed.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gpuqs.errors import ModelFormatError, UnsupportedModelError
from gpuqs.forest import CATEGORICAL, NAN_LEFT, SET_RIGHT, WHOLE_CODES
from gpuqs.formats.catboost_ctrs import table
from gpuqs.formats.fields import get, numbers, whole
from gpuqs.formats.growing import GrowingArray, offsets
from gpuqs.text_hashes import are_hashes, name_of_hash

FLOAT: Final = "FloatFeature"
ONE_HOT: Final = "OneHotFeature"
CTR: Final = "OnlineCtr"

_INT32_MAX: Final = int(np.iinfo(np.int32).max)
_HASHES: Final = 1 << 32
_FLOAT32: Final = struct.Struct("f")
#: Most tests of a symmetric tree; CatBoost itself stops at 16.
MAX_DEPTH: Final = 30
#: Most 32-bit words of category sets (64 MiB): huge codes in every node of a small file are an attack.
_MAX_CATEGORY_WORDS: Final = 1 << 24
_NO_WORDS: Final = np.zeros(0, np.uint32)
#: A text that CatBoost takes for the same category as the whole number.
_WHOLE_NUMBER: Final = re.compile(r"0|-?[1-9]\d{0,18}", re.ASCII)

#: A test as the file names it: kind, feature_index among its kind (of a CTR its place in the list), border or hash.
Key = tuple[str, int, float]


@dataclass
class Split:
    """A split of the file, one object for all that are alike; ``number`` is its test's, once that is known."""

    __slots__ = ("fields", "number")
    fields: dict[str, Any]
    number: int | None


class Condenser:
    """Makes the objects of a model's trees small: called with every object of the file when it is parsed.

    Splits become `Split`, inner nodes tuples (split, left, right), leaves tuples (value,), leaf values arrays, and what
    CTRs have counted `CtrTable`.
    What is not as it should be stays as it is.
    """

    def __init__(self) -> None:
        self._splits: dict[Any, Split] = {}

    def __call__(self, obj: dict[str, Any]) -> Any:
        if "split_type" in obj:
            return self._split(obj)
        if "split" in obj and "left" in obj and "right" in obj:
            return obj["split"], obj["left"], obj["right"]
        if "weight" in obj and "value" in obj:
            return (obj["value"],)
        if "hash_map" in obj:
            with suppress(ModelFormatError):  # said again when it is looked for
                return table(obj)
        if "leaf_values" in obj:
            obj.pop("leaf_weights", None)
            with suppress(ModelFormatError):  # said again when the tree's number is known
                obj["leaf_values"] = numbers(obj["leaf_values"], "leaf_values", np.float64)
        return obj

    def _split(self, obj: dict[str, Any]) -> Any:
        try:  # 1, 1.0 and True are equal, and not alike
            return self._splits.setdefault((*obj.items(), *map(type, obj.values())), Split(obj, None))
        except TypeError:  # holds an object or array
            return obj


@dataclass
class Tests:
    """The distinct tests of a forest, numbered as they are met; `test` reads one.

    Parameters
    ----------
    floats : dict
        feature_index of a numeric feature -> (column, whether NaN goes right).
    columns : dict
        feature_index of a categorical feature -> column.
    values : dict
        feature_index of a categorical feature -> the hashes that tests compare it with.
    texts : dict
        Hash -> the texts of that category.
    ctrs : list of int
        The column of each CTR.
    table : list
        What each "split_index" of the file stands for.
    """

    floats: dict[int, tuple[int, bool]] = field(default_factory=dict)
    columns: dict[int, int] = field(default_factory=dict)
    values: dict[int, list[int]] = field(default_factory=dict)
    texts: dict[int, list[str]] = field(default_factory=dict)
    ctrs: list[int] = field(default_factory=list)
    table: list[Key] = field(default_factory=list)
    _number: dict[Key, int] = field(default_factory=dict)
    #: Of each test its column, threshold, routing bits and category set.
    _read_ones: list[tuple[int, float, int, npt.NDArray[np.uint32]]] = field(default_factory=list)
    _coded: dict[int, tuple[tuple[Any, ...], dict[int, list[int]]]] = field(default_factory=dict)

    def test(self, split: Any, tree: int) -> int:
        """Number of the test that a split of the file names."""
        if not isinstance(split, Split):
            return self._read(split, tree)
        if split.number is None:
            split.number = self._read(split.fields, tree)
        return split.number

    def listed(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Numbers of the tests at some places of `table`."""
        number = np.zeros(len(self.table), np.int64)
        for place in np.flatnonzero(np.bincount(places, minlength=len(self.table))).tolist():
            number[place] = self._number_of(self.table[place])
        return number[places]

    def _read(self, split: Any, tree: int) -> int:
        kind = get(split, "split_type", str, tree=tree)
        if kind == FLOAT:
            index = whole(split, "float_feature_index", 0, _INT32_MAX, tree=tree)
            key: Key = (kind, index, border(split.get("border"), "border", tree))
        elif kind == ONE_HOT:
            index = whole(split, "cat_feature_index", 0, _INT32_MAX, tree=tree)
            key = (kind, index, whole(split, "value", -_HASHES, _HASHES - 1, tree=tree) % _HASHES)
        elif kind == CTR:  # of which the split has no name but its index
            at = whole(split, "split_index", 0, _INT32_MAX, tree=tree)
            number = self.table[at][1] if at < len(self.table) else -1
            key = (kind, number, border(split.get("border"), "border", tree))
        else:
            raise UnsupportedModelError(f"tree {tree}: splits of type {kind[:100]!r} are not evaluated")
        if "split_index" in split:  # which CatBoost itself goes by
            at = whole(split, "split_index", 0, _INT32_MAX, tree=tree)
            if at >= len(self.table) or self.table[at] != key:
                raise ModelFormatError(
                    "names another test than the split itself: the file is damaged", tree=tree, field="split_index"
                )
        return self._number_of(key, tree)

    def _number_of(self, key: Key, tree: int | None = None) -> int:
        number = self._number.get(key)
        return self._add(key, tree) if number is None else number

    def _add(self, key: Key, tree: int | None) -> int:
        kind, index, value = key
        if kind != CTR and index not in (self.floats if kind == FLOAT else self.columns):
            name = "float_feature_index" if kind == FLOAT else "cat_feature_index"
            raise ModelFormatError(f"feature {index} is not in features_info", tree=tree, field=name)
        words = _NO_WORDS
        if kind == FLOAT:
            column, nan_right = self.floats[index]
            routing = 0 if nan_right else NAN_LEFT
        elif kind == CTR:
            column, routing = self.ctrs[index], NAN_LEFT
        else:
            column, routing = self.columns[index], CATEGORICAL | SET_RIGHT | NAN_LEFT | WHOLE_CODES
            codes = self._categories(index)[1].get(int(value))
            if codes is None:
                raise ModelFormatError("is not among the feature's values", tree=tree, field="value")
            words = np.zeros(max(codes) // 32 + 1, np.uint32)
            for code in codes:
                words[code // 32] |= np.uint32(1 << code % 32)
        number = self._number[key] = len(self._read_ones)
        self._read_ones.append((column, 0.0 if kind == ONE_HOT else value, routing, words))
        return number

    def _categories(self, index: int) -> tuple[tuple[Any, ...], dict[int, list[int]]]:
        """The categories of a feature in code order, and the codes of each hash."""
        if index not in self._coded:
            order: list[Any] = []
            codes: dict[int, list[int]] = {}
            values = dict.fromkeys(self.values.get(index, []))
            if self.ctrs or not all(value in self.texts for value in values):
                # Texts are in files that were saved with their training data: else tables are hashed, and for CTRs.
                names, numbers = map(name_of_hash, values), enumerate(values)
                self._coded[index] = tuple(names), {value: [number] for number, value in numbers}
                return self._coded[index]
            for value in values:
                codes[value] = []
                for text in self.texts[value]:
                    spellings = [text, int(text)] if _WHOLE_NUMBER.fullmatch(text) else [text]
                    codes[value] += range(len(order), len(order) + len(spellings))
                    order += spellings
            if are_hashes(order):
                raise UnsupportedModelError(f"categories as {order[0]!r} are not told from hashes; call them otherwise")
            self._coded[index] = tuple(order), codes
        return self._coded[index]

    def hashes(self) -> dict[int, tuple[int, ...]]:
        """The hashes of categories that are tested one by one, in code order, by columns."""
        return {self.columns[index]: tuple(dict.fromkeys(values)) for index, values in self.values.items() if values}

    def categories(self, n_features: int) -> tuple[tuple[Any, ...] | None, ...]:
        """`Forest.categories`: what tests compare categorical features with; empty where there are none."""
        of: list[tuple[Any, ...] | None] = [None] * n_features
        for index, column in self.columns.items():
            of[column] = self._categories(index)[0]
        return tuple(of) if self.columns else ()

    def node_arrays(self, test: npt.NDArray[np.int32]) -> dict[str, np.ndarray]:
        """The arrays of a `Forest` over nodes, given each node's test."""
        feature, threshold, routing, words = zip(*self._read_ones, strict=True) if self._read_ones else [()] * 4
        size = np.array([len(of_test) for of_test in words], np.int64)
        starts = offsets(size[test])
        if starts[-1] > _MAX_CATEGORY_WORDS:
            raise ModelFormatError(f"category sets take {starts[-1] >> 18} MiB", field="categorical_features")
        sets = [words[t] for t in test[size[test] > 0]] if starts[-1] else []
        return {
            "feature": np.array(feature, np.int32)[test],
            "threshold": np.array(threshold, np.float64)[test],
            "routing": np.array(routing, np.uint8)[test],
            "category_offsets": starts,
            "category_words": np.concatenate([_NO_WORDS, *sets]),
        }


def border(value: Any, name: str, tree: int | None = None) -> float:
    """A border, as the float32 that CatBoost compares with."""
    if not isinstance(value, (int, float)):
        raise ModelFormatError("is missing, or is no number", tree=tree, field=name)
    try:
        rounded: float = _FLOAT32.unpack(_FLOAT32.pack(value))[0]
    except OverflowError:
        rounded = inf
    if not isfinite(rounded):
        raise ModelFormatError("border is not a finite float32", tree=tree, field=name)
    return rounded


def borders(values: Any) -> list[float]:
    """A list of borders, each as `border` makes it."""
    rounded = numbers(values, "borders", np.float32)
    if not np.isfinite(rounded).all():
        raise ModelFormatError("border is not a finite float32", field="borders")
    listed: list[float] = rounded.tolist()
    return listed


@dataclass(frozen=True)
class Trees:
    """Trees one after another: N nodes, L leaves, T trees, K outputs.

    Parameters
    ----------
    test : int [N]
        Number of each node's test.
    left, right : int [N]
        Children inside the tree, leaf i as ``~i``.
    value : float64 [L, K]
    leaf_id : int [L]
    n_leaves : int64 [T]
    """

    test: np.ndarray
    left: np.ndarray
    right: np.ndarray
    value: npt.NDArray[np.float64]
    leaf_id: np.ndarray
    n_leaves: npt.NDArray[np.int64]

    @property
    def leaf_offsets(self) -> npt.NDArray[np.int64]:
        """The first leaf of each tree, and the end of the last."""
        return offsets(self.n_leaves)

    def arrays(self, tests: Tests) -> dict[str, np.ndarray]:
        """The arrays of a `Forest` over nodes and leaves."""
        return {
            "node_offsets": offsets(self.n_leaves - 1),
            "leaf_offsets": self.leaf_offsets,
            **tests.node_arrays(self.test),
            "left": self.left.astype(np.int32, copy=False),
            "right": self.right.astype(np.int32, copy=False),
            "leaf_value": self.value,
            "leaf_id": self.leaf_id.astype(np.int32, copy=False),
        }


def json_trees(document: dict[str, Any], tests: Tests, n_outputs: int) -> Trees:
    """The trees of a JSON file's document, whose list is emptied as it is read."""
    symmetric = "trees" not in document
    if not symmetric and "oblivious_trees" in document:
        raise ModelFormatError("stands beside oblivious_trees: the file is damaged", field="trees")
    trees = get(document, "oblivious_trees" if symmetric else "trees", list)
    return (_symmetric_trees if symmetric else _nested_trees)(trees, tests, n_outputs)


def _symmetric_trees(trees: list[Any], tests: Tests, n_outputs: int) -> Trees:
    """The file's ``oblivious_trees``."""
    test, depth, values = GrowingArray(np.int64), GrowingArray(np.int64), GrowingArray(np.float64)
    for number, tree in _taken_out(trees):
        splits = splits_of(tree, number)
        if len(splits) > MAX_DEPTH:
            raise ModelFormatError(f"tree is deeper than {MAX_DEPTH}", tree=number, field="splits")
        value = numbers(get(tree, "leaf_values", list, tree=number), "leaf_values", np.float64, tree=number)
        if len(value) != n_outputs << len(splits):
            problem = f"{len(value)} values for {len(splits)} splits and {n_outputs} outputs"
            raise ModelFormatError(problem, tree=number, field="leaf_values")
        test.extend([tests.test(split, number) for split in splits])
        depth.extend([len(splits)])
        values.extend(value)
    return complete_trees(test.array(), depth.array(), values.array().reshape(-1, n_outputs))


def complete_trees(
    test: npt.NDArray[np.int64], depth: npt.NDArray[np.int64], value: npt.NDArray[np.float64]
) -> Trees:
    """Symmetric trees as complete binary ones; leaf i is CatBoost's leaf i.

    Parameters
    ----------
    test : int64 [sum of depths]
        The tests of each tree, that of the lowest bit first.
    depth : int64 [T]
    value : float64 [L, K]
    """
    starts, node_offsets, leaf_offsets = offsets(depth), offsets((1 << depth) - 1), offsets(1 << depth)
    node_test, left, right = (np.empty(node_offsets[-1], np.int32) for _ in range(3))
    leaf_id = np.empty(leaf_offsets[-1], np.int32)
    first = 0
    for end in (np.flatnonzero(np.diff(depth, append=-1)) + 1).tolist():  # trees alike together
        tests = test[starts[first] : starts[end]].reshape(end - first, depth[first])
        level, *children = _complete(int(depth[first]))
        nodes, leaves = (slice(of[first], of[end]) for of in (node_offsets, leaf_offsets))
        node_test[nodes] = tests[:, ::-1][:, level].ravel()
        left[nodes], right[nodes] = (np.tile(child, end - first) for child in children)
        leaf_id[leaves] = np.tile(np.arange(len(level) + 1), end - first)
        first = end
    return Trees(node_test, left, right, value, leaf_id, 1 << depth)


def splits_of(tree: Any, number: int) -> list[Any]:
    """The splits of a symmetric tree; CatBoost writes null where it has none."""
    if isinstance(tree, dict) and tree.get("splits", []) is None:
        return []
    found: list[Any] = get(tree, "splits", list, tree=number)
    return found


def _complete(depth: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Level, left and right child of the nodes of a complete tree, numbered level by level."""
    n_nodes = (1 << depth) - 1
    level = np.repeat(np.arange(depth), 1 << np.arange(depth))
    left = 2 * np.arange(n_nodes) + 1
    left, right = (np.where(child < n_nodes, child, ~(child - n_nodes)) for child in (left, left + 1))
    return level, left, right


def _nested_trees(trees: list[Any], tests: Tests, n_outputs: int) -> Trees:
    """The file's ``trees``: nodes numbered parents first, left before right; leaves from left to right."""
    test, left, right, leaf_id = (GrowingArray(np.int32) for _ in range(4))
    value, n_leaves = GrowingArray(np.float64), GrowingArray(np.int64)
    for number, tree in _taken_out(trees):
        for grown, of_tree in zip((test, left, right, value), _nested(tree, number, tests, n_outputs), strict=True):
            grown.extend(of_tree)
        n_leaves.extend([len(value) // n_outputs - len(leaf_id)])
        leaf_id.extend(np.arange(len(value) // n_outputs - len(leaf_id)))
    node_test, children = test.array(), (left.array(), right.array())
    return Trees(node_test, *children, value.array().reshape(-1, n_outputs), leaf_id.array(), n_leaves.array())


def _taken_out(trees: list[Any]) -> Iterator[tuple[int, Any]]:
    """Number and object of each tree, which leaves the list: its memory is free when it has been read."""
    for number in range(len(trees)):
        tree, trees[number] = trees[number], None
        yield number, tree


def _nested(root: Any, number: int, tests: Tests, n_outputs: int) -> tuple[npt.ArrayLike, ...]:
    """Tests, left and right children of a tree's nodes, and the values of its leaves."""
    test: list[int] = []
    child: tuple[list[int], list[int]] = ([], [])
    values: list[Any] = []
    stack = [(root, -1, 0)]  # what is still to be read, and the node and side that it hangs from
    while stack:
        item, parent, side = stack.pop()
        if isinstance(item, dict) and "split" in item:
            item = (item["split"], *(get(item, key, object, tree=number) for key in ("left", "right")))
        if isinstance(item, tuple) and len(item) == 3:
            place = len(test)
            test.append(tests.test(item[0], number))
            child[0].append(0)
            child[1].append(0)
            for kid, key, s in ((item[2], "right", 1), (item[1], "left", 0)):
                if not isinstance(kid, (dict, tuple)):
                    raise ModelFormatError("is not an object", tree=number, field=key)
                stack.append((kid, place, s))
        else:
            leaf = len(values) // n_outputs
            place = ~leaf
            value = item[0] if isinstance(item, tuple) else get(item, "value", object, tree=number)
            value = value if isinstance(value, list) else [value]
            if len(value) != n_outputs:
                problem = f"leaf {leaf}: {len(value)} values for {n_outputs} outputs"
                raise ModelFormatError(problem, tree=number, field="value")
            values += value
        if parent >= 0:
            child[side][parent] = place
    return test, *child, numbers(values, "value", np.float64, tree=number)
