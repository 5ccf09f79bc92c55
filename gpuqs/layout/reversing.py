"""Tree reversing (paper 002, section 6): which trees have more false tests than true ones, and their leaves mirrored.

A reversed tree's children are swapped, and its tests negated: left iff not ``x <= threshold``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpuqs.forest import Forest
from gpuqs.layout.columns import Columns
from gpuqs.layout.leaves import LeafRanges

#: A tree is reversed if its expected share of false tests exceeds this. It is above one half because thresholds lie
#: where a learner looked closely, documents less so, and a wrong reversal costs what a right one saves.
FALSE_SHARE = 0.6
#: No tree is reversed if less than this share of trees would be: they cost one more pass over each block's columns.
SIGNIFICANT = 0.1


def false_trees(forest: Forest, columns: Columns) -> npt.NDArray[np.bool_]:
    """The trees to reverse, bool [T], chosen without documents.

    Documents are taken to lie among a column's thresholds as the thresholds themselves do: a test with ``r`` of
    the column's ``n`` thresholds below its own, ties counted by half, is false with probability ``1 - r / n``.
    No tree is reversed if their share would be below `SIGNIFICANT`.
    """
    order = np.lexsort((columns.threshold, columns.of_node))
    column, threshold = columns.of_node[order], columns.threshold[order]
    starts = np.ones(forest.n_nodes, bool)
    starts[1:] = (column[1:] != column[:-1]) | (threshold[1:] != threshold[:-1])
    first = np.flatnonzero(starts)
    group = np.cumsum(starts) - 1
    below = (first + np.append(first[1:], forest.n_nodes))[group] / 2  # among the tests of all columns, in order
    n = np.bincount(column, minlength=len(columns))
    odds = np.empty(forest.n_nodes)
    odds[order] = 1 - (below - (np.cumsum(n) - n)[column]) / n[column]
    n_false = np.bincount(forest.node_tree, odds, minlength=forest.n_trees)
    reverse = n_false > FALSE_SHARE * np.diff(forest.node_offsets)
    return reverse & (np.count_nonzero(reverse) >= SIGNIFICANT * forest.n_trees)


def mirrored(forest: Forest, ranges: LeafRanges, reverse: npt.NDArray[np.bool_]) -> LeafRanges:
    """The ranges after the children of all nodes in the reversed trees are swapped."""
    n_leaves = np.diff(forest.leaf_offsets).astype(np.int32)
    swapped, end = reverse[forest.node_tree], n_leaves[forest.node_tree]
    first = np.where(swapped, end - ranges.end, ranges.first)
    middle = np.where(swapped, end - ranges.middle, ranges.middle)
    last = np.where(swapped, end - ranges.first, ranges.end)
    leaf_tree = np.repeat(np.arange(forest.n_trees), n_leaves)
    turned = n_leaves[leaf_tree] - 1 - ranges.position
    return LeafRanges(first, middle, last, np.where(reverse[leaf_tree], turned, ranges.position))
