"""Columns: the distinct ways in which a forest reads a document's features.

A column is a feature together with how it is read, so that engines see only threshold tests and one
kind of missing value, NaN:

- as it is;
- with ``|x| <= 1e-35`` turned into NaN, where LightGBM counts zeros as missing;
- through a category set: 0 where the category goes left, 1 where it goes right. Nodes with the same
  set share the column, and test ``x <= 0.5``.

A feature may give several columns; one that no node tests gives none.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from gpuqs.cpu_fallback.making import counts, distinct
from gpuqs.forest import (
    CATEGORICAL,
    NEGATIVE_FRACTION_IS_ZERO,
    SET_RIGHT,
    WHOLE_CODES,
    ZERO_MISSING,
    Forest,
)
from gpuqs.forest_checks import ALL_ROUTING
from gpuqs.forks import lazy
from gpuqs.kept import once_each
from gpuqs.layout.category_tables import READING, CategoryTables, build_category_tables

#: The routing bits that say how a categorical node reads its feature.
_OF_CATEGORIES = CATEGORICAL | SET_RIGHT | NEGATIVE_FRACTION_IS_ZERO | WHOLE_CODES


@dataclass(frozen=True)
class Columns:
    """The columns of a forest by feature and by how it is read, those of category sets last; C columns, N nodes.

    Parameters
    ----------
    feature : int32 [C]
        Feature that the column reads.
    routing : uint8 [C]
        How it is read: `gpuqs.forest.ZERO_MISSING`; or `CATEGORICAL` with `SET_RIGHT`,
        `NEGATIVE_FRACTION_IS_ZERO` and `WHOLE_CODES`; or 0.
    set_offsets : int64 [C + 1]
        Column c's category set is ``set_words[set_offsets[c]:set_offsets[c + 1]]``.
    set_words : uint32 [...]
        Bitsets, as in `Forest.category_words`.
    tables : CategoryTables
        The same sets as tables.
    of_node : int32 [N]
        Column that each node tests.
    threshold : float64 [N]
        What each node compares its column with: left iff ``x <= threshold``.
    """

    feature: npt.NDArray[np.int32]
    routing: npt.NDArray[np.uint8]
    set_offsets: npt.NDArray[np.int64]
    set_words: npt.NDArray[np.uint32]
    tables: CategoryTables
    of_node: npt.NDArray[np.int32]
    threshold: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.feature)

    @lazy
    def n_nodes(self) -> npt.NDArray[np.int64]:
        """How many nodes test each column."""
        n: npt.NDArray[np.int64] = counts(self.of_node, len(self))
        return n

    @property
    def n_numeric(self) -> int:
        """Columns before the first categorical one."""
        return int(np.count_nonzero((self.routing & CATEGORICAL) == 0))


@once_each  # every engine calls it
def find_columns(forest: Forest) -> Columns:
    """The distinct (feature, how it is read) pairs that the forest's nodes test; categorical columns come last."""
    if not (forest.routing & (CATEGORICAL | ZERO_MISSING)).any():  # all features are read as they are
        first, of_node = forest.distinct_features
        as_it_is, no_sets = np.zeros(len(first), np.uint8), np.zeros(len(first) + 1, np.int64)
        plain = forest.feature[first], as_it_is, no_sets, np.zeros(0, np.uint32)
        return Columns(*plain, build_category_tables(*plain), of_node, forest.threshold)
    categorical = (forest.routing & CATEGORICAL) != 0
    how = forest.routing & ZERO_MISSING
    key = forest.feature.astype(np.int64)
    if categorical.any():
        how = np.where(categorical, forest.routing & _OF_CATEGORIES, how)
        sets = _number_sets(forest, np.flatnonzero(categorical))
        sizes = (2, int(key.max(initial=0)) + 1, READING + 1, int(sets.max(initial=0)) + 1, ALL_ROUTING + 1)
        if prod(sizes) > np.iinfo(np.int64).max:
            raise ValueError("the forest has too many category sets and features to tell its columns apart")
        key = ((categorical * np.int64(sizes[1]) + key) * sizes[2] + (how & READING)) * sizes[3] + sets
    key *= ALL_ROUTING + 1
    key += how
    first, of_node = distinct(key)
    starts, ends = forest.category_offsets[first], forest.category_offsets[first + 1]
    n_words = np.where(categorical[first], ends - starts, 0)
    offsets = np.concatenate([[0], np.cumsum(n_words)])
    word = np.repeat(starts - offsets[:-1], n_words) + np.arange(offsets[-1])
    feature, routing, words = forest.feature[first], how[first].astype(np.uint8), forest.category_words[word]
    return Columns(
        feature=feature,
        routing=routing,
        set_offsets=offsets,
        set_words=words,
        tables=build_category_tables(feature, routing, offsets, words),
        of_node=of_node,
        threshold=np.where(categorical, 0.5, forest.threshold) if categorical.any() else forest.threshold,
    )


def _number_sets(forest: Forest, nodes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """A number for each category set, the same for equal ones; 0 for the other nodes."""
    data = forest.category_words.tobytes()
    bounds = 4 * forest.category_offsets
    sets = [data[start:end] for start, end in zip(bounds[nodes].tolist(), bounds[nodes + 1].tolist(), strict=True)]
    numbers = {words: number for number, words in enumerate(dict.fromkeys(sets), 1)}
    of_node = np.zeros(forest.n_nodes, np.int64)
    of_node[nodes] = [numbers[words] for words in sets]
    return of_node


def round_down(threshold: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Largest float32 not above each float64: ``x <= t`` stays true or false for every float32 x."""
    with np.errstate(over="ignore"):
        nearest = threshold.astype(np.float32)
        above = nearest.astype(np.float64) > threshold
        nearest[above] = np.nextafter(nearest[above], np.float32(-np.inf))
    return nearest
