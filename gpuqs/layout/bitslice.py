"""The bit-sliced layout: distinct tests as words over documents, trees as boolean programs.

For a group of documents every distinct test of the forest, a *predicate*, becomes one word: bit d
is "the test is false for document d". Number a tree's leaves 0 ... L-1 from left to right, and let
``S_j`` be the word of "the exit leaf is j or further right". The node between leaves j-1 and j, whose
subtree covers the leaves [first, end), gives ``S_j = S_end | (S_first & predicate)`` with S_0 = ones
and S_L = zeros: one operation per node for all documents of the group.

The exit leaf's number falls out in Gray code: bit k of it is the XOR of the S_j with j an odd
multiple of 2^k, so that each S_j enters one bit alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gpuqs.forest import NAN_LEFT, Forest
from gpuqs.layout.leaves import LeafRanges, LeafValues, number_leaves
from gpuqs.layout.ranks import RankTables, build_ranks

#: Trees whose programs run merged, level by level, to hide the latency of each.
TREES_MERGED = 4
#: Trees whose exit leaves are found before their values are added: the leaves stay in the L1/L2 caches.
TREES_PER_BATCH = 64
#: Most leaves of a tree: slots are counted in 16 bits.
MAX_LEAVES = 4096

#: The C++ `Segment`: predicates of a column with the same rank above the low 4 bits.
SEGMENT = np.dtype([("column", "u2"), ("high", "u2"), ("nan_left", "u1"), ("count", "u1")])
#: The C++ `Node`: slots are words of the merged trees' S, predicates words of their block.
NODE = np.dtype([("predicate", "u2"), ("first", "u2"), ("end", "u2"), ("slot", "u2")])


@dataclass(frozen=True)
class BitsliceLayout:
    """A forest as predicates and programs; B tree batches, G merged groups of trees, T trees.

    Parameters
    ----------
    ranks : RankTables
    ranges : LeafRanges
    batch_offsets : int32 [B + 1]
        First tree of each batch. Batches are multiples of `TREES_MERGED` trees but for the last.
    batch_segments : int64 [B + 1]
        Segments that a batch decodes before it runs; none where the batch before left its words.
    segments : SEGMENT [...]
    low : uint8 [...]
        Low 4 bits of each predicate's rank, in the order in which words are stored.
    batch_low : int64 [B + 1]
        Where each batch's predicates start in `low`.
    n_words : int
        Largest number of predicates of one block.
    group_nodes : int64 [G + 1]
        Nodes of each group of `TREES_MERGED` trees.
    nodes : NODE [N]
    tree_slot : uint16 [T]
        Slot of each tree's S_0; its S_j follow.
    tree_leaves : uint16 [T]
    n_slots : int
        Slots of the largest group; slot 0 holds zeros.
    """

    ranks: RankTables
    ranges: LeafRanges
    batch_offsets: npt.NDArray[np.int32]
    batch_segments: npt.NDArray[np.int64]
    segments: np.ndarray
    low: npt.NDArray[np.uint8]
    batch_low: npt.NDArray[np.int64]
    n_words: int
    group_nodes: npt.NDArray[np.int64]
    nodes: np.ndarray
    tree_slot: npt.NDArray[np.uint16]
    tree_leaves: npt.NDArray[np.uint16]
    n_slots: int


def build_bitslice(forest: Forest, max_words: int) -> BitsliceLayout:
    """Lay a forest out as predicates and programs.

    Parameters
    ----------
    forest : Forest
        Numeric tests, at most `MAX_LEAVES` leaves a tree, at most 65,535 thresholds a column.
    max_words : int
        Predicates of a block of trees, as far as whole batches allow: what fits the L2 cache.
    """
    ranks, ranges = build_ranks(forest), number_leaves(forest)
    key = _predicate_keys(forest, ranks)
    batch_offsets = np.append(np.arange(0, forest.n_trees, TREES_PER_BATCH), forest.n_trees).astype(np.int32)
    node_batches = forest.node_offsets[batch_offsets]
    word = np.zeros(forest.n_nodes, np.int64)
    segments, lows = [], []
    batch_segments, batch_low = [0], [0]
    n_words, batch, n_batches = 0, 0, len(batch_offsets) - 1
    while batch < n_batches:
        last, distinct = _block_end(key, node_batches, batch, max_words)
        nodes = slice(int(node_batches[batch]), int(node_batches[last]))
        word[nodes] = np.searchsorted(distinct, key[nodes])
        block_segments, low = _segments(distinct, ranks)
        segments.append(block_segments)
        lows.append(low)
        n_words = max(n_words, len(distinct))
        # All of a block's words are decoded by its first batch.
        batch_segments += [batch_segments[-1] + len(block_segments)] * (last - batch)
        batch_low += [batch_low[-1] + len(low)] * (last - batch)
        batch = last
    group_nodes, nodes, tree_slot, n_slots = _programs(forest, ranges, word)
    return BitsliceLayout(
        ranks=ranks,
        ranges=ranges,
        batch_offsets=batch_offsets,
        batch_segments=np.array(batch_segments, np.int64),
        segments=np.concatenate([*segments, np.zeros(0, SEGMENT)]),
        low=np.concatenate([*lows, np.zeros(0, np.uint8)]),
        batch_low=np.array(batch_low, np.int64),
        n_words=n_words,
        group_nodes=group_nodes,
        nodes=nodes,
        tree_slot=tree_slot,
        tree_leaves=np.diff(forest.leaf_offsets).astype(np.uint16),
        n_slots=n_slots,
    )


def _predicate_keys(forest: Forest, ranks: RankTables) -> npt.NDArray[np.int64]:
    """One number per distinct (column, missing goes left, threshold), ascending in that order."""
    nan_left = (forest.routing & NAN_LEFT) != 0
    column = ranks.columns.of_node.astype(np.int64)
    return (column << 17) | (nan_left.astype(np.int64) << 16) | ranks.of_node


def _block_end(
    key: np.ndarray, node_batches: np.ndarray, batch: int, max_words: int
) -> tuple[int, npt.NDArray[np.int64]]:
    """The end of the block that starts with ``batch``, and its distinct predicates."""
    last, distinct = batch, np.zeros(0, np.int64)
    while last < len(node_batches) - 1:
        grown = np.union1d(distinct, key[node_batches[last] : node_batches[last + 1]])
        if last > batch and len(grown) > max_words:
            break
        last, distinct = last + 1, grown
    return last, distinct


def _segments(distinct: npt.NDArray[np.int64], ranks: RankTables) -> tuple[np.ndarray, npt.NDArray[np.uint8]]:
    """Predicates in runs that share all but the low 4 bits of the rank."""
    run, counts = np.unique(distinct >> 4, return_counts=True)
    segments = np.zeros(len(run), SEGMENT)
    segments["column"] = run >> 13
    segments["nan_left"] = run >> 12 & 1
    segments["high"] = run & 0xFFF
    segments["count"] = counts
    return segments, (distinct & 15).astype(np.uint8)


def _programs(
    forest: Forest, ranges: LeafRanges, word: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], np.ndarray, npt.NDArray[np.uint16], int]:
    """Nodes of each group of trees, parents before children, trees interleaved level by level."""
    n_leaves = np.diff(forest.leaf_offsets)
    tree = np.arange(forest.n_trees)
    group_of_tree = tree // TREES_MERGED
    n_groups = -(-forest.n_trees // TREES_MERGED)
    before = np.cumsum(n_leaves) - n_leaves
    group_start = before[::TREES_MERGED] if n_groups else np.zeros(0, np.int64)
    tree_slot = 1 + before - group_start[group_of_tree]  # slot 0 is S_L of every tree: zeros
    slot0 = tree_slot[forest.node_tree]
    nodes = np.zeros(forest.n_nodes, NODE)
    nodes["predicate"] = word
    nodes["first"] = slot0 + ranges.first
    nodes["slot"] = slot0 + ranges.middle
    nodes["end"] = np.where(ranges.end == n_leaves[forest.node_tree], 0, slot0 + ranges.end)
    group = group_of_tree[forest.node_tree]
    order = np.lexsort((forest.node_tree, forest.depth, group))
    group_nodes = np.searchsorted(group[order], np.arange(n_groups + 1)).astype(np.int64)
    slots = np.bincount(group_of_tree, n_leaves, minlength=1)
    return group_nodes, nodes[order], tree_slot.astype(np.uint16), int(slots.max()) + 1


def gray_values(values: LeafValues, n_leaves: npt.NDArray[np.int64]) -> LeafValues:
    """Leaf values where leaf e stands at ``e ^ (e >> 1)``, each tree padded to a power of two.

    Trees of up to 256 leaves are padded to at least 64, so that whole registers can be loaded.
    """
    size = np.left_shift(1, np.ceil(np.log2(np.maximum(n_leaves, 1))).astype(np.int64))
    size = np.maximum(size, 64)
    offsets = np.concatenate([[0], np.cumsum(size)])
    tree = np.repeat(np.arange(len(n_leaves)), n_leaves)
    leaf = np.arange(len(tree)) - np.repeat(values.offsets[:-1], n_leaves)
    place = offsets[tree] + (leaf ^ (leaf >> 1))
    value = np.zeros((offsets[-1], values.value.shape[1]), values.value.dtype)
    value[place] = values.value
    leaf_id = np.zeros(offsets[-1], np.int32)
    leaf_id[place] = values.leaf_id
    return replace(values, value=value, leaf_id=leaf_id, offsets=offsets.astype(np.int64))
