"""Tree programs of `bitslice`: as treelets, which are interpreted, and as nodes, which are compiled.

Both say for each node between leaves j-1 and j which predicate gives ``S_j = S_end | (S_first & predicate)``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuqs import cache_lines
from gpuqs.cpu_fallback import making
from gpuqs.forest import Forest
from gpuqs.layout.leaves import LeafRanges
from gpuqs.layout.treelets import cut_into_treelets

#: Bytes of the narrowest word, the unit of places of words in treelets; the C++ `kNarrowestWord`.
NARROWEST_WORD = 16
#: Trees whose programs run merged, level by level, to hide latency; too large trees run one by one.
TREES_MERGED = 4
#: Upper limit of the slots of merged trees: 16 bits hold a slot's place in bytes. It limits a tree's leaves, too.
MAX_SLOTS = (1 << 16) // NARROWEST_WORD
MAX_LEAVES = MAX_SLOTS - 2

#: The C++ `Treelet`: a node and those of its children (left, right) that its kind names. Slots and
#: predicates are places of words, times `NARROWEST_WORD`: in the group's S, and in the superblock's predicates.
TREELET = np.dtype(
    [("predicate", "u4", 3), ("slot", "u2", 3), ("first", "u2"), ("end", "u2"), ("zero", "u2")]
)
#: The C++ `Run`: consecutive treelets of one kind; kind bit 0: with the left child, bit 1: with the right.
RUN = np.dtype([("kind", "u2"), ("count", "u2")])
#: The C++ `TreeNode`: a node's predicate, and the numbers j of its children; 0 stands for a leaf.
TREE_NODE = np.dtype([("predicate", "u4"), ("left", "u2"), ("right", "u2")])


@dataclass(frozen=True)
class TreeletPrograms:
    """Programs as treelets; G groups of merged trees, T trees.

    Parameters
    ----------
    trees_merged : int
        Trees of a group: `TREES_MERGED`, or 1.
    group_runs : int64 [G + 1]
        Bounds of the runs of each group of ``trees_merged`` trees.
    runs : RUN [...]
    group_treelets : int64 [G + 1]
    treelets : TREELET [...]
        In the order of the runs.
    tree_slot : uint16 [T]
        Slot of each tree's S_0; its S_j follow.
    n_slots : int
        Slots of the largest group; slot 0 holds zeros.
    """

    trees_merged: int
    group_runs: npt.NDArray[np.int64]
    runs: np.ndarray
    group_treelets: npt.NDArray[np.int64]
    treelets: np.ndarray
    tree_slot: npt.NDArray[np.uint16]
    n_slots: int


@dataclass(frozen=True)
class NodePrograms:
    """Programs as nodes, from which machine code is made; T trees, L leaves.

    Parameters
    ----------
    node_offsets : int64 [T + 1]
        Where each tree's entries start: one for each leaf.
    nodes : TREE_NODE [L]
        Entry j of a tree is the node between its leaves j-1 and j; entry 0 has the root on its right.
    """

    node_offsets: npt.NDArray[np.int64]
    nodes: np.ndarray


def node_programs(forest: Forest, ranges: LeafRanges, predicate: npt.NDArray[np.int32]) -> NodePrograms:
    """Programs as nodes.

    Parameters
    ----------
    forest : Forest
    ranges : LeafRanges
    predicate : int32 [N]
        Predicate of each node within its superblock.
    """
    nodes = cache_lines.zeros(len(forest.leaf_value), TREE_NODE)
    making.node_programs(forest, ranges.middle, predicate, nodes)
    return NodePrograms(forest.leaf_offsets, nodes)


def treelet_programs(
    forest: Forest, ranges: LeafRanges, predicate: npt.NDArray[np.int32], by_program: npt.NDArray[np.bool_]
) -> TreeletPrograms:
    """Programs as treelets, parents before children, the trees of a group interleaved level by level.

    Parameters
    ----------
    forest, ranges, predicate
        As in `node_programs`.
    by_program : bool [T]
        Trees that have a program.
    """
    trees_merged = TREES_MERGED if TREES_MERGED * forest.n_leaves < MAX_SLOTS else 1
    n_leaves = np.diff(forest.leaf_offsets)
    group_of_tree = np.arange(forest.n_trees) // trees_merged
    n_groups = -(-forest.n_trees // trees_merged)
    before = np.cumsum(n_leaves) - n_leaves
    tree_slot = 1 + before - before[::trees_merged][group_of_tree]  # slot 0 is S_L of every tree: zeros
    slot0 = tree_slot[forest.node_tree]
    end = np.where(ranges.end == n_leaves[forest.node_tree], 0, slot0 + ranges.end)

    all_treelets = cut_into_treelets(forest)
    order = np.lexsort((all_treelets.kind, all_treelets.level, group_of_tree[forest.node_tree[all_treelets.root]]))
    order = order[by_program[forest.node_tree[all_treelets.root[order]]]]
    root, kind, level = all_treelets.root[order], all_treelets.kind[order], all_treelets.level[order]
    group = group_of_tree[forest.node_tree[root]]
    treelets = np.zeros(len(root), TREELET)
    treelets["first"], treelets["end"] = (slot0 + ranges.first)[root], end[root]
    base = forest.node_offsets[forest.node_tree[root]]
    for at, node in enumerate((root, base + forest.left[root], base + forest.right[root])):
        there = np.ones(len(root), bool) if at == 0 else (kind & at) != 0
        treelets["predicate"][there, at] = predicate[node[there]]
        treelets["slot"][there, at] = (slot0 + ranges.middle)[node[there]]
    for field in ("predicate", "slot", "first", "end"):
        treelets[field] *= NARROWEST_WORD

    key = np.stack([group, level, kind])
    starts = np.flatnonzero(np.append(True, (key[:, 1:] != key[:, :-1]).any(axis=0))[: len(root)])
    runs = np.zeros(len(starts), RUN)
    runs["kind"] = kind[starts]
    runs["count"] = np.diff(np.append(starts, len(root)))
    groups = np.arange(n_groups + 1)
    return TreeletPrograms(
        trees_merged=trees_merged,
        group_runs=np.searchsorted(group[starts], groups).astype(np.int64),
        runs=runs,
        group_treelets=np.searchsorted(group, groups).astype(np.int64),
        treelets=treelets,
        tree_slot=tree_slot.astype(np.uint16),
        n_slots=int(np.bincount(group_of_tree, n_leaves, minlength=1).max()) + 1,
    )
