"""The layout of `walk`: items in preorder, which are nodes and leaves in pairs of siblings, or only nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuqs import cache_lines
from gpuqs.forest import NAN_LEFT, Forest
from gpuqs.layout.columns import Columns, find_columns, round_down
from gpuqs.layout.leaves import number_leaves
from gpuqs.layout.tops import Tops, build_tops
from gpuqs.layout.traversal import pair_up, preorder

#: Upper limit of leaves in a tree with short links: a leaf's position is the end of its key, above the keys of values.
MAX_SHORT_LEAVES = 1 << 22
#: Upper limit of leaves in any tree, so that its items stay well within int32. Long keys end in positions up to it.
MAX_LEAVES = 1 << 25
#: Upper limit of items in a tree block: kernels count its bytes, sixteen per item, in 32 bits. A tree has fewer.
MAX_TOGETHER = 1 << 26
#: Upper limit of values in a block of documents, which are also counted in 32 bits.
MAX_VALUES = (1 << 31) - 1
#: The C++ `Item<float>` and `Item<double>`.
ITEM32 = np.dtype([("key", "u4"), ("link", "u4")], align=True)
ITEM64 = np.dtype([("key", "u8"), ("link", "u8")])


@dataclass(frozen=True)
class WalkLayout:
    """Trees one after another, each in an order that keeps subtrees together.

    Parameters
    ----------
    columns : Columns
    position : int32 [L]
        Position of each leaf in its tree, from left to right.
    block_offsets : int32 [B + 1]
        First tree of each tree block, which has at most `MAX_TOGETHER` items.
    tree_offsets : int64 [T + 1]
        First item (or node) of each tree.
    column_bits : int
        Bits of a link that hold the column.
    nodes_alone : bool
        Whether items are only nodes.
    wide : bool
        Whether links need more than 32 bits. Then there are no `item32`, and float32 documents become
        float64, which changes no comparison.
    item32, item64 : ITEM32 and ITEM64 [N + L]
        Pairs of siblings in preorder of their parents. A link is ``distance to the left child << (column_bits + 1) |
        nan left << column_bits | column``, and a node's key is that of its threshold (`order_keys`). A leaf has
        distance 0, sends missing values left, and its key is above those of all values: a walk stays there. The key's
        lowest bits are the leaf's position in the tree. Forests that round documents to float32 need no `item64` unless
        links are wide.

        With `nodes_alone`, [N]: nodes in preorder, so that a left child follows its parent. A key is the bits of the
        threshold itself. A link is ``leaves to the left << (column_bits + 2) | the right child is a leaf <<
        (column_bits + 1) | nan left << column_bits | column``. A step to the right passes those leaves and equally many
        nodes, including the node itself. (The left child is a leaf if one leaf is to the left.)
    tops : Tops, optional
        Tops that calls with many documents go through before they walk.
    """

    columns: Columns
    position: npt.NDArray[np.int32]
    block_offsets: npt.NDArray[np.int32]
    tree_offsets: npt.NDArray[np.int64]
    column_bits: int
    nodes_alone: bool
    wide: bool
    item32: np.ndarray
    item64: np.ndarray
    tops: Tops | None = None


def has_short_links(forest: Forest) -> bool:
    """Whether 32-bit links hold the forest's columns and the distances in its trees, and float32 NaNs its leaves."""
    link_bits = (2 * forest.n_leaves).bit_length() + _column_bits(find_columns(forest))
    return link_bits <= 31 and forest.n_leaves <= MAX_SHORT_LEAVES


def _column_bits(columns: Columns) -> int:
    return max(len(columns) - 1, 0).bit_length()


