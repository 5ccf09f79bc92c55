"""Leaves from left to right, and what they are worth: shared by every engine.

Engines find a document's exit leaf as its position among its tree's leaves, left to right.
`number_leaves` says which positions lie under each node; `leaf_values` puts the leaf values in
that order, in the type in which they are summed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gpuqs import cache_lines
from gpuqs.cpu_fallback import making
from gpuqs.forest import Forest
from gpuqs.forks import lazy

#: With ``precision="fast"``, leaf values are integer multiples of a step, below this in magnitude.
FIXED_POINT_LIMIT = 1 << 23
#: Upper limit of leaves in a tree whose values are looked up in registers; leaves of such a table.
TABLE_LEAVES = 64
#: Leaves share vectors only if a tree's vectors take at least `MIN_SHARED` bytes on average (too many for L1), if
#: there are at least `SHARED_BY` times fewer distinct ones, and if these take at most `MAX_SHARED` bytes.
MIN_SHARED, SHARED_BY, MAX_SHARED = 16 << 10, 16, 256 << 10


@dataclass(frozen=True)
class LeafRanges:
    """Leaf positions under every node: its left subtree's are ``[first, middle)``, its right's ``[middle, end)``.

    Parameters
    ----------
    first, middle, end : int32 [N]
        Positions are counted from 0 in each tree.
    position : int32 [L]
        Position of each of the forest's leaves in its tree.
    """

    first: npt.NDArray[np.int32]
    middle: npt.NDArray[np.int32]
    end: npt.NDArray[np.int32]
    position: npt.NDArray[np.int32]

    @property
    def n_left(self) -> npt.NDArray[np.int32]:
        """Leaves of each node's left subtree."""
        return self.middle - self.first


def number_leaves(forest: Forest) -> LeafRanges:
    """Number every tree's leaves from left to right."""
    return LeafRanges(*making.number_leaves(forest))


