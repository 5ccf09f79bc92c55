"""QuickScorer's layout: the tests of a forest by feature, thresholds ascending, in tree blocks.

The arrays of paper 002, section 3 (Figure 4), shared by every QuickScorer engine: per tree block
and column the thresholds of its nodes in ascending order, and for each the tree that it lies in
and the mask that a false test ANDs to the tree's bitvector of leaves. Leaf 0 is the most
significant bit. A missing value makes false exactly the nodes of the column's missing list.

Reversed trees (section 6) have lists of their own in each block, thresholds descending.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuqs.forest import NAN_LEFT, Forest
from gpuqs.layout.columns import Columns, find_columns, round_down
from gpuqs.layout.leaves import number_leaves
from gpuqs.layout.reversing import mirrored

#: Upper limit of list bounds, one per tree block and column, which small blocks of a wide forest might exceed.
MAX_BOUNDS = 1 << 22

MASK_DTYPES = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


@dataclass(frozen=True)
class Tuples:
    """Tests listed by (tree block, column); M tests, B blocks, C columns.

    Parameters
    ----------
    offsets : int64 [B, C + 1]
        Column c of block b is ``offsets[b, c]:offsets[b, c + 1]``.
    node : int64 [M]
        The forest's node of each test.
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
class TestLists:
    """The tests of some trees, listed by (tree block, column).

    Parameters
    ----------
    tests : Tuples
        Within a column, tests that are false for more values come first.
    missing : Tuples
        The tests that a missing value makes false.
    threshold64, threshold32 : float64 [M], float32 [M]
        Thresholds of `tests`, as they are and rounded down.
    """

    __test__ = False  # keeps pytest from collecting it by its name

    tests: Tuples
    missing: Tuples
    threshold64: npt.NDArray[np.float64]
    threshold32: npt.NDArray[np.float32]


@dataclass(frozen=True)
class QuickScorerLayout:
    """A forest as QuickScorer reads it.

    Parameters
    ----------
    columns : Columns
    position : int32 [L]
        Position of each leaf in its tree, from left to right; mirrored in reversed trees.
    block_offsets : int32 [B + 1]
        First tree of each tree block.
    straight : TestLists
        A test is false where ``x > threshold``; thresholds ascend.
    reversed : TestLists or None
        Tests of reversed trees, false where ``x <= threshold``; thresholds descend.
    oblivious : bool
        There is one test per level, and its mask clears one bit of the exit leaf's number, which is read inverted.
    """

    columns: Columns
    position: npt.NDArray[np.int32]
    block_offsets: npt.NDArray[np.int32]
    straight: TestLists
    reversed: TestLists | None = None
    oblivious: bool = False

    @property
    def mask_bits(self) -> int:
        return self.straight.tests.mask.dtype.itemsize * 8


def nan_right(forest: Forest) -> npt.NDArray[np.int64]:
    """The nodes that send a missing value right."""
    return np.flatnonzero((forest.routing & NAN_LEFT) == 0)


def sort_tests(
    forest: Forest,
    columns: Columns,
    block_offsets: npt.NDArray[np.int32],
    nodes: npt.NDArray[np.int64],
    descending: bool = False,
) -> SortedTests:
    """List nodes by tree block, column and threshold; block b holds trees ``block_offsets[b:b + 2]``."""
    tree = forest.node_tree[nodes]
    block = np.searchsorted(block_offsets, tree, "right") - 1
    column = columns.of_node[nodes]
    threshold = columns.threshold[nodes]
    order = np.lexsort((tree, -threshold if descending else threshold, column, block))
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


def tree_blocks(forest: Forest, tree_block: int) -> npt.NDArray[np.int32]:
    """First tree of each block of ``tree_block`` trees, and the number of trees.

    Blocks of forests with many columns are larger where their lists' bounds would take more than `MAX_BOUNDS`.
    """
    max_blocks = max(MAX_BOUNDS // (len(find_columns(forest)) + 1), 1)
    tree_block = max(tree_block, -(-forest.n_trees // max_blocks))
    return np.append(np.arange(0, forest.n_trees, tree_block), forest.n_trees).astype(np.int32)


def list_tests(
    forest: Forest,
    block_offsets: npt.NDArray[np.int32],
    nodes: npt.NDArray[np.int64],
    missing: npt.NDArray[np.int64],
    masks: np.ndarray,
    descending: bool = False,
) -> TestLists:
    """List nodes, and those that a missing value makes false; ``masks`` has one for each of the forest's nodes."""
    columns = find_columns(forest)

    def tuples(of: npt.NDArray[np.int64]) -> Tuples:
        tests = sort_tests(forest, columns, block_offsets, of, descending)
        return Tuples(offsets=tests.offsets, node=tests.node, tree=tests.tree, mask=masks[tests.node])

    tests = tuples(nodes)
    threshold = np.ascontiguousarray(columns.threshold[tests.node])
    return TestLists(tests, tuples(missing), threshold, round_down(threshold))


def build_quickscorer(
    forest: Forest, tree_block: int, mask_bits: int, reverse: npt.NDArray[np.bool_] | None = None
) -> QuickScorerLayout:
    """Lay a forest out for QuickScorer.

    Parameters
    ----------
    forest : Forest
        At most ``mask_bits`` leaves a tree.
    tree_block : int
        τ, the number of trees per block.
    mask_bits : {8, 16, 32, 64}
    reverse : bool [T], optional
        The trees that are reversed; none by default.
    """
    ranges, block_offsets = number_leaves(forest), tree_blocks(forest, tree_block)
    nodes, to_right = np.arange(forest.n_nodes), nan_right(forest)
    if reverse is None or not reverse.any():
        masks = _masks(ranges.first, ranges.middle, mask_bits)
        straight = list_tests(forest, block_offsets, nodes, to_right, masks)
        return QuickScorerLayout(find_columns(forest), ranges.position, block_offsets, straight)
    ranges = mirrored(forest, ranges, reverse)
    masks = _masks(ranges.first, ranges.middle, mask_bits)
    swapped = reverse[forest.node_tree]
    to_left = np.flatnonzero(forest.routing & NAN_LEFT)
    return QuickScorerLayout(
        find_columns(forest),
        ranges.position,
        block_offsets,
        straight=list_tests(forest, block_offsets, nodes[~swapped], to_right[~swapped[to_right]], masks),
        reversed=list_tests(forest, block_offsets, nodes[swapped], to_left[swapped[to_left]], masks, descending=True),
    )


def _masks(first: np.ndarray, middle: np.ndarray, bits: int) -> np.ndarray:
    """Ones except at leaves ``[first, middle)``; leaf 0 is the most significant bit."""
    length = (middle - first).astype(np.uint64)
    run = (np.uint64(1) << length) - np.uint64(1)  # at most bits - 1 ones: the right subtree has a leaf
    zeros = run << (np.uint64(bits) - np.uint64(first) - length)
    masks: np.ndarray = ~zeros.astype(MASK_DTYPES[bits])
    return masks
