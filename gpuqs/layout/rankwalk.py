"""The layout of `rankwalk`: nodes that test ranks, and leaves, as items of 32 bits in pairs of siblings.

A document is coded as one byte for each *entry*: a column, up to 255 of its thresholds in a row, and
the side to which missing values go. The byte is the value's rank among those thresholds; a node goes
right iff the byte exceeds the position of its own. A node's item holds, from the lowest bit,

    entry : 16 | 255 - position of the threshold : 8 | distance to the left child : 8

so that adding ``byte << POSITION_SHIFT`` carries into the distance exactly where the walk turns right, and
``(item + code) >> DISTANCE_SHIFT`` is the whole step. A leaf has distance 0 and entry 0, whose byte is 0: a
walk stays there. Its middle byte is the leaf's label.

Many documents evaluate all of a tree's tests, in preorder. The leftmost leaf has label 0, and the first leaf to the
right of node i in preorder has label i + 1, so each leaf of a tree has one label. A document begins at label 0. When it
is at the label of a node's leftmost leaf, it has reached that node, and goes to label i + 1 if its byte exceeds the
node's position.

Some processors evaluate 64 tests of a document at once. The tests lie in *words*, with nodes of one tree, or of several
small ones, in preorder, so that a left child has the place after its parent's. The outcomes say for each node where
the document goes on from there. Pointer jumping then finds for all nodes at once where two steps lead, then four, and
so on, until it has found the last node of the walk from the tree's root, and so the leaf.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuqs import cache_lines
from gpuqs.cpu_fallback.making import place_trees, rank_items
from gpuqs.forest import NAN_LEFT, Forest
from gpuqs.layout.columns import Columns, round_down
from gpuqs.layout.ranks import RankTables

#: Upper limit of leaves in a tree: a left child is then at most 251 items away.
MAX_LEAVES = 128
#: Upper limit of thresholds among which one entry ranks.
ENTRY_THRESHOLDS = 255
#: Upper limit of entries in a forest, including the leaves' entry.
MAX_ENTRIES = 1 << 16
#: Thresholds of a block in `ThresholdBlocks`.
BLOCK_THRESHOLDS = 16
#: Trees walked side by side: as many as there are registers for.
WALKS = 12
#: Trees of a block, in which they are ordered by depth.
TREE_BLOCK = 32 * WALKS

#: Most documents that walk, if there are no jumps; more evaluate every test.
WALKING = 4
#: The same with registers of 16 bytes.
WALKING_NARROW = 8
#: Most documents that jump, if there are jumps; more evaluate every test.
JUMPING = 16
#: Most registers of documents that go through a test together, which may also be one or two.
REGISTERS_TOGETHER = 4
#: Upper limit of bytes in such a register, and so of documents.
MAX_LANES = 32
#: Places of a word, which limit the nodes of a tree in it. If some tree is larger, words come in pairs.
JUMP_PLACES = 64
#: Upper limit of entries that tests in words can name.
JUMP_ENTRIES = 256
#: Added to a place's ``onward`` if its right child is a leaf.
LEAF_ON_RIGHT = 128

#: Lowest bit of a threshold's position in an item, above the entry.
POSITION_SHIFT = 16
#: Lowest bit of the distance to the left child in an item.
DISTANCE_SHIFT = 24

#: The C++ `RankEntry`.
RANK_ENTRY = np.dtype([("column", "i4"), ("first", "i4"), ("nan_left", "i4")])
#: The C++ `RankTest`; positions are stored as `SIGNED` minus their value, as documents' bytes are.
RANK_TEST = np.dtype([("entry", "u2"), ("position", "i1"), ("first", "u1")])
SIGNED = 127
#: The C++ `JumpWord`; entries are stored as their number - 1, because no node tests the leaves' entry.
JUMP_WORD = np.dtype([(name, "u1", JUMP_PLACES) for name in ("entry", "position", "onward")])


@dataclass(frozen=True)
class RankJumps:
    """Trees whose tests a document evaluates all at once; W words, or W pairs of words if a tree has too many nodes.

    Parameters
    ----------
    words : JUMP_WORD [words_together * W]
        At a node's place, ``onward`` is the place of its right child, two or more places on, or the next place if that
        child is a leaf. But if the left child is a leaf, whose sibling has the next place, it is that leaf's label plus
        the place of the tree's root, which is at most the node's own place. `LEAF_ON_RIGHT` is added if the right child
        is a leaf.
    trees : int32 [W + 1]
        First tree of each word, or of each pair, whose places are numbered through.
    blocks : int32 [B + 1]
        First word, or pair, of each tree block.
    root : uint8 [T]
        Place of each tree's root; for a tree without nodes, the place of a test that no document passes.
    doublings : uint8 [B]
        How often to double steps until one step leads from any root to the deepest node of a tree block.
    words_together : {1, 2}
    """

    words: np.ndarray
    trees: npt.NDArray[np.int32]
    blocks: npt.NDArray[np.int32]
    root: npt.NDArray[np.uint8]
    doublings: npt.NDArray[np.uint8]
    words_together: int


@dataclass(frozen=True)
class ThresholdBlocks:
    """Columns' thresholds in blocks of `BLOCK_THRESHOLDS`, a column's last one padded with infinity; C columns.

    Samples are the last threshold of each block except the column's last. They are in blocks, too, padded likewise.

    Parameters
    ----------
    first, first_samples : int64 [C + 1]
        First block of thresholds, and of samples, of each column, and the end.
    threshold32, sample32 : float32 [blocks, BLOCK_THRESHOLDS]
    threshold64, sample64 : float64 [blocks, BLOCK_THRESHOLDS]
    """

    first: npt.NDArray[np.int64]
    first_samples: npt.NDArray[np.int64]
    threshold32: npt.NDArray[np.float32]
    sample32: npt.NDArray[np.float32]
    threshold64: npt.NDArray[np.float64]
    sample64: npt.NDArray[np.float64]


def threshold_blocks(
    offsets: npt.NDArray[np.int64], threshold32: npt.NDArray[np.float32], threshold64: npt.NDArray[np.float64]
) -> ThresholdBlocks:
    """Put columns' thresholds in blocks; ``offsets`` [C + 1] are the columns' bounds."""
    counts = np.diff(offsets)
    n_blocks = np.maximum(-(-counts // BLOCK_THRESHOLDS), 1)
    first, first_samples = (_starts(n) for n in (n_blocks, np.maximum(-(-(n_blocks - 1) // BLOCK_THRESHOLDS), 1)))
    sampled = np.ones(first[-1], bool)
    sampled[first[1:] - 1] = False
    blocks = []
    for threshold in (threshold32, threshold64):
        within = _in_blocks(threshold, counts, first)
        blocks += [within, _in_blocks(within[sampled, -1], n_blocks - 1, first_samples)]
    return ThresholdBlocks(first, first_samples, *blocks)


def _starts(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.append(0, np.cumsum(counts))


def _in_blocks(values: np.ndarray, counts: npt.NDArray[np.int64], first: npt.NDArray[np.int64]) -> np.ndarray:
    """Put values in blocks: ``counts`` values of each column, from its ``first`` block on."""
    blocks = cache_lines.zeros((int(first[-1]), BLOCK_THRESHOLDS), values.dtype)
    blocks[:] = np.inf
    places = np.arange(len(values)) + np.repeat(first[:-1] * BLOCK_THRESHOLDS - _starts(counts)[:-1], counts)
    blocks.reshape(-1)[places] = values
    return blocks


@dataclass(frozen=True)
class RankWalkLayout:
    """A forest as items; B tree blocks, G groups of `WALKS` trees.

    Parameters
    ----------
    ranks : RankTables
    position : int32 [L]
        The label of each leaf.
    threshold32 : float32 [P]
        The columns' distinct thresholds rounded down, for float32 documents.
    blocks : ThresholdBlocks
        The thresholds of both types in blocks, for few documents.
    entries : RANK_ENTRY [...]
        Entry 0 is the leaves'.
    items : uint32 [N + L]
        Trees in the order of the groups, each tree's items in the order of `gpuqs.layout.traversal.pair_up`. Empty if
        there are jumps.
    block_offsets : int32 [B + 1]
        First tree of each block: a multiple of `WALKS`.
    tree : int32 [G * WALKS]
        The trees of each group, numbered within their block; -1 pads the last group.
    root : uint32 [G * WALKS]
    steps : uint8 [G]
        Depth of the group's deepest tree. Groups hold trees of about the same depth.
    group_items : int64 [G + 1]
        First item of each group.
    node_offsets : int64 [T + 1]
        First test of each tree.
    tests : RANK_TEST [N]
        Tree by tree, in preorder; ``first`` is the label of the leftmost leaf below.
    jumps : RankJumps or None
        Used instead of walks. None if not requested, or if there are more entries than tests in words can name.
    """

    ranks: RankTables
    position: npt.NDArray[np.int32]
    threshold32: npt.NDArray[np.float32]
    blocks: ThresholdBlocks
    entries: np.ndarray
    items: npt.NDArray[np.uint32]
    block_offsets: npt.NDArray[np.int32]
    tree: npt.NDArray[np.int32]
    root: npt.NDArray[np.uint32]
    steps: npt.NDArray[np.uint8]
    group_items: npt.NDArray[np.int64]
    node_offsets: npt.NDArray[np.int64]
    tests: np.ndarray
    jumps: RankJumps | None


def build_rankwalk(
    forest: Forest, ranks: RankTables, tree_block: int = TREE_BLOCK, with_jumps: bool = False
) -> RankWalkLayout:
    """Lay out a forest of at most `MAX_LEAVES` leaves a tree whose `max_entries` are at most `MAX_ENTRIES`.

    ``tree_block`` trees, a multiple of `WALKS`, make a block.
    """
    n_trees, depth = forest.n_trees, forest.tree_depth
    block = np.arange(n_trees) // tree_block
    order = np.lexsort((depth, block))
    n_groups = -(-n_trees // WALKS)
    tree = np.full(n_groups * WALKS, -1, np.int32)
    tree[:n_trees] = order - block * tree_block
    n_items = np.diff(forest.node_offsets + forest.leaf_offsets)
    starts = np.concatenate([[0], np.cumsum(n_items[order])])
    root, steps = np.zeros(n_groups * WALKS, np.uint32), np.zeros(n_groups * WALKS, np.uint8)
    root[:n_trees], steps[:n_trees] = starts[:-1], depth[order]
    start = np.empty(n_trees, np.int64)
    start[order] = starts[:-1]
    placed = place_trees(forest, tree_block, 1 + (forest.n_leaves - 1 > JUMP_PLACES)) if with_jumps else None
    entries, items, tests, label, jump = rank_items(
        forest, ranks.columns.of_node, ranks.of_node, ranks.offsets, NAN_LEFT, start, placed
    )
    block_offsets = np.append(np.arange(0, n_trees, tree_block), n_trees).astype(np.int32)
    threshold32 = round_down(ranks.threshold)
    return RankWalkLayout(
        ranks=ranks,
        position=label,
        threshold32=threshold32,
        blocks=threshold_blocks(ranks.offsets, threshold32, ranks.threshold),
        entries=entries.view(RANK_ENTRY)[:, 0],
        items=items[:0] if jump else items,
        block_offsets=block_offsets,
        tree=tree,
        root=root,
        steps=steps.reshape(n_groups, WALKS).max(axis=1, initial=0),
        group_items=starts[np.minimum(np.arange(n_groups + 1) * WALKS, n_trees)],
        node_offsets=forest.node_offsets,
        tests=tests.view(RANK_TEST),
        jumps=_jumps(placed, depth, block_offsets) if jump else None,
    )


def _jumps(placed: Any, depth: npt.NDArray[np.int64], block_offsets: npt.NDArray[np.int32]) -> RankJumps:
    """Jumps over the words of `place_trees`. A walk of d tests takes d - 1 steps from the root to its last node."""
    words, trees, root, words_together = placed
    deepest = np.maximum.reduceat(depth, block_offsets[:-1]) if len(depth) else depth
    doublings = np.ceil(np.log2(np.maximum(deepest - 1, 1))).astype(np.uint8)
    blocks = np.searchsorted(trees, block_offsets).astype(np.int32)
    return RankJumps(words.view(JUMP_WORD)[:, 0], trees, blocks, root, doublings, words_together)


def max_entries(columns: Columns) -> int:
    """Upper bound on the entries that documents are coded as."""
    return 1 + 2 * int((-(-columns.n_nodes // ENTRY_THRESHOLDS)).sum())
