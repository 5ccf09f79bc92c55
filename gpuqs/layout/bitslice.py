"""The bit-sliced layout: distinct tests as words over documents, trees as boolean programs.

For a block of documents every distinct test of the forest, a *predicate*, becomes one word: bit d
is "the test is false for document d". Number a tree's leaves 0 ... L-1 from left to right, and let
``S_j`` be the word of "the exit leaf is j or further right". The node between leaves j-1 and j, whose
subtree covers the leaves [first, end), gives ``S_j = S_end | (S_first & predicate)`` with S_0 = ones
and S_L = zeros: one operation per node for all documents of the block.

The exit leaf's number falls out in Gray code: bit k of it is the XOR of the S_j with j an odd
multiple of 2^k, so that each S_j enters one bit alone.

An oblivious tree, which tests the same at every node of a level, needs no program: its predicates
are the bits of the exit leaf's number, the root's the highest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gpuqs import cache_lines
from gpuqs.cpu_fallback.making import number_predicates, put_in_gray_code
from gpuqs.forest import NAN_LEFT, Forest
from gpuqs.layout.columns import find_columns
from gpuqs.layout.leaves import TABLE_LEAVES, LeafValues, number_leaves
from gpuqs.layout.programs import (
    TREES_MERGED,
    NodePrograms,
    TreeletPrograms,
    node_programs,
    treelet_programs,
)
from gpuqs.layout.ranks import MAX_THRESHOLDS, RankTables, most_thresholds

#: Trees of a block, whose exit leaves are found before their values are added: the leaves stay in the L1/L2 caches.
#: Fewer where trees are so large that a block might have more predicates than 16 bits count.
TREE_BLOCK = 64
MAX_PREDICATES = 1 << 16
#: Most columns of a forest: a block of documents takes a word of its bits for each.
MAX_COLUMNS = 1 << 20

#: Bits of a rank.
RANK_BITS = 16
#: The lowest of them, by which the predicates of a segment differ: a nibble, or, ``by_byte``, two.
LOW_BITS = 4
#: A column's segments are by byte where that saves so many, and one more for each so many predicates: what it takes to
#: prepare the byte's 256 words, and to look words up among as many (an AMD EPYC, Zen 4: forests of 3 to 16 predicates a
#: segment by nibble).
SEGMENTS_SAVED, PREDICATES_OF_SAVED = 32, 12
#: The C++ `Segment`: predicates of a column whose ranks are the same above the low bits. ``high``: above the lowest
#: nibble; of the second one 0 where the segment is by byte. ``last``: how many predicates follow the first.
SEGMENT = np.dtype([("column", "u4"), ("high", "u2"), ("last", "u1"), ("flags", "u1")])
#: Of a segment's ``flags``; `NAN_LEFT` is the other.
BY_BYTE = 2


@dataclass(frozen=True)
class BitsliceLayout:
    """A forest as predicates and programs; B tree blocks, T trees.

    Parameters
    ----------
    ranks : RankTables
    position : int32 [L]
        Of each leaf in its tree, from left to right.
    block_offsets : int32 [B + 1]
        First tree of each tree block.
    block_segments : int64 [B + 1]
        Segments of each tree block. The first block of a superblock has them all: it decodes the predicates
        that the others share.
    segments : SEGMENT [...]
    low : uint8 [...]
        Low bits of each predicate's rank, in the order in which words are stored.
    block_low : int64 [B + 1]
        First of each tree block's predicates in `low`.
    n_predicates : int
        Largest number of predicates of one superblock.
    level_offsets : int64 [T + 1]
        Levels of each tree; none of a tree that is not oblivious.
    levels : uint16 [...]
        Predicate of each level of the oblivious trees, the deepest first.
    tree_leaves : uint16 [T]
    programs : TreeletPrograms or NodePrograms
        Of the trees that are not oblivious: to be interpreted, or to be compiled.
    """

    ranks: RankTables
    position: npt.NDArray[np.int32]
    block_offsets: npt.NDArray[np.int32]
    block_segments: npt.NDArray[np.int64]
    segments: np.ndarray
    low: npt.NDArray[np.uint8]
    block_low: npt.NDArray[np.int64]
    n_predicates: int
    level_offsets: npt.NDArray[np.int64]
    levels: npt.NDArray[np.uint16]
    tree_leaves: npt.NDArray[np.uint16]
    programs: TreeletPrograms | NodePrograms

    @property
    def oblivious(self) -> npt.NDArray[np.bool_]:
        """Which trees are laid out by level; their leaves are numbered in binary, not in Gray code."""
        return np.diff(self.level_offsets) > 0


def why_not(forest: Forest, most_leaves: int, most_columns: int) -> str | None:
    """None where bit slices hold the forest, of so many columns and leaves a tree at most; else the reason why not."""
    if forest.n_leaves > most_leaves:
        return f"a tree has {forest.n_leaves} leaves; programs hold {most_leaves}"
    columns = find_columns(forest)
    if len(columns) > most_columns:
        return f"the trees test {len(columns):,} columns; programs hold {most_columns:,}"
    if len(columns) > columns.n_numeric and not len(columns.tables.tables):
        return f"its category sets take tables of {columns.tables.n_bytes >> 20} MiB or more"
    if (most := most_thresholds(columns)) > MAX_THRESHOLDS:
        return f"a feature has {most} distinct thresholds; ranks hold {MAX_THRESHOLDS}"
    return None


def build_bitslice(
    forest: Forest,
    ranks: RankTables,
    max_predicates: int,
    max_nodes: int,
    compiled: bool,
    tree_block: int = TREE_BLOCK,
) -> BitsliceLayout:
    """Lay a forest out as predicates and programs.

    Parameters
    ----------
    forest : Forest
        At most `MAX_LEAVES` leaves a tree, at most 65,535 thresholds a column.
    ranks : RankTables
        Of this forest, or the part for its nodes of a larger one's, so that documents coded for that fit.
    max_predicates : int
        Predicates of a superblock, as far as whole tree blocks allow: their words fit the L2 cache.
    max_nodes : int
        Nodes of a superblock, likewise: several document blocks pass a superblock before the next.
    compiled : bool
        Programs for machine code.
    tree_block : int
        Trees of a block at most.
    """
    ranges = number_leaves(forest)
    tree_block = min(tree_block, MAX_PREDICATES // max(forest.n_leaves, 1) // TREES_MERGED * TREES_MERGED)
    block_offsets = np.append(np.arange(0, forest.n_trees, tree_block), forest.n_trees).astype(np.int32)
    keys, key = predicate_keys(forest, ranks)
    first_nodes = forest.node_offsets[block_offsets]
    ends, distinct, n_distinct, predicate = number_predicates(key, len(keys), first_nodes, max_predicates, max_nodes)
    blocks = np.diff(ends, prepend=0)
    superblocks = [_segments(part) for part in np.split(keys[distinct], np.cumsum(n_distinct))[:-1]]
    level_offsets, levels = oblivious_levels(forest, predicate)
    by_program = np.diff(level_offsets) == 0
    return BitsliceLayout(
        ranks=ranks,
        position=ranges.position,
        block_offsets=block_offsets,
        block_segments=_ends([len(segments) for segments, _ in superblocks], blocks),
        segments=np.concatenate([np.zeros(0, SEGMENT), *(segments for segments, _ in superblocks)]),
        low=np.concatenate([np.zeros(0, np.uint8), *(low for _, low in superblocks)]),
        block_low=_ends(n_distinct, blocks),
        n_predicates=int(n_distinct.max(initial=0)),
        level_offsets=level_offsets,
        levels=levels,
        tree_leaves=np.diff(forest.leaf_offsets).astype(np.uint16),
        programs=node_programs(forest, ranges, predicate)
        if compiled
        else treelet_programs(forest, ranges, predicate, by_program),
    )


def predicate_keys(forest: Forest, ranks: RankTables) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """A number for each (column, missing goes left, threshold), ascending in that order; and which each node's is."""
    nan_left = (forest.routing & NAN_LEFT) != 0
    column, n = ranks.columns.of_node, np.diff(ranks.offsets)
    side = np.repeat(np.arange(2 * len(n)), np.repeat(n, 2))
    starts = np.repeat(2 * ranks.offsets[:-1], 2)
    starts[1::2] += n
    rank = np.arange(len(side)) - starts[side]
    key = starts.astype(np.int32)[2 * column + nan_left]
    key += ranks.of_node
    return side << RANK_BITS | rank, key


