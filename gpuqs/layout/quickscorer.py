"""QuickScorer's layout: the tests of a forest by feature, thresholds ascending, in tree blocks.

The arrays of paper 002, section 3 (Figure 4), shared by every QuickScorer engine: per tree block
and column the thresholds of its nodes in ascending order, and for each the tree that it lies in
and the mask that a false test ANDs to the tree's bitvector of leaves. Leaf 0 is the most
significant bit. A missing value makes false exactly the nodes of the column's missing list.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuqs.forest import NAN_LEFT, Forest
from gpuqs.layout.columns import Columns, find_columns, round_down
from gpuqs.layout.leaves import LeafRanges, number_leaves

MASK_DTYPES = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


@dataclass(frozen=True)
class Tuples:
    """Tests listed by (tree block, column); M tests, B blocks, C columns.

    Parameters
    ----------
    offsets : int64 [B, C + 1]
        Column c of block b is ``offsets[b, c]:offsets[b, c + 1]``.
    node : int64 [M]
        The forest's node that each test is.
    tree : int32 [M]
        Its tree, counted from the block's first.
    mask : uint8, uint16, uint32 or uint64 [M]
        Zeros at the leaves that a false test rules out: those of the left subtree.
    """

    offsets: npt.NDArray[np.int64]
    node: npt.NDArray[np.int64]
    tree: npt.NDArray[np.int32]
    mask: np.ndarray


@dataclass(frozen=True)
class SortedTests:
    """Tests listed by (tree block, column), thresholds ascending; fields as in `Tuples`."""

    offsets: npt.NDArray[np.int64]
    node: npt.NDArray[np.int64]
    tree: npt.NDArray[np.int32]


@dataclass(frozen=True)
class QuickScorerLayout:
    """A forest as QuickScorer reads it.

    Parameters
    ----------
    columns : Columns
    ranges : LeafRanges
    block_offsets : int32 [B + 1]
        First tree of each tree block.
    tests : Tuples
        Every node, thresholds ascending inside a column.
    missing : Tuples
        The nodes that send a missing value right.
    threshold64, threshold32 : float64 [N], float32 [N]
        Thresholds of `tests`, as they are and rounded down.
    """

    columns: Columns
    ranges: LeafRanges
    block_offsets: npt.NDArray[np.int32]
    tests: Tuples
    missing: Tuples
    threshold64: npt.NDArray[np.float64]
    threshold32: npt.NDArray[np.float32]

    @property
    def mask_bits(self) -> int:
        return self.tests.mask.dtype.itemsize * 8


def nan_right(forest: Forest) -> npt.NDArray[np.int64]:
    """The nodes that send a missing value right."""
    return np.flatnonzero((forest.routing & NAN_LEFT) == 0)


def sort_tests(
    forest: Forest, columns: Columns, block_offsets: npt.NDArray[np.int32], nodes: npt.NDArray[np.int64]
) -> SortedTests:
    """List nodes by tree block, column and threshold; block b holds trees ``block_offsets[b:b + 2]``."""
    tree = forest.node_tree[nodes]
    block = np.searchsorted(block_offsets, tree, "right") - 1
    column = columns.of_node[nodes]
    order = np.lexsort((tree, columns.threshold[nodes], column, block))
    nodes, tree, block, column = nodes[order], tree[order], block[order], column[order]
    n_blocks = len(block_offsets) - 1
    bounds = np.arange(n_blocks * len(columns) + 1)
    starts = np.searchsorted(block * len(columns) + column, bounds)
    firsts = np.arange(n_blocks)[:, None] * len(columns) + np.arange(len(columns) + 1)
    return SortedTests(
        offsets=starts[firsts].astype(np.int64),
        node=nodes,
        tree=(tree - block_offsets[block]).astype(np.int32),
    )


def mask_bits_for(n_leaves: int) -> int | None:
    """Fewest mask bits that hold ``n_leaves`` leaves, or None above 64."""
    return next((bits for bits in MASK_DTYPES if n_leaves <= bits), None)


def build_quickscorer(forest: Forest, tree_block: int, mask_bits: int) -> QuickScorerLayout:
    """Lay a forest out for QuickScorer.

    Parameters
    ----------
    forest : Forest
        At most ``mask_bits`` leaves a tree.
    tree_block : int
        τ, the number of trees per block.
    mask_bits : {8, 16, 32, 64}
    """
    columns, ranges = find_columns(forest), number_leaves(forest)
    block_offsets = np.append(np.arange(0, forest.n_trees, tree_block), forest.n_trees).astype(np.int32)

    def tuples(nodes: np.ndarray) -> Tuples:
        tests = sort_tests(forest, columns, block_offsets, nodes)
        mask = _masks(ranges.first[tests.node], ranges.middle[tests.node], mask_bits)
        return Tuples(offsets=tests.offsets, node=tests.node, tree=tests.tree, mask=mask)

    tests = tuples(np.arange(forest.n_nodes))
    threshold = np.ascontiguousarray(columns.threshold[tests.node])
    return QuickScorerLayout(
        columns=columns,
        ranges=ranges,
        block_offsets=block_offsets,
        tests=tests,
        missing=tuples(nan_right(forest)),
        threshold64=threshold,
        threshold32=round_down(threshold),
    )


def _masks(first: np.ndarray, middle: np.ndarray, bits: int) -> np.ndarray:
    """Ones except at leaves ``[first, middle)``; leaf 0 is the most significant bit."""
    length = (middle - first).astype(np.uint64)
    run = (np.uint64(1) << length) - np.uint64(1)  # at most bits - 1 ones: the right subtree has a leaf
    zeros = run << (np.uint64(bits) - np.uint64(first) - length)
    return ~zeros.astype(MASK_DTYPES[bits])
