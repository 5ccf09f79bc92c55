"""`reference`: a walk in NumPy, readable and slow; the yardstick for every other engine.

    for some trees and all documents, from the trees' roots down, until all are at leaves:
        a document for which its node's test (x[feature] <= threshold) holds goes left, others right
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

#: Upper limit of (tree, document) pairs that descend at a time, unless one tree has more.
_DOCUMENTS_TOGETHER = 1 << 17


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


def goes_left(forest: Forest, node: int | np.ndarray, x: np.ndarray) -> np.ndarray:
    """Whether each value of ``x`` (float64) passes its node's test; the definition of all tests.

    Parameters
    ----------
    forest : Forest
    node : int or int64 [values]
        One node for all values, or one for each.
    x : float64 [values]

    Returns
    -------
    bool [values]
    """
    routing = np.broadcast_to(forest.routing[node], x.shape)
    categorical, missing = routing & CATEGORICAL != 0, np.isnan(x)
    missing |= ~categorical & (routing & ZERO_MISSING != 0) & (np.abs(x) <= ZERO_THRESHOLD)
    passes = x <= forest.threshold[node]
    if categorical.any():
        passes[categorical] = _passes_category(forest, np.broadcast_to(node, x.shape)[categorical], x[categorical])
    left: np.ndarray = np.where(missing, routing & NAN_LEFT != 0, passes)
    return left


def _passes_category(forest: Forest, node: np.ndarray, x: np.ndarray) -> np.ndarray:
    routing, first = forest.routing[node], forest.category_offsets[node]
    from_zero = np.where(routing & NEGATIVE_FRACTION_IS_ZERO, x > -1, x >= 0)
    n_words = forest.category_offsets[node + 1] - first
    valid = from_zero & (x < 32.0 * n_words) & (n_words > 0)
    code = np.where(valid, x, 0.0).astype(np.int64)
    valid &= (routing & WHOLE_CODES == 0) | (code == x)
    found = np.zeros(len(x), bool)
    code, first = code[valid], first[valid]
    found[valid] = forest.category_words[first + code // 32] >> (code % 32).astype(np.uint32) & 1
    passes: np.ndarray = found != (routing & SET_RIGHT != 0)
    return passes


def _descend(forest: Forest, trees: slice, documents: np.ndarray) -> np.ndarray:
    """The exit leaf [trees, documents] of each document, by its number in the forest."""
    n, n_trees = len(documents), trees.stop - trees.start
    first_node, first_leaf = (np.repeat(offsets[trees], n) for offsets in (forest.node_offsets, forest.leaf_offsets))
    row = np.tile(np.arange(n), n_trees)
    child = np.repeat(np.where(np.diff(forest.node_offsets)[trees] > 0, 0, ~0), n)
    pending = np.arange(len(child))
    while len(pending := pending[child[pending] >= 0]):
        node = first_node[pending] + child[pending]
        left = goes_left(forest, node, documents[row[pending], forest.feature[node]].astype(np.float64))
        child[pending] = np.where(left, forest.left[node], forest.right[node])
    leaf: np.ndarray = first_leaf + ~child
    return leaf.reshape(n_trees, n)


def _linear_outputs(values: LeafValues, leaf: np.ndarray, documents: np.ndarray) -> np.ndarray:
    """The constant and terms of each document's leaf, added in order; the leaf's value if a feature is missing."""
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

    ``engine="auto"`` uses it only if no other engine can run the forest. It has no parameters, and always uses one
    thread.
    """

    name: ClassVar[str] = "reference"
    summary: ClassVar[str] = "a walk in NumPy: readable, slow, the yardstick"

    def why_not(self, forest: Forest) -> str | None:
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
        some = max(1, _DOCUMENTS_TOGETHER // max(1, len(documents)))
        for tree in range(0, forest.n_trees, some):
            yield from ranges.position[_descend(forest, slice(tree, min(tree + some, forest.n_trees)), documents)]
