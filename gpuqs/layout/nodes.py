"""Nodes in the order in which a walk from the root meets them, for the `walk` engine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuqs.forest import CATEGORICAL, NAN_LEFT, Forest
from gpuqs.layout.columns import Columns, find_columns, round_down
from gpuqs.layout.leaves import LeafRanges, number_leaves

#: Sign bit of a node's column: a missing value goes left.
NAN_LEFT_BIT = np.int32(np.iinfo(np.int32).min)

#: The C++ `WalkNode<float>` and `WalkNode<double>`.
NODE32 = np.dtype([("threshold", "f4"), ("column", "i4"), ("child", "i4", 2)], align=True)
NODE64 = np.dtype([("threshold", "f8"), ("column", "i4"), ("child", "i4", 2)], align=True)


@dataclass(frozen=True)
class WalkLayout:
    """Inner nodes and leaves of each tree in one array, level by level; a leaf is its own child.

    Parameters
    ----------
    columns : Columns
    ranges : LeafRanges
    block_offsets : int32 [B + 1]
        First tree of each tree block.
    tree_offsets : int64 [T + 1]
        First item of each tree.
    node32, node64 : NODE32 and NODE64 [N + L]
        Children are counted from the tree's first item.
    leaf : int32 [N + L]
        Leaf position of each item that is a leaf, else 0.
    """

    columns: Columns
    ranges: LeafRanges
    block_offsets: npt.NDArray[np.int32]
    tree_offsets: npt.NDArray[np.int64]
    node32: np.ndarray
    node64: np.ndarray
    leaf: npt.NDArray[np.int32]


def build_walk(forest: Forest, tree_block: int) -> WalkLayout:
    """Lay a forest of numeric tests out for a walk, in blocks of ``tree_block`` trees."""
    if (forest.routing & CATEGORICAL).any():
        raise ValueError("walk holds numeric tests only")
    columns, ranges = find_columns(forest), number_leaves(forest)
    n_nodes, n_leaves = forest.n_nodes, len(forest.leaf_value)
    node_base = forest.node_offsets[forest.node_tree]
    leaf_base = forest.leaf_offsets[forest.node_tree]

    def item(child: np.ndarray) -> np.ndarray:
        """A child among all items: inner nodes first, then leaves."""
        return np.where(child >= 0, node_base + child, n_nodes + leaf_base + ~child)

    left, right = item(forest.left), item(forest.right)
    depth = np.zeros(n_nodes + n_leaves, np.int64)
    depth[:n_nodes] = forest.depth
    depth[left] = depth[right] = forest.depth + 1
    leaf_tree = np.repeat(np.arange(forest.n_trees), np.diff(forest.leaf_offsets))
    tree = np.concatenate([forest.node_tree, leaf_tree])
    order = np.lexsort((depth, tree))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    tree_offsets = forest.node_offsets + forest.leaf_offsets
    place -= tree_offsets[tree]

    node64 = np.zeros(len(order), NODE64)
    node64["threshold"] = np.inf
    node64["child"] = place[order][:, None]
    inner = np.flatnonzero(order < n_nodes)
    source = order[inner]
    node64["threshold"][inner] = forest.threshold[source]
    nan_left = (forest.routing[source] & NAN_LEFT) != 0
    node64["column"][inner] = columns.of_node[source] | np.where(nan_left, NAN_LEFT_BIT, np.int32(0))
    node64["child"][inner] = np.stack([place[left[source]], place[right[source]]], axis=1)
    node32 = np.zeros(len(order), NODE32)
    for name in ("column", "child"):
        node32[name] = node64[name]
    node32["threshold"] = round_down(node64["threshold"])
    leaf = np.zeros(len(order), np.int32)
    leaf[order >= n_nodes] = ranges.position[order[order >= n_nodes] - n_nodes]
    return WalkLayout(
        columns=columns,
        ranges=ranges,
        block_offsets=np.append(np.arange(0, forest.n_trees, tree_block), forest.n_trees).astype(np.int32),
        tree_offsets=tree_offsets,
        node32=node32,
        node64=node64,
        leaf=leaf,
    )
