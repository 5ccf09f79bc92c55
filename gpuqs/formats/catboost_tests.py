"""What CatBoost's trees test: numbers against borders, categories against values, and CTRs against borders.

The tests of a forest repeat, so each is read once and then named by its number.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from itertools import chain
from math import inf, isfinite
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gpuqs.errors import ModelFormatError, UnsupportedModelError
from gpuqs.forest import CATEGORICAL, NAN_LEFT, SET_RIGHT, WHOLE_CODES
from gpuqs.formats.fields import INT32_MAX, get, numbers, whole
from gpuqs.formats.growing import offsets
from gpuqs.text_hashes import are_hashes, name_of_hash

FLOAT: Final = "FloatFeature"
ONE_HOT: Final = "OneHotFeature"
CTR: Final = "OnlineCtr"

_HASHES: Final = 1 << 32
_FLOAT32: Final = struct.Struct("f")
#: Upper limit of 32-bit words in category sets (64 MiB): huge codes in every node of a small file are an attack.
_MAX_CATEGORY_WORDS: Final = 1 << 24
_NO_WORDS: Final = np.zeros(0, np.uint32)
#: A string that CatBoost treats as the same category as the integer.
_WHOLE_NUMBER: Final = re.compile(r"0|-?[1-9]\d{0,19}", re.ASCII)

#: A test as the file names it: kind, feature_index among its kind (for a CTR, its place in the list), border or hash.
Key = tuple[str, int, float]


@dataclass
class Split:
    """A split of the file, one object for all equal ones; ``number`` is its test's number, once that is known."""

    __slots__ = ("fields", "number")
    fields: dict[str, Any]
    number: int | None


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
        Hash -> the strings of that category.
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
    #: Each test's column, threshold, routing bits and category set.
    _known: list[tuple[int, float, int, npt.NDArray[np.uint32]]] = field(default_factory=list)
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
        at = whole(split, "split_index", 0, INT32_MAX, tree=tree)  # CatBoost itself goes by this
        if kind == FLOAT:
            index = whole(split, "float_feature_index", 0, INT32_MAX, tree=tree)
            key: Key = (kind, index, border(split.get("border"), "border", tree))
        elif kind == ONE_HOT:
            index = whole(split, "cat_feature_index", 0, INT32_MAX, tree=tree)
            key = (kind, index, whole(split, "value", -_HASHES, _HASHES - 1, tree=tree) % _HASHES)
        elif kind == CTR:  # the split names it only by its index
            number = self.table[at][1] if at < len(self.table) else -1
            key = (kind, number, border(split.get("border"), "border", tree))
        else:
            raise UnsupportedModelError(f"tree {tree}: splits of type {kind[:100]!r} are not evaluated")
        if at >= len(self.table) or self.table[at] != key:
            raise ModelFormatError(
                "names a different test than the split itself: the file is damaged", tree=tree, field="split_index"
            )
        return self._number_of(key)

    def _number_of(self, key: Key) -> int:
        number = self._number.get(key)
        return self._add(key) if number is None else number

    def _add(self, key: Key) -> int:
        kind, index, value = key
        words = _NO_WORDS
        if kind == FLOAT:
            column, nan_right = self.floats[index]
            routing = 0 if nan_right and value < inf else NAN_LEFT  # NaN counts as inf, which is not above inf
        elif kind == CTR:
            column, routing = self.ctrs[index], NAN_LEFT
        else:
            column, routing = self.columns[index], CATEGORICAL | SET_RIGHT | NAN_LEFT | WHOLE_CODES
            codes = self._categories(index)[1][int(value)]
            words = np.zeros(max(codes) // 32 + 1, np.uint32)
            for code in codes:
                words[code // 32] |= np.uint32(1 << code % 32)
        number = self._number[key] = len(self._known)
        self._known.append((column, 0.0 if kind == ONE_HOT else value, routing, words))
        return number

    def _categories(self, index: int) -> tuple[tuple[Any, ...], dict[int, list[int]]]:
        """The categories of a feature in code order, and the codes of each hash."""
        if index not in self._coded:
            order: list[Any] = []
            codes: dict[int, list[int]] = {}
            values = dict.fromkeys(self.values.get(index, []))
            if self.ctrs or not all(value in self.texts for value in values):
                # Only files saved with their training data hold strings; without them, and for CTRs, tables are hashed.
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
                raise UnsupportedModelError(f"categories such as {order[0]!r} look like hashes; rename them")
            self._coded[index] = tuple(order), codes
        return self._coded[index]

    def hashes(self) -> dict[int, tuple[int, ...]]:
        """By column: the hashes of categories that are tested one by one, in code order."""
        return {self.columns[index]: tuple(dict.fromkeys(values)) for index, values in self.values.items() if values}

    def categories(self, n_features: int) -> tuple[tuple[Any, ...] | None, ...]:
        """`Schema.categories`: what tests compare categorical features with; empty if there are none."""
        of: list[tuple[Any, ...] | None] = [None] * n_features
        for index, column in self.columns.items():
            of[column] = self._categories(index)[0]
        return tuple(of) if self.columns else ()

    def node_arrays(self, test: npt.NDArray[np.int32]) -> dict[str, np.ndarray]:
        """The arrays of a `Forest` over nodes, given each node's test."""
        feature, threshold, routing, words = zip(*self._known, strict=True) if self._known else [()] * 4
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
        raise ModelFormatError("is missing, or is not a number", tree=tree, field=name)
    try:
        rounded: float = _FLOAT32.unpack(_FLOAT32.pack(value))[0]
    except (OverflowError, struct.error):  # the latter for integers beyond float64
        rounded = inf
    if not isfinite(rounded):
        raise ModelFormatError("border is not a finite float32", tree=tree, field=name)
    return rounded


def reals(values: Any, name: str, tree: int | None = None) -> npt.NDArray[np.float64]:
    """A list of real numbers; booleans, which CatBoost reads as 0, are refused."""
    if isinstance(values, list) and bool in set(map(type, values)):
        raise ModelFormatError("holds true or false where a number should be", tree=tree, field=name)
    return numbers(values, name, np.float64, tree=tree)


def tests_of_borders(kind: str, lists: dict[int, list[Any]]) -> list[Key]:
    """A test for each border; ``lists`` holds the borders of float features or CTRs by their numbers.

    CatBoost counts the borders below a value, so they ascend. Only infinite numbers may become infinite borders.
    """
    given = reals(list(chain.from_iterable(lists.values())), "borders")
    with np.errstate(over="ignore"):
        rounded = given.astype(np.float32)
    if np.isnan(given).any() or not np.array_equal(np.isinf(given), np.isinf(rounded)):
        raise ModelFormatError("border is NaN, or outside float32", field="borders")
    number = np.repeat(np.fromiter(lists, np.int64, len(lists)), [len(of_one) for of_one in lists.values()])
    if ((rounded[1:] < rounded[:-1]) & (number[1:] == number[:-1])).any():
        raise ModelFormatError("do not ascend", field="borders")
    return [(kind, of_one, value) for of_one, value in zip(number.tolist(), rounded.tolist(), strict=True)]
