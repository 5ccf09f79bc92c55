"""The layout of oblivious forests (paper 002, section 4): QuickScorer's, with one test and one mask per level.

The exit leaf's number, counted from left to right, has a bit for each level: 1 where the level's test is false.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpuqs.forest import NAN_LEFT, Forest
from gpuqs.kept import once_each
from gpuqs.layout.columns import find_columns
from gpuqs.layout.leaves import number_leaves
from gpuqs.layout.quickscorer import MASK_DTYPES, QuickScorerLayout, list_tests, tree_blocks

#: Upper limit of levels in a tree: masks have a bit for each.
MAX_LEVELS = 16


def n_levels(forest: Forest) -> npt.NDArray[np.int64]:
    """Levels of each tree, int64 [T], if it is oblivious."""
    return np.frexp(np.diff(forest.leaf_offsets))[1].astype(np.int64) - 1


def level_nodes(forest: Forest) -> npt.NDArray[np.int64] | None:
    """A node of each level of each tree; None if a tree is incomplete, or a level has different tests."""
    levels = n_levels(forest)
    if (np.diff(forest.leaf_offsets) != 1 << levels).any() or (forest.tree_depth > levels).any():
        return None
    level = (np.cumsum(levels) - levels)[forest.node_tree] + forest.depth
    nodes = np.empty(levels.sum(), np.int64)
    nodes[level] = np.arange(forest.n_nodes)
    alike, columns = nodes[level], find_columns(forest)
    for read in (columns.of_node, columns.threshold, forest.routing & NAN_LEFT):
        if (read != read[alike]).any():
            return None
    return nodes


@once_each
def is_oblivious(forest: Forest) -> bool:
    """Whether all trees are oblivious: `level_nodes` returns nodes."""
    return level_nodes(forest) is not None


def build_oblivious(forest: Forest, tree_block: int) -> QuickScorerLayout:
    """Lay an oblivious forest of up to `MAX_LEVELS` levels out, ``tree_block`` trees per block."""
    nodes, levels = level_nodes(forest), n_levels(forest)
    assert nodes is not None
    bits = 8 if levels.max(initial=0) <= 8 else 16
    one = np.uint64(1) << (levels[forest.node_tree] - 1 - forest.depth).astype(np.uint64)
    masks, block_offsets = ~one.astype(MASK_DTYPES[bits]), tree_blocks(forest, tree_block)
    missing = nodes[(forest.routing[nodes] & NAN_LEFT) == 0]
    return QuickScorerLayout(
        find_columns(forest),
        number_leaves(forest).position,
        block_offsets,
        straight=list_tests(forest, block_offsets, nodes, missing, masks),
        oblivious=True,
    )
