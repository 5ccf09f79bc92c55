"""CatBoost's trees, as its JSON holds them -> the canonical arrays of a `Forest`.

A symmetric tree is one list of tests, the lowest bit of the leaf index first: it becomes a
complete binary tree with the test of the highest bit at its root, so that its leaves stand from
left to right in index order. The tests of a forest repeat, so each is read once and then named
by its number; and `Condenser` makes the objects of trees small as soon as they are parsed.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
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
    _feature: list[int] = field(default_factory=list)
    _threshold: list[float] = field(default_factory=list)
    _routing: list[int] = field(default_factory=list)
    _words: list[npt.NDArray[np.uint32]] = field(default_factory=list)
    _coded: dict[int, tuple[tuple[Any, ...], dict[int, list[int]]]] = field(default_factory=dict)

    def test(self, split: Any, tree: int) -> int:
        """Number of the test that a split of the file names."""
        if not isinstance(split, Split):
            return self._read(split, tree)
        if split.number is None:
            split.number = self._read(split.fields, tree)
        return split.number

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
        if key not in self._number:
            self._add(key, tree)
        return self._number[key]

    def _add(self, key: Key, tree: int) -> None:
        kind, index, value = key
        if kind != CTR and index not in (self.floats if kind == FLOAT else self.columns):
            name = "float_feature_index" if kind == FLOAT else "cat_feature_index"
            raise ModelFormatError(f"feature {index} is not in features_info", tree=tree, field=name)
        words = np.zeros(0, np.uint32)
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
        self._number[key] = len(self._feature)
        self._feature.append(column)
        self._threshold.append(0.0 if kind == ONE_HOT else value)
        self._routing.append(routing)
        self._words.append(words)

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
        size = np.array([len(words) for words in self._words], np.int64)
        starts = offsets(size[test])
        if starts[-1] > _MAX_CATEGORY_WORDS:
            raise ModelFormatError(f"category sets take {starts[-1] >> 18} MiB", field="categorical_features")
        sets = [self._words[t] for t in test[size[test] > 0]] if starts[-1] else []
        return {
            "feature": np.array(self._feature, np.int32)[test],
            "threshold": np.array(self._threshold, np.float64)[test],
            "routing": np.array(self._routing, np.uint8)[test],
            "category_offsets": starts,
            "category_words": np.concatenate([np.zeros(0, np.uint32), *sets]),
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


@dataclass(frozen=True)
class Tree:
    """One tree: test, left and right child of its nodes (leaves as ``~i``), values [L, K] and numbers of its leaves."""

    test: npt.NDArray[np.int64]
    left: npt.NDArray[np.int64]
    right: npt.NDArray[np.int64]
    value: npt.NDArray[np.float64]
    leaf_id: npt.NDArray[np.int64]


def symmetric_trees(trees: list[Any], tests: Tests, n_outputs: int) -> Iterator[Tree]:
    """The file's ``oblivious_trees``, as complete binary trees; leaf i is CatBoost's leaf i."""
    shapes: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
    for number, tree in _taken_out(trees):
        splits = splits_of(tree, number)
        if len(splits) > MAX_DEPTH:
            raise ModelFormatError(f"tree is deeper than {MAX_DEPTH}", tree=number, field="splits")
        value = numbers(get(tree, "leaf_values", list, tree=number), "leaf_values", np.float64, tree=number)
        if len(value) != n_outputs << len(splits):
            problem = f"{len(value)} values for {len(splits)} splits and {n_outputs} outputs"
            raise ModelFormatError(problem, tree=number, field="leaf_values")
        test = np.array([tests.test(split, number) for split in reversed(splits)], np.int64)
        if len(splits) not in shapes:
            shapes[len(splits)] = _complete(len(splits))
        level, left, right = shapes[len(splits)]
        yield Tree(test[level], left, right, value.reshape(-1, n_outputs), np.arange(1 << len(splits)))


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


def nested_trees(trees: list[Any], tests: Tests, n_outputs: int) -> Iterator[Tree]:
    """The file's ``trees``: nodes numbered parents first, left before right; leaves from left to right."""
    for number, tree in _taken_out(trees):
        yield _nested(tree, number, tests, n_outputs)


def _taken_out(trees: list[Any]) -> Iterator[tuple[int, Any]]:
    """Number and object of each tree, which leaves the list: its memory is free when it has been read."""
    for number in range(len(trees)):
        tree, trees[number] = trees[number], None
        yield number, tree


def _nested(root: Any, number: int, tests: Tests, n_outputs: int) -> Tree:
    test: list[int] = []
    child: tuple[list[int], list[int]] = ([], [])
    values: list[Any] = []
    ids: list[int] = []
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
            place = ~len(ids)
            value = item[0] if isinstance(item, tuple) else get(item, "value", object, tree=number)
            ids.append(item[1] if isinstance(item, tuple) and len(item) == 2 else len(ids))
            value = value if isinstance(value, list) else [value]
            if len(value) != n_outputs:
                problem = f"leaf {~place}: {len(value)} values for {n_outputs} outputs"
                raise ModelFormatError(problem, tree=number, field="value")
            values += value
        if parent >= 0:
            child[side][parent] = place
    left, right = (np.array(c, np.int64) for c in child)
    value = numbers(values, "value", np.float64, tree=number).reshape(-1, n_outputs)
    return Tree(np.array(test, np.int64), left, right, value, np.array(ids, np.int64) - min(ids))


def forest_arrays(trees: Iterable[Tree], tests: Tests, n_outputs: int) -> dict[str, np.ndarray]:
    """The arrays of a `Forest` over nodes and leaves."""
    test, left, right = (GrowingArray(np.int32) for _ in range(3))
    value, n_nodes, n_leaves = GrowingArray(np.float64), GrowingArray(np.int64), GrowingArray(np.int64)
    leaf_id = GrowingArray(np.int32)
    for tree in trees:
        test.extend(tree.test)
        left.extend(tree.left)
        right.extend(tree.right)
        value.extend(tree.value)
        leaf_id.extend(tree.leaf_id)
        n_nodes.extend([len(tree.test)])
        n_leaves.extend([len(tree.value)])
    return {
        "node_offsets": offsets(n_nodes.array()),
        "leaf_offsets": offsets(n_leaves.array()),
        **tests.node_arrays(test.array()),
        "left": left.array(),
        "right": right.array(),
        "leaf_value": value.array().reshape(-1, n_outputs),
        "leaf_id": leaf_id.array(),
    }
