"""The layout of `walk_gpu`: nodes in preorder, 16 bytes each; walks count the leaves that they pass.

Leaves take no space. A step to the right passes the leaves of the left subtree and equally many nodes: the node itself
and those of that subtree, which has one node fewer than leaves. So trees may have any number of leaves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuqs.forest import NAN_LEFT, Forest
from gpuqs.layout.columns import Columns, find_columns, round_down
from gpuqs.layout.leaves import number_leaves
from gpuqs.layout.traversal import preorder

#: Flag in a node's `column`: missing values go left.
MISSING_LEFT = 1 << 31
#: Flag in a node's `column`: the right child is a leaf. (The left child is one if `n_left` is 1.)
RIGHT_IS_LEAF = 1 << 30
#: A forest has fewer leaves than this, and fewer columns, whose numbers are below the flags.
MAX_POSITIONS = RIGHT_IS_LEAF
#: The kernels' nodes, with thresholds of the type in which documents are tested.
NODE32 = np.dtype([("threshold", "f4"), ("unused", "u4"), ("column", "u4"), ("n_left", "u4")])
NODE64 = np.dtype([("threshold", "f8"), ("column", "u4"), ("n_left", "u4")])


@dataclass(frozen=True)
class PreorderLayout:
    """The nodes of each tree in preorder, tree after tree.

    Parameters
    ----------
    columns : Columns
    position : int32 [L]
        Position of each leaf in its tree, from left to right.
    roots : int32 [T, 2]
        First node of each tree, or -1 if it is a single leaf; and its first leaf.
    node32, node64 : NODE32 and NODE64 [N]
        The column with its flags, and how many leaves the left subtree has.
    """

    columns: Columns
    position: npt.NDArray[np.int32]
    roots: npt.NDArray[np.int32]
    node32: np.ndarray
    node64: np.ndarray


def build_preorder(forest: Forest) -> PreorderLayout:
    """Lay a forest of fewer than `MAX_POSITIONS` leaves out for walks."""
    columns, ranges = find_columns(forest), number_leaves(forest)
    at = preorder(forest)
    flags = np.where(forest.routing & NAN_LEFT, MISSING_LEFT, 0) | np.where(forest.right < 0, RIGHT_IS_LEAF, 0)
    node32, node64 = np.zeros(forest.n_nodes, NODE32), np.zeros(forest.n_nodes, NODE64)
    for node, threshold in ((node32, round_down(columns.threshold)), (node64, columns.threshold)):
        node["threshold"][at] = threshold
        node["column"][at] = columns.of_node | flags
        node["n_left"][at] = ranges.n_left
    one_leaf = np.diff(forest.node_offsets) == 0
    roots = np.stack([np.where(one_leaf, -1, forest.node_offsets[:-1]), forest.leaf_offsets[:-1]], axis=1)
    return PreorderLayout(columns, ranges.position, roots.astype(np.int32), node32, node64)