def _ends(sizes: npt.ArrayLike, blocks: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Where what each tree block has ends, after 0: all of its superblock's, as the first block of it has that."""
    return np.concatenate([[0], np.repeat(np.cumsum(sizes, dtype=np.int64), blocks)])


def _segments(distinct: npt.NDArray[np.int64]) -> tuple[np.ndarray, npt.NDArray[np.uint8]]:
    """Predicates, ascending, in segments, which share all but the low bits of the rank; and these bits of each."""
    side, byte_bits = distinct >> RANK_BITS, 2 * LOW_BITS
    by_nibble, by_byte = (np.bincount(side[_starts(distinct >> bits)]) for bits in (LOW_BITS, byte_bits))
    of_byte = (by_nibble - by_byte > SEGMENTS_SAVED + np.bincount(side) / PREDICATES_OF_SAVED)[side]
    low = distinct & np.where(of_byte, (1 << byte_bits) - 1, (1 << LOW_BITS) - 1)
    first = _starts(distinct - low)
    segments = np.zeros(len(first), SEGMENT)
    segments["column"] = side[first] >> 1
    segments["flags"] = np.where(side[first] & 1, NAN_LEFT, 0) | np.where(of_byte[first], BY_BYTE, 0)
    segments["high"] = ((distinct - low)[first] & ((1 << RANK_BITS) - 1)) >> LOW_BITS
    segments["last"] = np.diff(first, append=len(distinct)) - 1
    return segments, low.astype(np.uint8)


def _starts(ascending: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Where runs of one number begin."""
    return np.flatnonzero(np.diff(ascending, prepend=-1))


def oblivious_levels(
    forest: Forest, predicate: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint16]]:
    """Predicates of the oblivious trees' levels, the deepest first, and where each tree's start."""
    n_leaves = np.diff(forest.leaf_offsets)
    complete = n_leaves == np.left_shift(1, np.minimum(forest.tree_depth, 62))
    if not complete[n_leaves > 1].any():
        return np.zeros(forest.n_trees + 1, np.int64), np.zeros(0, np.uint16)
    nodes = np.flatnonzero(complete[forest.node_tree])
    nodes = nodes[np.lexsort((forest.depth[nodes], forest.node_tree[nodes]))]
    tree, depth, predicate = forest.node_tree[nodes], forest.depth[nodes], predicate[nodes]
    is_first = np.ones(len(nodes), bool)
    is_first[1:] = (tree[1:] != tree[:-1]) | (depth[1:] != depth[:-1])
    first = np.flatnonzero(is_first)
    mixed = np.zeros(len(first), bool)
    if len(first):
        mixed = np.minimum.reduceat(predicate, first) != np.maximum.reduceat(predicate, first)
    # A complete tree is oblivious if all its levels ask one predicate each.
    bad = np.bincount(tree[first], mixed, minlength=forest.n_trees) > 0
    first = first[~bad[tree[first]]]
    n_levels = np.bincount(tree[first], minlength=forest.n_trees)
    deepest_first = first[np.lexsort((-depth[first], tree[first]))]
    return np.concatenate([[0], np.cumsum(n_levels)]), predicate[deepest_first].astype(np.uint16)


def gray_values(
    values: LeafValues, n_leaves: npt.NDArray[np.int64], oblivious: npt.NDArray[np.bool_]
) -> LeafValues:
    """Leaf values where leaf e stands at ``e ^ (e >> 1)`` (at e in oblivious trees), padded to a power of two.

    So do the rows of shared vectors, and the bounds of linear leaves' terms. Trees are padded to at least
    `TABLE_LEAVES`, so that whole registers can be loaded.
    """
    size = np.left_shift(1, np.ceil(np.log2(np.maximum(n_leaves, 1))).astype(np.int64))
    size = np.maximum(size, TABLE_LEAVES)
    offsets = np.concatenate([[0], np.cumsum(size)]).astype(np.int64)
    row = cache_lines.zeros(offsets[-1] if len(values.row) else 0, np.int32)
    value = values.value
    if not len(row):
        value = cache_lines.zeros((offsets[-1], value.shape[1]), value.dtype)
    leaf_id = cache_lines.zeros(offsets[-1], np.int32)
    linear_bounds = cache_lines.zeros((offsets[-1] if len(values.linear_bounds) else 0, 2), np.int64)
    moved = [(values.leaf_id, leaf_id), (values.linear_bounds, linear_bounds)]
    moved.append((values.row, row) if len(row) else (values.value, value))
    for given, ordered in moved:
        put_in_gray_code(values.offsets, oblivious, offsets, given, ordered)
    return replace(values, value=value, row=row, leaf_id=leaf_id, offsets=offsets, linear_bounds=linear_bounds)


def value_tables(values: LeafValues, part_bytes: int) -> np.ndarray | None:
    """Values in Gray order, cut into parts of so many bytes: unsigned [T, width of leaves, parts of a value, 64].

    None where there are to be none (``part_bytes`` is 0), or trees have more than `TABLE_LEAVES` leaves.
    """
    n_trees, width = len(values.tree_output), values.value.shape[1]
    if not part_bytes or n_trees == 0 or len(values.leaf_id) != TABLE_LEAVES * n_trees:
        return None
    parts = values.value.view(f"u{part_bytes}").reshape(n_trees, TABLE_LEAVES, width, -1)
    tables = cache_lines.zeros((n_trees, width, parts.shape[3], TABLE_LEAVES), parts.dtype)
    tables[...] = parts.transpose(0, 2, 3, 1)
    return tables
