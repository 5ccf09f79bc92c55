"""The layout of `walk`: nodes with thresholds, and leaves, in pairs of siblings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuqs.forest import NAN_LEFT, Forest
from gpuqs.layout.columns import Columns, find_columns, round_down
from gpuqs.layout.leaves import number_leaves
from gpuqs.layout.traversal import pair_up

#: Most leaves of a tree: the payload of a float32 NaN.
MAX_LEAVES = 1 << 22
#: The C++ `Item<float>` and `Item<double>`.
ITEM32 = np.dtype([("threshold", "f4"), ("link", "u4")], align=True)
ITEM64 = np.dtype([("threshold", "f8"), ("link", "u4")], align=True)


@dataclass(frozen=True)
class WalkLayout:
    """The items (nodes and leaves) of each tree in one array: pairs of siblings in preorder of their parents, so
    that a subtree's items lie together.

    Parameters
    ----------
    columns : Columns
    position : int32 [L]
        Of each leaf in its tree, from left to right.
    block_offsets : int32 [B + 1]
        First tree of each tree block.
    tree_offsets : int64 [T + 1]
        First item of each tree.
    column_bits : int
        Bits of a link that hold the column.
    item32, item64 : ITEM32 and ITEM64 [N + L]
        A link is ``distance to the left child << (column_bits + 1) | nan left << column_bits |
        column``. A leaf has distance 0, sends missing values left, and its threshold is a NaN whose
        lowest bits are its position among the tree's leaves: a walk stays there.
    """

    columns: Columns
    position: npt.NDArray[np.int32]
    block_offsets: npt.NDArray[np.int32]
    tree_offsets: npt.NDArray[np.int64]
    column_bits: int
    item32: np.ndarray
    item64: np.ndarray


def fits_walk(forest: Forest) -> bool:
    """Whether links of 32 bits hold the forest's columns and the distances inside its trees, and NaNs its leaves."""
    link_bits = (2 * forest.n_leaves).bit_length() + _column_bits(find_columns(forest))
    return link_bits <= 31 and forest.n_leaves <= MAX_LEAVES


def _column_bits(columns: Columns) -> int:
    return max(len(columns) - 1, 0).bit_length()


def build_walk(forest: Forest, tree_block: int) -> WalkLayout:
    """Lay a forest that `fits_walk` out for a walk, in blocks of ``tree_block`` trees."""
    columns, position = find_columns(forest), number_leaves(forest).position
    n_nodes, n_items = forest.n_nodes, forest.n_nodes + len(forest.leaf_value)
    place, distance, tree_offsets = pair_up(forest)
    column_bits = _column_bits(columns)
    nan_left = (forest.routing & NAN_LEFT) != 0
    link = np.full(n_items, 1 << column_bits, np.uint32)
    link[place[:n_nodes]] = (
        distance << (column_bits + 1) | nan_left.astype(np.int64) << column_bits | columns.of_node
    )
    item32, item64 = np.zeros(n_items, ITEM32), np.zeros(n_items, ITEM64)
    for item, threshold in ((item32, round_down(columns.threshold)), (item64, columns.threshold)):
        kind = item["threshold"].dtype
        bits = np.array(np.nan, kind).view(f"u{kind.itemsize}") | position.astype(f"u{kind.itemsize}")
        item["link"] = link
        item["threshold"][place[:n_nodes]] = threshold
        item["threshold"][place[n_nodes:]] = bits.view(kind)
    return WalkLayout(
        columns=columns,
        position=position,
        block_offsets=np.append(np.arange(0, forest.n_trees, tree_block), forest.n_trees).astype(np.int32),
        tree_offsets=tree_offsets,
        column_bits=column_bits,
        item32=item32,
        item64=item64,
    )