@dataclass(frozen=True)
class LeafValues:
    """Leaf values from left to right, in the type in which they are summed.

    Parameters
    ----------
    value : float64, float32 or int32 [L, width]
        float64 or float32: exact, weights applied. int32: integer multiples of `step`.
    row : int32 [L] or [0]
        Each leaf's row of `value` [rows, width], if leaves share vectors, as the pure leaves of a class do; else empty.
    offsets : int64 [T + 1]
        First leaf of each tree.
    tree_output : int32 [T]
        Output that the tree's leaves add to, if ``width`` is 1.
    leaf_id : int32 [L]
        The source library's number of each leaf.
    trees : range
        The trees that are scored; the arrays are of all trees.
    n_outputs : int
    start : value's sum type [K]
        What the sums start from.
    add_last : float64 [K]
        What is added to the finished sums.
    step : float
        0.0: the sums are the scores. Otherwise the scores are ``step`` times the sums.
    score_dtype : np.dtype
        Type of the finished scores.
    starts_at_base : bool
        Whether `start` is the base score; otherwise `add_last` is.
    linear_bounds : int64 [L, 2]
        First and end of each leaf's terms in the arrays below, if leaves have linear models; else [0, 2].
    linear_feature, linear_coefficient : int32, float64 [...]
        As in the forest.
    """

    value: np.ndarray
    row: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]
    tree_output: npt.NDArray[np.int32]
    leaf_id: npt.NDArray[np.int32]
    trees: range
    n_outputs: int
    start: np.ndarray
    add_last: npt.NDArray[np.float64]
    step: float
    score_dtype: np.dtype
    starts_at_base: bool
    linear_bounds: npt.NDArray[np.int64]
    linear_feature: npt.NDArray[np.int32]
    linear_coefficient: npt.NDArray[np.float64]

    @lazy
    def _adds_last(self) -> bool:
        return bool(self.add_last.any())

    @lazy
    def sum_dtype(self) -> np.dtype:
        """Type of the running sums: int64 for fixed-point values, else the values' own."""
        return np.dtype(np.int64) if self.value.dtype == np.int32 else self.value.dtype

    @lazy
    def neighbours(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """For each tree, the one of the same output before it (-1: none) and after it (T: none)."""
        order = np.argsort(self.tree_output, kind="stable").astype(np.int32)
        earlier, later = order[:-1], order[1:]
        same = self.tree_output[earlier] == self.tree_output[later]
        before, after = np.full(len(order), -1, np.int32), np.full(len(order), len(order), np.int32)
        before[later[same]], after[earlier[same]] = earlier[same], later[same]
        return before, after

    def of_trees(self, trees: slice, base_score: np.ndarray) -> LeafValues:
        """The exact values of a range of trees; ``base_score``, float64 [K], is added first or last as it is here."""
        start, add_last = self.start, base_score
        if self.starts_at_base:
            start, add_last = base_score.astype(self.sum_dtype), self.add_last
        return replace(self, trees=range(trees.start, trees.stop), start=start, add_last=add_last)

    def finish(self, sums: np.ndarray, add_last: np.ndarray | None = None) -> np.ndarray:
        """Turn sums [D, K] into raw scores [D, K] of `score_dtype`; ``add_last`` [D, K] replaces its own."""
        scores = sums if not self.step else sums * self.step
        if add_last is not None or self._adds_last:  # in float64, as in Treelite: float32 sums come out alike
            scores = scores + (self.add_last if add_last is None else add_last)
        return scores.astype(self.score_dtype, copy=False)


def leaf_values(
    forest: Forest, position: npt.NDArray[np.int32] | None, precision: str, *, shared: bool = False
) -> LeafValues:
    """Leaf values for ``precision`` "exact" (the source library's sums) or "fast" (fixed point).

    ``position``: as in `LeafRanges`, or mirrored; None: leaves keep the forest's order, and arrays are not copied.
    ``shared``: whether leaves may share vectors.
    """
    dtype = np.dtype(forest.sum_dtype)
    given = np.ascontiguousarray(forest.weighted_leaves())
    first, row = np.zeros(0, np.int64), np.zeros(0, np.int32)
    large = forest.n_leaves > TABLE_LEAVES and given.nbytes >= MIN_SHARED * forest.n_trees
    if shared and large and given.shape[1] > 1:
        first, row = making.distinct_rows(given, min(len(given) // SHARED_BY, MAX_SHARED // given.strides[0]))

    def in_order(items: np.ndarray) -> np.ndarray:
        if position is None:
            return items
        ordered = cache_lines.zeros(items.shape, items.dtype)
        making.put_in_order(forest.leaf_offsets, position, items, ordered)
        return ordered

    if len(row):
        value, row = cache_lines.zeros((len(first), given.shape[1]), dtype), in_order(row)
        value[...] = given[first]
    else:
        value = in_order(given)
    leaf_id = in_order(forest.leaf_id)
    linear_bounds = np.zeros((0, 2), np.int64)
    if forest.has_linear_leaves:
        linear_bounds = in_order(np.stack([forest.linear_offsets[:-1], forest.linear_offsets[1:]], axis=1))
    zero = np.zeros(forest.n_outputs)
    start, add_last, step = forest.base_score.astype(dtype), zero, 0.0
    if precision == "fast":
        step = fixed_point_step(forest)
        value = np.rint(value.astype(np.float64) / step).astype(np.int32)
        start, add_last = zero.astype(np.int64), forest.base_score
    elif not forest.base_first:
        start, add_last = zero.astype(dtype), forest.base_score
    return LeafValues(
        value=np.ascontiguousarray(value),
        row=row,
        offsets=forest.leaf_offsets,
        tree_output=forest.tree_output,
        leaf_id=leaf_id,
        trees=range(forest.n_trees),
        n_outputs=forest.n_outputs,
        start=start,
        add_last=add_last,
        step=step,
        score_dtype=dtype,
        starts_at_base=precision == "exact" and forest.base_first,
        linear_bounds=linear_bounds,
        linear_feature=forest.linear_feature,
        linear_coefficient=forest.linear_coefficient,
    )


def fixed_point_step(forest: Forest) -> float:
    """The smallest power of two of which a forest's leaf values are less than 2^23 multiples in magnitude."""
    largest = np.abs(forest.weighted_leaves().astype(forest.sum_dtype)).max(initial=0.0).astype(np.float64)
    exponent = int(np.frexp(largest)[1]) - 23 if largest else 0
    exponent = max(exponent, -1022)  # the step itself stays a normal number
    if np.rint(np.ldexp(largest, -exponent)) >= FIXED_POINT_LIMIT:
        exponent += 1
    return float(np.ldexp(1.0, exponent))
