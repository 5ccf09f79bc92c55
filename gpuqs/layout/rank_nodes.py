"""Nodes that test ranks, in one 32-bit word each, for the `rankwalk` engine.

A document is coded as one byte for each *entry*: a column, up to 255 of its thresholds in a row, and
the side to which missing values go. The byte is the value's rank among those thresholds; a node goes
right iff the byte exceeds the position of its own. A node's word holds, from the lowest bit,

    entry : 16 | 255 - position of the threshold : 8 | distance to the left child : 8

so that adding ``byte << 16`` carries into the distance exactly where the walk turns right, and
``(word + code) >> 24`` is the whole step. A leaf has distance 0 and entry 0, whose byte is 0: a walk
stays there. Its middle byte is the leaf's position in the tree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuqs.forest import NAN_LEFT, Forest
from gpuqs.layout.columns import Columns, round_down
from gpuqs.layout.leaves import LeafRanges, number_leaves
from gpuqs.layout.nodes import pair_up, preorder
from gpuqs.layout.ranks import RankTables

#: Most leaves of a tree: a left child is then at most 251 items away.
MAX_LEAVES = 128
#: Thresholds that one entry tells apart.
ENTRY_THRESHOLDS = 255
#: Most entries of a forest, with the one that leaves ask.
MAX_ENTRIES = 1 << 16
#: Trees walked side by side, and trees of a block, whose walks are ordered by their length.
WALKS = 16
TREE_BLOCK = 32 * WALKS

#: The C++ `RankEntry`.
ENTRY = np.dtype([("column", "i4"), ("first", "i4"), ("nan_left", "i4")])


@dataclass(frozen=True)
class RankWalkLayout:
    """A forest as words of nodes; B tree blocks, G groups of `WALKS` trees.

    Parameters
    ----------
    ranks : RankTables
    ranges : LeafRanges
    threshold32 : float32 [P]
        The columns' distinct thresholds rounded down, for float32 documents.
    entries : ENTRY [...]
        Entry 0 is the leaves'.
    word : uint32 [N + L]
        In the order of `gpuqs.layout.nodes.pair_up`.
    block_offsets : int32 [B + 1]
        First tree of each block: a multiple of `WALKS`.
    tree : int32 [G * WALKS]
        The trees of each group, within their block; -1 fills the last group up.
    root : uint32 [G * WALKS]
    steps : uint8 [G]
        Depth of the group's deepest tree. Groups hold trees of about the same depth.
    """

    ranks: RankTables
    ranges: LeafRanges
    threshold32: npt.NDArray[np.float32]
    entries: np.ndarray
    word: npt.NDArray[np.uint32]
    block_offsets: npt.NDArray[np.int32]
    tree: npt.NDArray[np.int32]
    root: npt.NDArray[np.uint32]
    steps: npt.NDArray[np.uint8]


def build_rank_walk(forest: Forest, ranks: RankTables) -> RankWalkLayout:
    """Lay out a forest of at most `MAX_LEAVES` leaves a tree whose `most_entries` are at most `MAX_ENTRIES`."""
    ranges = number_leaves(forest)
    place, distance, tree_offsets = pair_up(forest, preorder(forest, ranges))

    keys, entry = np.unique(_entry_keys(forest, ranks), return_inverse=True)
    entries = np.zeros(len(keys) + 1, ENTRY)
    entries["column"][1:], entries["nan_left"][1:] = keys >> 32, keys & 1
    entries["first"][1:] = (keys >> 1 & 0x7FFFFFFF) * ENTRY_THRESHOLDS
    position = ranks.of_node % ENTRY_THRESHOLDS
    word = np.zeros(len(place), np.uint32)
    word[place[: forest.n_nodes]] = distance << 24 | (255 - position) << 16 | (entry + 1)
    word[place[forest.n_nodes :]] = ranges.position << 16

    n_trees = forest.n_trees
    depth = np.zeros(n_trees, np.int64)
    np.maximum.at(depth, forest.node_tree, forest.depth + 1)
    block = np.arange(n_trees) // TREE_BLOCK
    order = np.lexsort((depth, block))
    n_groups = -(-n_trees // WALKS)
    tree = np.full(n_groups * WALKS, -1, np.int32)
    tree[:n_trees] = order - block * TREE_BLOCK
    root, steps = np.zeros(n_groups * WALKS, np.uint32), np.zeros(n_groups * WALKS, np.uint8)
    root[:n_trees], steps[:n_trees] = tree_offsets[order], depth[order]
    return RankWalkLayout(
        ranks=ranks,
        ranges=ranges,
        threshold32=round_down(ranks.threshold),
        entries=entries,
        word=word,
        block_offsets=np.append(np.arange(0, n_trees, TREE_BLOCK), n_trees).astype(np.int32),
        tree=tree,
        root=root,
        steps=steps.reshape(n_groups, WALKS).max(axis=1, initial=0),
    )


def most_entries(columns: Columns) -> int:
    """A bound on the entries that documents are coded as."""
    n_nodes = np.bincount(columns.of_node, minlength=len(columns))
    return 1 + 2 * int((-(-n_nodes // ENTRY_THRESHOLDS)).sum())


def _entry_keys(forest: Forest, ranks: RankTables) -> npt.NDArray[np.int64]:
    """A number for each node's entry: column, which of its runs of thresholds, side of missing values."""
    nan_left = (forest.routing & NAN_LEFT) != 0
    run = ranks.of_node.astype(np.int64) // ENTRY_THRESHOLDS
    return ranks.columns.of_node.astype(np.int64) << 32 | run << 1 | nan_left
