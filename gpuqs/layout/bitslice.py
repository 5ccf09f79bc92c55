"""The bit-sliced layout: distinct tests as words over documents, trees as boolean programs.

For a group of documents every distinct test of the forest, a *predicate*, becomes one word: bit d
is "the test is false for document d". Number a tree's leaves 0 ... L-1 from left to right, and let
``S_j`` be the word of "the exit leaf is j or further right". The node between leaves j-1 and j, whose
subtree covers the leaves [first, end), gives ``S_j = S_end | (S_first & predicate)`` with S_0 = ones
and S_L = zeros: one operation per node for all documents of the group.

The exit leaf's number falls out in Gray code: bit k of it is the XOR of the S_j with j an odd
multiple of 2^k, so that each S_j enters one bit alone.

An oblivious tree, which tests the same at every node of a level, needs no program: its predicates
are the bits of the exit leaf's number, the root's the highest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuqs.forest import NAN_LEFT, Forest
from gpuqs.layout.leaves import LeafRanges, LeafValues, number_leaves
from gpuqs.layout.ranks import RankTables, build_ranks
from gpuqs.layout.treelets import tile_trees

#: Bytes of the narrowest word, in which treelets say where words start; the C++ `kNarrowestWord`.
NARROWEST_WORD = 16
#: Trees whose programs run merged, level by level, to hide the latency of each; the largest trees run alone.
TREES_MERGED = 4
#: Trees whose exit leaves are found before their values are added: the leaves stay in the L1/L2 caches.
#: Fewer where trees are so large that a batch might have more predicates than 16 bits count.
TREES_PER_BATCH = 64
MAX_PREDICATES = 1 << 16
#: Slots of merged trees, and so most leaves of a tree: 16 bits hold a slot's place in bytes.
MAX_SLOTS = (1 << 16) // NARROWEST_WORD
MAX_LEAVES = MAX_SLOTS - 2
#: Most columns of a forest: segments count them in 16 bits.
MAX_COLUMNS = 1 << 16

#: The C++ `Segment`: predicates of a column with the same rank above the low 4 bits.
SEGMENT = np.dtype([("column", "u2"), ("high", "u2"), ("nan_left", "u1"), ("count", "u1")])
#: The C++ `Treelet`: a node and those of its children (left, right) that its kind names. Slots are
#: words of the merged trees' S, predicates words of their block: both times `NARROWEST_WORD`.
TREELET = np.dtype(
    [("predicate", "u4", 3), ("slot", "u2", 3), ("first", "u2"), ("end", "u2"), ("zero", "u2")]
)
#: The C++ `Run`: consecutive treelets of one kind; kind bit 0: with the left child, bit 1: with the right.
RUN = np.dtype([("kind", "u2"), ("count", "u2")])


@dataclass(frozen=True)
class BitsliceLayout:
    """A forest as predicates and programs; B tree batches, G merged groups of trees, T trees.

    Parameters
    ----------
    ranks : RankTables
    ranges : LeafRanges
    trees_merged : int
        Trees of a group: `TREES_MERGED`, or 1.
    batch_offsets : int32 [B + 1]
        First tree of each batch. Batches are multiples of ``trees_merged`` trees but for the last.
    batch_segments : int64 [B + 1]
        Segments that a batch decodes before it runs; none where the batch before left its words.
    segments : SEGMENT [...]
    low : uint8 [...]
        Low 4 bits of each predicate's rank, in the order in which words are stored.
    batch_low : int64 [B + 1]
        Where each batch's predicates start in `low`.
    n_words : int
        Largest number of predicates of one block.
    group_runs : int64 [G + 1]
        Runs of each group of ``trees_merged`` trees.
    runs : RUN [...]
    treelets : TREELET [...]
        In the order of the runs.
    group_treelets : int64 [G + 1]
    level_offsets : int64 [T + 1]
        Levels of each tree; none of a tree that is not oblivious.
    levels : uint16 [...]
        Predicate of each level of the oblivious trees, the deepest first.
    tree_slot : uint16 [T]
        Slot of each tree's S_0; its S_j follow.
    tree_leaves : uint16 [T]
    n_slots : int
        Slots of the largest group; slot 0 holds zeros.
    """

    ranks: RankTables
    ranges: LeafRanges
    trees_merged: int
    batch_offsets: npt.NDArray[np.int32]
    batch_segments: npt.NDArray[np.int64]
    segments: np.ndarray
    low: npt.NDArray[np.uint8]
    batch_low: npt.NDArray[np.int64]
    n_words: int
    group_runs: npt.NDArray[np.int64]
    runs: np.ndarray
    treelets: np.ndarray
    group_treelets: npt.NDArray[np.int64]
    level_offsets: npt.NDArray[np.int64]
    levels: npt.NDArray[np.uint16]
    tree_slot: npt.NDArray[np.uint16]
    tree_leaves: npt.NDArray[np.uint16]
    n_slots: int

    @property
    def oblivious(self) -> npt.NDArray[np.bool_]:
        """Which trees are laid out by level; their leaves are numbered in binary, not in Gray code."""
        return np.diff(self.level_offsets) > 0


def build_bitslice(forest: Forest, max_words: int, ranks: RankTables | None = None) -> BitsliceLayout:
    """Lay a forest out as predicates and programs.

    Parameters
    ----------
    forest : Forest
        Numeric tests, at most `MAX_LEAVES` leaves a tree, at most 65,535 thresholds a column.
    max_words : int
        Predicates of a block of trees, as far as whole batches allow: what fits the L2 cache.
    ranks : RankTables, optional
        Tables of these nodes within a larger forest, so that documents coded for it fit.
    """
    ranks, ranges = ranks or build_ranks(forest), number_leaves(forest)
    key = _predicate_keys(forest, ranks)
    trees_merged = TREES_MERGED if TREES_MERGED * forest.n_leaves < MAX_SLOTS else 1
    fitting = MAX_PREDICATES // max(forest.n_leaves, 1) // trees_merged * trees_merged
    per_batch = min(TREES_PER_BATCH, fitting)
    batch_offsets = np.append(np.arange(0, forest.n_trees, per_batch), forest.n_trees).astype(np.int32)
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
    level_offsets, levels = _levels(forest, word)
    programs = _programs(forest, ranges, trees_merged, word, np.diff(level_offsets) == 0)
    return BitsliceLayout(
        ranks=ranks,
        ranges=ranges,
        trees_merged=trees_merged,
        batch_offsets=batch_offsets,
        batch_segments=np.array(batch_segments, np.int64),
        segments=np.concatenate([*segments, np.zeros(0, SEGMENT)]),
        low=np.concatenate([*lows, np.zeros(0, np.uint8)]),
        batch_low=np.array(batch_low, np.int64),
        n_words=n_words,
        level_offsets=level_offsets,
        levels=levels,
        tree_leaves=np.diff(forest.leaf_offsets).astype(np.uint16),
        **programs,
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


def _levels(
    forest: Forest, word: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint16]]:
    """Predicates of the oblivious trees' levels, the deepest first, and where each tree's start."""
    by_level = np.lexsort((forest.depth, forest.node_tree))
    tree, depth, word = forest.node_tree[by_level], forest.depth[by_level], word[by_level]
    is_first = np.ones(len(by_level), bool)
    is_first[1:] = (tree[1:] != tree[:-1]) | (depth[1:] != depth[:-1])
    first = np.flatnonzero(is_first)
    whole = np.diff(np.append(first, len(by_level))) == 1 << np.minimum(depth[first], 62)
    alike = np.minimum.reduceat(word, first) == np.maximum.reduceat(word, first) if len(first) else whole
    # Two classes of trees only: those whose levels are all whole and alike, and the others.
    bad = np.bincount(tree[first], ~(whole & alike), minlength=forest.n_trees) > 0
    first = first[~bad[tree[first]]]
    n_levels = np.bincount(tree[first], minlength=forest.n_trees)
    deepest_first = first[np.lexsort((-depth[first], tree[first]))]
    return np.concatenate([[0], np.cumsum(n_levels)]), word[deepest_first].astype(np.uint16)


def _programs(
    forest: Forest,
    ranges: LeafRanges,
    trees_merged: int,
    word: npt.NDArray[np.int64],
    by_program: npt.NDArray[np.bool_],
) -> dict[str, Any]:
    """Treelets of each group of trees, parents before children, trees interleaved level by level."""
    n_leaves = np.diff(forest.leaf_offsets)
    group_of_tree = np.arange(forest.n_trees) // trees_merged
    n_groups = -(-forest.n_trees // trees_merged)
    before = np.cumsum(n_leaves) - n_leaves
    tree_slot = 1 + before - before[::trees_merged][group_of_tree]  # slot 0 is S_L of every tree: zeros
    slot0 = tree_slot[forest.node_tree]
    end = np.where(ranges.end == n_leaves[forest.node_tree], 0, slot0 + ranges.end)

    tiles = tile_trees(forest)
    order = np.lexsort((tiles.kind, tiles.level, group_of_tree[forest.node_tree[tiles.root]]))
    order = order[by_program[forest.node_tree[tiles.root[order]]]]
    root, kind, level = tiles.root[order], tiles.kind[order], tiles.level[order]
    group = group_of_tree[forest.node_tree[root]]
    treelets = np.zeros(len(root), TREELET)
    treelets["first"], treelets["end"] = (slot0 + ranges.first)[root], end[root]
    base = forest.node_offsets[forest.node_tree[root]]
    for at, node in enumerate((root, base + forest.left[root], base + forest.right[root])):
        there = np.ones(len(root), bool) if at == 0 else (kind & at) != 0
        treelets["predicate"][there, at] = word[node[there]]
        treelets["slot"][there, at] = (slot0 + ranges.middle)[node[there]]
    for field in ("predicate", "slot", "first", "end"):
        treelets[field] *= NARROWEST_WORD

    key = np.stack([group, level, kind])
    starts = np.flatnonzero(np.append(True, (key[:, 1:] != key[:, :-1]).any(axis=0))[: len(root)])
    runs = np.zeros(len(starts), RUN)
    runs["kind"] = kind[starts]
    runs["count"] = np.diff(np.append(starts, len(root)))
    groups = np.arange(n_groups + 1)
    return {
        "group_runs": np.searchsorted(group[starts], groups).astype(np.int64),
        "runs": runs,
        "treelets": treelets,
        "group_treelets": np.searchsorted(group, groups).astype(np.int64),
        "tree_slot": tree_slot.astype(np.uint16),
        "n_slots": int(np.bincount(group_of_tree, n_leaves, minlength=1).max()) + 1,
    }


def gray_values(
    values: LeafValues, n_leaves: npt.NDArray[np.int64], oblivious: npt.NDArray[np.bool_]
) -> LeafValues:
    """Leaf values where leaf e stands at ``e ^ (e >> 1)`` (at e in oblivious trees), padded to a power of two.

    Trees of up to 256 leaves are padded to at least 64, so that whole registers can be loaded.
    """
    size = np.left_shift(1, np.ceil(np.log2(np.maximum(n_leaves, 1))).astype(np.int64))
    size = np.maximum(size, 64)
    offsets = np.concatenate([[0], np.cumsum(size)])
    tree = np.repeat(np.arange(len(n_leaves)), n_leaves)
    leaf = np.arange(len(tree)) - np.repeat(values.offsets[:-1], n_leaves)
    place = offsets[tree] + (leaf ^ np.where(oblivious[tree], 0, leaf >> 1))
    value = np.zeros((offsets[-1], values.value.shape[1]), values.value.dtype)
    value[place] = values.value
    leaf_id = np.zeros(offsets[-1], np.int32)
    leaf_id[place] = values.leaf_id
    return replace(values, value=value, leaf_id=leaf_id, offsets=offsets.astype(np.int64))


def word_tables(values: LeafValues, word: int) -> np.ndarray | None:
    """Values of one output in Gray order, cut into words of so many bytes: unsigned [T, words of a value, 64].

    None where the instruction set has no tables (``word`` is 0), leaves hold vectors, trees add to several
    outputs, or have more than 64 leaves.
    """
    n_trees = len(values.tree_output)
    if not word or values.n_outputs != 1 or n_trees == 0 or len(values.value) != 64 * n_trees:
        return None
    words = values.value.view(f"u{word}").reshape(n_trees, 64, -1)
    return np.ascontiguousarray(words.transpose(0, 2, 1))
