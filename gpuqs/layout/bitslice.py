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

import numpy as np
import numpy.typing as npt

from gpuqs.forest import NAN_LEFT, Forest
from gpuqs.layout.leaves import LeafRanges, LeafValues, number_leaves
from gpuqs.layout.programs import (
    TREES_MERGED,
    NodePrograms,
    TreeletPrograms,
    node_programs,
    treelet_programs,
)
from gpuqs.layout.ranks import RankTables

#: Trees whose exit leaves are found before their values are added: the leaves stay in the L1/L2 caches.
#: Fewer where trees are so large that a batch might have more predicates than 16 bits count.
TREES_PER_BATCH = 64
MAX_PREDICATES = 1 << 16
#: Most columns of a forest: segments count them in 16 bits.
MAX_COLUMNS = 1 << 16

#: The C++ `Segment`: predicates of a column with the same rank above the low 4 bits.
SEGMENT = np.dtype([("column", "u2"), ("high", "u2"), ("nan_left", "u1"), ("count", "u1")])


@dataclass(frozen=True)
class BitsliceLayout:
    """A forest as predicates and programs; B tree batches, T trees.

    Parameters
    ----------
    ranks : RankTables
    ranges : LeafRanges
    batch_offsets : int32 [B + 1]
        First tree of each batch.
    batch_segments : int64 [B + 1]
        Segments that a batch decodes before it runs; none where the batch before left its words.
    segments : SEGMENT [...]
    low : uint8 [...]
        Low 4 bits of each predicate's rank, in the order in which words are stored.
    batch_low : int64 [B + 1]
        Where each batch's predicates start in `low`.
    n_words : int
        Largest number of predicates of one block.
    level_offsets : int64 [T + 1]
        Levels of each tree; none of a tree that is not oblivious.
    levels : uint16 [...]
        Predicate of each level of the oblivious trees, the deepest first.
    tree_leaves : uint16 [T]
    programs : TreeletPrograms or NodePrograms
        Of the trees that are not oblivious: to be interpreted, or to be compiled.
    """

    ranks: RankTables
    ranges: LeafRanges
    batch_offsets: npt.NDArray[np.int32]
    batch_segments: npt.NDArray[np.int64]
    segments: np.ndarray
    low: npt.NDArray[np.uint8]
    batch_low: npt.NDArray[np.int64]
    n_words: int
    level_offsets: npt.NDArray[np.int64]
    levels: npt.NDArray[np.uint16]
    tree_leaves: npt.NDArray[np.uint16]
    programs: TreeletPrograms | NodePrograms

    @property
    def oblivious(self) -> npt.NDArray[np.bool_]:
        """Which trees are laid out by level; their leaves are numbered in binary, not in Gray code."""
        return np.diff(self.level_offsets) > 0


def build_bitslice(
    forest: Forest, ranks: RankTables, max_words: int, max_nodes: int, compiled: bool
) -> BitsliceLayout:
    """Lay a forest out as predicates and programs.

    Parameters
    ----------
    forest : Forest
        Numeric tests, at most `MAX_LEAVES` leaves a tree, at most 65,535 thresholds a column.
    ranks : RankTables
        Of this forest, or the part for its nodes of a larger one's, so that documents coded for that fit.
    max_words : int
        Predicates of a block of trees, as far as whole batches allow: what fits the L2 cache.
    max_nodes : int
        Nodes of a block, likewise: several groups of documents pass a block before the next.
    compiled : bool
        Programs for machine code.
    """
    ranges = number_leaves(forest)
    key = _predicate_keys(forest, ranks)
    per_batch = min(TREES_PER_BATCH, MAX_PREDICATES // max(forest.n_leaves, 1) // TREES_MERGED * TREES_MERGED)
    batch_offsets = np.append(np.arange(0, forest.n_trees, per_batch), forest.n_trees).astype(np.int32)
    node_batches = forest.node_offsets[batch_offsets]
    word = np.zeros(forest.n_nodes, np.int64)
    segments, lows = [], []
    batch_segments, batch_low = [0], [0]
    n_words, batch, n_batches = 0, 0, len(batch_offsets) - 1
    while batch < n_batches:
        last, distinct = _block_end(key, node_batches, batch, max_words, max_nodes)
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
    by_program = np.diff(level_offsets) == 0
    return BitsliceLayout(
        ranks=ranks,
        ranges=ranges,
        batch_offsets=batch_offsets,
        batch_segments=np.array(batch_segments, np.int64),
        segments=np.concatenate([*segments, np.zeros(0, SEGMENT)]),
        low=np.concatenate([*lows, np.zeros(0, np.uint8)]),
        batch_low=np.array(batch_low, np.int64),
        n_words=n_words,
        level_offsets=level_offsets,
        levels=levels,
        tree_leaves=np.diff(forest.leaf_offsets).astype(np.uint16),
        programs=node_programs(forest, ranges, word)
        if compiled
        else treelet_programs(forest, ranges, word, by_program),
    )


def _predicate_keys(forest: Forest, ranks: RankTables) -> npt.NDArray[np.int64]:
    """One number per distinct (column, missing goes left, threshold), ascending in that order."""
    nan_left = (forest.routing & NAN_LEFT) != 0
    column = ranks.columns.of_node.astype(np.int64)
    return (column << 17) | (nan_left.astype(np.int64) << 16) | ranks.of_node


def _block_end(
    key: np.ndarray, node_batches: np.ndarray, batch: int, max_words: int, max_nodes: int
) -> tuple[int, npt.NDArray[np.int64]]:
    """The end of the block that starts with ``batch``, and its distinct predicates."""
    last, distinct = batch, np.zeros(0, np.int64)
    while last < len(node_batches) - 1:
        grown = np.union1d(distinct, key[node_batches[last] : node_batches[last + 1]])
        n_nodes = node_batches[last + 1] - node_batches[batch]
        if last > batch and (len(grown) > max_words or n_nodes > max_nodes):
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
