"""`reference`: a walk in NumPy, readable and slow; the yardstick for every other engine.

    for each tree, from its root down:
        the documents for which the test (x[feature] <= threshold) holds go left, the others right
    score = sum of the exit leaves' values, in tree order
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from gpuqs.cpu_fallback import Machine
from gpuqs.devices.base import Device
from gpuqs.engines.base import Engine, Program
from gpuqs.engines.parameters import NONE_GIVEN, Params
from gpuqs.forest import (
    CATEGORICAL,
    NAN_LEFT,
    NEGATIVE_FRACTION_IS_ZERO,
    SET_RIGHT,
    WHOLE_CODES,
    ZERO_MISSING,
    ZERO_THRESHOLD,
    Forest,
)
from gpuqs.layout.leaves import LeafRanges, LeafValues, leaf_values, number_leaves
from gpuqs.layout.ranks import RankTables


@dataclass(frozen=True)
class ReferenceProgram(Program):
    """A forest for `Reference`.

    Parameters
    ----------
    values : LeafValues
    forest : Forest
        The trees, as they are.
    ranges : LeafRanges
        Which leaves lie under each node, and the position of each leaf.
    """

    forest: Forest
    ranges: LeafRanges


def goes_left(forest: Forest, node: int, x: np.ndarray) -> np.ndarray:
    """Whether each value of ``x`` (float64) passes the node's test; the definition of all tests."""
    routing = int(forest.routing[node])
    missing = np.isnan(x)
    if routing & CATEGORICAL:
        return np.where(missing, bool(routing & NAN_LEFT), _passes_category(forest, node, x))
    if routing & ZERO_MISSING:
        missing = missing | (np.abs(x) <= ZERO_THRESHOLD)
    return np.where(missing, bool(routing & NAN_LEFT), x <= forest.threshold[node])


def _passes_category(forest: Forest, node: int, x: np.ndarray) -> np.ndarray:
    routing = int(forest.routing[node])
    words = forest.category_words[forest.category_offsets[node] : forest.category_offsets[node + 1]]
    lowest = -1.0 if routing & NEGATIVE_FRACTION_IS_ZERO else 0.0
    valid = (x > lowest if routing & NEGATIVE_FRACTION_IS_ZERO else x >= lowest) & (x < 32.0 * len(words))
    code = np.where(valid, x, 0.0).astype(np.int64)
    if routing & WHOLE_CODES:
        valid &= code == x
    found = np.zeros(len(x), bool)
    if len(words):
        found = valid & ((words[code // 32] >> (code % 32).astype(np.uint32)) & 1).astype(bool)
    return ~found if routing & SET_RIGHT else found


def _descend(forest: Forest, tree: int, documents: np.ndarray) -> np.ndarray:
    """Each document's exit leaf, by its number in the forest."""
    first_node, first_leaf = forest.node_offsets[tree], forest.leaf_offsets[tree]
    leaf = np.zeros(len(documents), np.int64)
    root = 0 if forest.node_offsets[tree + 1] > first_node else ~0
    pending = [(root, np.arange(len(documents)))]
    while pending:
        child, rows = pending.pop()
        if child < 0:
            leaf[rows] = first_leaf + ~child
        elif len(rows):
            node = int(first_node + child)
            left = goes_left(forest, node, documents[rows, forest.feature[node]].astype(np.float64))
            pending += [(int(forest.left[node]), rows[left]), (int(forest.right[node]), rows[~left])]
    return leaf


def _linear_outputs(values: LeafValues, leaf: np.ndarray, documents: np.ndarray) -> np.ndarray:
    """Each document's constant and terms, added up in turn; the leaf's value where one of them is missing."""
    first, end = values.linear_bounds[leaf].T
    has_terms, missing = first < end, np.zeros(len(leaf), bool)
    sums = np.zeros(len(leaf))
    sums[has_terms] = values.linear_coefficient[first[has_terms]]
    for term in range(1, int((end - first).max(initial=0))):
        rows = np.flatnonzero(first + term < end)
        at = first[rows] + term
        x = documents[rows, values.linear_feature[at]].astype(np.float64)
        missing[rows] |= np.isnan(x)
        with np.errstate(over="ignore", invalid="ignore"):
            sums[rows] += values.linear_coefficient[at] * x
    return np.where(has_terms & ~missing, sums, values.value[leaf, 0])


class Reference(Engine):
    """The engine that all others are compared with: it walks every tree as `goes_left` defines the tests, in NumPy.

    ``engine="auto"`` takes it only where no other engine can run the forest. It has no parameters, and uses one thread
    whatever it is given.
    """

    name: ClassVar[str] = "reference"
    summary: ClassVar[str] = "a walk in NumPy: readable, slow, the yardstick"

    def supports(self, forest: Forest) -> str | None:
        return None

    def cost(self, forest: Forest, n_documents: int, machine: Machine | None = None) -> None:
        return None

    def prepare(
        self,
        forest: Forest,
        precision: str,
        *,
        ranks: Callable[[], RankTables] | None = None,
        device: Device | None = None,
        machine: Machine | None = None,
        params: Params = NONE_GIVEN,
    ) -> ReferenceProgram:
        self._values(params)
        ranges = number_leaves(forest)
        return ReferenceProgram(leaf_values(forest, ranges.position, precision), forest, ranges)

    def score(self, program: Program, documents: Any, sums: Any, n_threads: int = 1, started: bool = False) -> None:
        values = program.values
        vector = values.value.shape[1] == values.n_outputs
        if not started:
            sums[:] = values.start
        for tree, leaf in enumerate(self._exit_leaves(program, documents)):
            leaf = values.offsets[tree] + leaf
            value = values.value[leaf].astype(sums.dtype)
            if len(values.linear_bounds):
                value[:, 0] = _linear_outputs(values, leaf, documents)
            if vector:
                sums += value
            else:
                sums[:, values.tree_output[tree]] += value[:, 0]

    def leaves(self, program: Program, documents: Any, out: Any, n_threads: int = 1) -> None:
        values = program.values
        for tree, leaf in enumerate(self._exit_leaves(program, documents)):
            out[:, tree] = values.leaf_id[values.offsets[tree] + leaf]

    def _exit_leaves(self, program: Program, documents: np.ndarray) -> Iterator[np.ndarray]:
        """Yield, tree by tree, the position of every document's exit leaf."""
        assert isinstance(program, ReferenceProgram)
        forest, ranges = program.forest, program.ranges
        with np.errstate(over="ignore", invalid="ignore"):
            documents = documents.astype(forest.input_dtype, copy=False)
        for tree in range(forest.n_trees):
            yield ranges.position[_descend(forest, tree, documents)]
