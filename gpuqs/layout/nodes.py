"""Nodes in the order in which a walk from the root meets them, for the `walk` engine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuqs.forest import NAN_LEFT, Forest
from gpuqs.layout.columns import Columns, find_columns, round_down
from gpuqs.layout.leaves import LeafRanges, number_leaves

#: The C++ `Item<float>` and `Item<double>`.
ITEM32 = np.dtype([("threshold", "f4"), ("link", "u4")], align=True)
ITEM64 = np.dtype([("threshold", "f8"), ("link", "u4")], align=True)


@dataclass(frozen=True)
class WalkLayout:
    """Inner nodes and leaves of each tree in one array, level by level; right children follow left ones.

    Parameters
    ----------
    columns : Columns
    ranges : LeafRanges
    block_offsets : int32 [B + 1]
        First tree of each tree block.
    tree_offsets : int64 [T + 1]
        First item of each tree.
    column_bits : int
        Bits of a link that hold the column.
    item32, item64 : ITEM32 and ITEM64 [N + L]
        A link is ``distance to the left child << (column_bits + 1) | nan left << column_bits |
        column``. A leaf has distance 0 and threshold +inf: a walk stays there.
    leaf : int32 [N + L]
        Leaf position of each item that is a leaf, else 0.
    """

    columns: Columns
    ranges: LeafRanges
    block_offsets: npt.NDArray[np.int32]
    tree_offsets: npt.NDArray[np.int64]
    column_bits: int
    item32: np.ndarray
    item64: np.ndarray
    leaf: npt.NDArray[np.int32]


def fits_walk(forest: Forest) -> bool:
    """Whether links of 32 bits hold the forest's columns and the distances inside its trees."""
    return (2 * forest.n_leaves).bit_length() + _column_bits(find_columns(forest)) <= 31


def _column_bits(columns: Columns) -> int:
    return max(len(columns) - 1, 0).bit_length()


def build_walk(forest: Forest, tree_block: int) -> WalkLayout:
    """Lay a forest that `fits_walk` out for a walk, in blocks of ``tree_block`` trees."""
    columns, ranges = find_columns(forest), number_leaves(forest)
    n_nodes, n_items = forest.n_nodes, forest.n_nodes + len(forest.leaf_value)
    left, right = _children(forest)
    tree_offsets = forest.node_offsets + forest.leaf_offsets
    place = _places(forest, left, right, tree_offsets)

    column_bits = _column_bits(columns)
    distance = place[left] - place[:n_nodes]
    nan_left = (forest.routing & NAN_LEFT) != 0
    item64 = np.zeros(n_items, ITEM64)
    item64["threshold"] = np.inf
    item64["link"] = 1 << column_bits
    item64["threshold"][place[:n_nodes]] = columns.threshold
    link = distance << (column_bits + 1) | nan_left.astype(np.int64) << column_bits | columns.of_node
    item64["link"][place[:n_nodes]] = link
    item32 = np.zeros(n_items, ITEM32)
    item32["link"] = item64["link"]
    item32["threshold"] = round_down(item64["threshold"])
    leaf = np.zeros(n_items, np.int32)
    leaf[place[n_nodes:]] = ranges.position
    return WalkLayout(
        columns=columns,
        ranges=ranges,
        block_offsets=np.append(np.arange(0, forest.n_trees, tree_block), forest.n_trees).astype(np.int32),
        tree_offsets=tree_offsets,
        column_bits=column_bits,
        item32=item32,
        item64=item64,
        leaf=leaf,
    )


def _children(forest: Forest) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Each node's children among all items: the forest's nodes first, then its leaves."""
    node_base = forest.node_offsets[forest.node_tree]
    leaf_base = forest.n_nodes + forest.leaf_offsets[forest.node_tree]
    left, right = (np.where(c >= 0, node_base + c, leaf_base + ~c) for c in (forest.left, forest.right))
    return left, right


def _places(
    forest: Forest, left: np.ndarray, right: np.ndarray, tree_offsets: np.ndarray
) -> npt.NDArray[np.int64]:
    """Where each item stands: tree by tree, level by level, siblings side by side in their parents' order."""
    leaf_tree = np.repeat(np.arange(forest.n_trees), np.diff(forest.leaf_offsets))
    tree = np.concatenate([forest.node_tree, leaf_tree])
    place = tree_offsets[tree]  # right for roots; the others follow from their parents
    depth = forest.depth
    by_depth = np.argsort(depth, kind="stable")
    level_start = tree_offsets[:-1] + 1  # first free place of the next level, per tree
    for nodes in np.split(by_depth, np.flatnonzero(np.diff(depth[by_depth])) + 1):
        nodes = nodes[np.argsort(place[nodes], kind="stable")]
        trees = forest.node_tree[nodes]
        first = np.searchsorted(trees, trees)  # nodes are sorted by tree, as places are
        start = level_start[trees] + 2 * (np.arange(len(nodes)) - first)
        place[left[nodes]], place[right[nodes]] = start, start + 1
        level_start = level_start + 2 * np.bincount(trees, minlength=forest.n_trees)
    return place