def build_walk(forest: Forest, tree_block: int, *, nodes_alone: bool, with_tops: bool = False) -> WalkLayout:
    """Lay a forest out for a walk, in blocks of ``tree_block`` trees of at most `MAX_LEAVES` leaves.

    ``nodes_alone`` requires `has_short_links`. ``with_tops`` requires items of nodes and leaves, and no category sets;
    there are tops then if bit slices can hold them and their tree blocks are the same as the walk's.
    """
    if nodes_alone and not has_short_links(forest):
        raise ValueError("walks over nodes alone have links of 32 bits, and this forest needs longer ones")
    columns, ranges = find_columns(forest), number_leaves(forest)
    column_bits, wide = _column_bits(columns), not has_short_links(forest)
    nan_left = (forest.routing & NAN_LEFT) != 0
    of_node = nan_left.astype(np.int64) << column_bits | columns.of_node
    if nodes_alone:
        place, tree_offsets = preorder(forest), forest.node_offsets.astype(np.int64)
        right_is_leaf = (forest.right < 0).astype(np.int64) << (column_bits + 1)
        link = np.empty(forest.n_nodes, np.uint64)
        link[place] = ranges.n_left.astype(np.int64) << (column_bits + 2) | right_is_leaf | of_node
    else:
        place, distance, tree_offsets = pair_up(forest)
        link = np.full(len(place), 1 << column_bits, np.uint64)
        link[place[: forest.n_nodes]] = distance << (column_bits + 1) | of_node
    blocks = _blocks(tree_offsets, tree_block)
    tops = build_tops(forest, tree_block, place, tree_offsets) if with_tops else None
    if tops is not None and not np.array_equal(blocks, tops.programs.block_offsets):
        tops = None
    doubles = wide or forest.input_dtype != "float32"
    item32 = cache_lines.zeros(0 if wide else len(link), ITEM32)
    item64 = cache_lines.zeros(len(link) if doubles else 0, ITEM64)
    kinds: list[tuple[np.ndarray, np.ndarray, int]] = []
    if doubles:
        kinds.append((item64, columns.threshold, MAX_LEAVES))
    if not wide:
        kinds.append((item32, round_down(columns.threshold), MAX_SHORT_LEAVES))
    for item, threshold, most in kinds:
        item["link"] = link
        kind = item["key"].dtype
        item["key"][place[: forest.n_nodes]] = threshold.view(kind) if nodes_alone else order_keys(threshold)
        if not nodes_alone:
            item["key"][place[forest.n_nodes :]] = ranges.position.astype(kind) - kind.type(most)  # the largest keys
    return WalkLayout(
        columns=columns,
        position=ranges.position,
        block_offsets=blocks,
        tree_offsets=tree_offsets,
        column_bits=column_bits,
        nodes_alone=nodes_alone,
        wide=wide,
        item32=item32,
        item64=item64,
        tops=tops,
    )


def max_rows(layout: WalkLayout) -> int:
    """Upper limit of documents in a block."""
    return max(MAX_VALUES // max(len(layout.columns), 1), 1)


def _blocks(tree_offsets: npt.NDArray[np.int64], tree_block: int) -> npt.NDArray[np.int32]:
    """First tree of each block of ``tree_block`` trees, or as many as have `MAX_TOGETHER` items, but at least one."""
    offsets, n_trees = [0], len(tree_offsets) - 1
    while (first := offsets[-1]) < n_trees:
        fit = int(np.searchsorted(tree_offsets, tree_offsets[first] + MAX_TOGETHER, "right")) - 1
        offsets.append(min(first + tree_block, max(fit, first + 1), n_trees))
    return np.array(offsets, np.int32)


def order_keys(values: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.unsignedinteger[Any]]:
    """Unsigned integers of the values' size in the order of the values, above 0; 0 and -0 have the same."""
    bits = (values + values.dtype.type(0)).view(f"u{values.dtype.itemsize}")
    sign = bits.dtype.type(8 * values.dtype.itemsize - 1)
    keys: npt.NDArray[np.unsignedinteger[Any]] = bits ^ ((0 - (bits >> sign)) | bits.dtype.type(1) << sign)
    return keys
