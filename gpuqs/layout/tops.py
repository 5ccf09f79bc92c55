"""The tops of large trees: for many documents `bitslice`'s programs go through them, and `walk` continues below."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuqs import cache_lines
from gpuqs.cpu_fallback.making import put_in_gray_code, put_in_order
from gpuqs.forest import Forest
from gpuqs.layout.bitslice import MAX_COLUMNS, TREE_BLOCK, BitsliceLayout, build_bitslice, why_not
from gpuqs.layout.ranks import build_ranks

#: Levels of a top: one byte numbers its exits, and programs for eight levels take less time than walks over two.
TOP_LEVELS = 8
#: Most exits of a top.
TOP_EXITS = 1 << TOP_LEVELS


@dataclass(frozen=True)
class Tops:
    """The first `TOP_LEVELS` levels of each tree, as programs, and where walks go on.

    Parameters
    ----------
    programs : BitsliceLayout
        Programs of the tops. Each tree block with nodes is a superblock: all documents pass one before the next.
    start : int32 [T, TOP_EXITS]
        The node or leaf at each exit, by the number that a program gives it: its place after the tree's first item.
    """

    programs: BitsliceLayout
    start: npt.NDArray[np.int32]


def cut_off(forest: Forest) -> tuple[Forest, npt.NDArray[np.int32]]:
    """The tops as a forest, whose leaves are the exits; and the child at each exit, as in `Forest.left`, int32 [exits].

    The forest has no category sets.
    """
    is_top = forest.depth < TOP_LEVELS
    n_before = np.append(0, np.cumsum(is_top))  # nodes of tops
    node_offsets = n_before[forest.node_offsets]
    child = np.stack([forest.left, forest.right], axis=1)[is_top]
    tree = np.repeat(np.arange(forest.n_trees), np.diff(node_offsets))  # of each node of a top
    first = forest.node_offsets[tree][:, None]
    node = first + np.maximum(child, 0)
    is_exit = (child < 0) | ~is_top[node]
    exits_before = np.append(0, np.cumsum(is_exit.sum(axis=1)))[node_offsets]
    has_nodes = np.diff(node_offsets) > 0
    n_exits = np.where(has_nodes, np.diff(exits_before), 1)
    exit_number = np.cumsum(is_exit).reshape(is_exit.shape) - 1 - exits_before[tree][:, None]
    kept = np.where(is_exit, ~exit_number, n_before[node] - node_offsets[tree][:, None])
    leaf_offsets = np.append(0, np.cumsum(n_exits))
    at_exit = np.full(leaf_offsets[-1], ~0, np.int32)  # trees without nodes have their one leaf there
    at_exit[np.repeat(has_nodes, n_exits)] = child[is_exit]
    top = Forest(
        n_features=forest.n_features,
        node_offsets=node_offsets,
        leaf_offsets=leaf_offsets,
        feature=forest.feature[is_top],
        threshold=forest.threshold[is_top],
        left=kept[:, 0].astype(np.int32),
        right=kept[:, 1].astype(np.int32),
        routing=forest.routing[is_top],
        leaf_value=np.zeros((leaf_offsets[-1], 1)),
        input_dtype=forest.input_dtype,
    )
    return top, at_exit


def build_tops(
    forest: Forest, tree_block: int, place: npt.NDArray[np.int64], tree_offsets: npt.NDArray[np.int64]
) -> Tops | None:
    """Lay the tops out, if bit slices hold them.

    ``place``: of each node, then of each leaf; ``tree_offsets``: each tree's first place.
    """
    top, at_exit = cut_off(forest)
    if why_not(top, TOP_EXITS, MAX_COLUMNS):
        return None
    tree_block = min(tree_block, TREE_BLOCK)
    ranks, none = build_ranks(top), 0  # each tree block is a superblock of its own
    programs = build_bitslice(top, ranks, max_predicates=none, max_nodes=none, compiled=True, tree_block=tree_block)
    tree = np.repeat(np.arange(forest.n_trees), np.diff(top.leaf_offsets))
    inner = forest.node_offsets[tree] + at_exit
    leaf = forest.n_nodes + forest.leaf_offsets[tree] + ~at_exit
    start = (place[np.where(at_exit < 0, leaf, inner)] - tree_offsets[tree]).astype(np.int32)
    in_order = np.empty_like(start)
    put_in_order(top.leaf_offsets, programs.position, start, in_order)
    by_number = cache_lines.zeros((forest.n_trees, TOP_EXITS), np.int32)
    offsets = np.arange(forest.n_trees + 1) * TOP_EXITS
    put_in_gray_code(top.leaf_offsets, programs.oblivious, offsets, in_order, by_number)
    return Tops(programs, by_number)
