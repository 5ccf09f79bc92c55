"""The bit-sliced layout: distinct tests as words over documents, trees as boolean programs.

For a block of documents every distinct test of the forest, a *predicate*, becomes one word: bit d
is "the test is false for document d". Number a tree's leaves 0 ... L-1 from left to right, and let
``S_j`` be the word of "the exit leaf is j or further right". The node between leaves j-1 and j, whose
subtree covers the leaves [first, end), gives ``S_j = S_end | (S_first & predicate)`` with S_0 = ones
and S_L = zeros: one operation per node for all documents of the block.

The exit leaf's number falls out in Gray code: bit k of it is the XOR of the S_j with j an odd
multiple of 2^k, so that each S_j enters only one bit.

An oblivious tree, whose nodes on a level all have one test, needs no program: its predicates
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
from gpuqs.layout.ranks import MAX_THRESHOLDS, RankTables, max_thresholds

#: Trees of a block. All its exit leaves are found before their values are added; the L1/L2 caches hold them meanwhile.
#: Blocks have fewer trees if they might otherwise have more predicates than 16 bits count.
TREE_BLOCK = 64
MAX_PREDICATES = 1 << 16
#: Upper limit of a forest's columns: a block of documents takes a word of bits for each.
MAX_COLUMNS = 1 << 20

#: Bits of a rank.
RANK_BITS = 16
#: Bits of a nibble. The predicates of a segment differ only in the rank's lowest nibble, or two if it is by byte.
LOW_BITS = 4
#: A column's segments are by byte if that saves more than `SEGMENTS_SAVED`, plus one per `PREDICATES_OF_SAVED`
#: predicates: the cost of preparing a byte's 256 words, and of looking words up among them (an AMD EPYC, Zen 4: forests
#: of 3 to 16 predicates per segment by nibble).
SEGMENTS_SAVED, PREDICATES_OF_SAVED = 32, 12
#: The C++ `Segment`: predicates of a column whose ranks are the same above the low bits. ``high``: the rank without its
#: lowest nibble; by byte, the lowest nibble of that is 0. ``last``: how many predicates follow the first.
SEGMENT = np.dtype([("column", "u4"), ("high", "u2"), ("last", "u1"), ("flags", "u1")])
#: A bit of a segment's ``flags``; `NAN_LEFT` is the other.
BY_BYTE = 2


@dataclass(frozen=True)
class BitsliceLayout:
    """A forest as predicates and programs; B tree blocks, T trees.

    Parameters
    ----------
    ranks : RankTables
    position : int32 [L]
        Position of each leaf in its tree, from left to right.
    block_offsets : int32 [B + 1]
        First tree of each tree block.
    block_segments : int64 [B + 1]
        Bounds of each tree block's segments. The first block of a superblock has them all: it decodes the
        predicates for the others, too.
    segments : SEGMENT [...]
    low : uint8 [...]
        Low bits of each predicate's rank, in the order in which words are stored.
    block_low : int64 [B + 1]
        First of each tree block's predicates in `low`.
    n_predicates : int
        Largest number of predicates of one superblock.
    level_offsets : int64 [T + 1]
        Bounds of each tree's levels; trees that are not oblivious have none.
    levels : uint16 [...]
        Predicate of each level of the oblivious trees, the deepest first.
    tree_leaves : uint16 [T]
    programs : TreeletPrograms or NodePrograms
        Programs of the trees that are not oblivious: to be interpreted, or to be compiled.
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


def why_not(forest: Forest, max_leaves: int, max_columns: int) -> str | None:
    """None if bit slices can hold the forest, within these limits per tree and forest; else the reason why not."""
    if forest.n_leaves > max_leaves:
        return f"a tree has {forest.n_leaves} leaves; programs hold {max_leaves}"
    columns = find_columns(forest)
    if len(columns) > max_columns:
        return f"the trees test {len(columns):,} columns; programs hold {max_columns:,}"
    if len(columns) > columns.n_numeric and not len(columns.tables.tables):
        return f"its category sets take tables of {columns.tables.n_bytes >> 20} MiB or more"
    if (most := max_thresholds(columns)) > MAX_THRESHOLDS:
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
        Tables of this forest, or `RankTables.part` of a larger one's, whose coded documents can then be used.
    max_predicates : int
        Upper limit of predicates in a superblock, unless one tree block has more: their words fit the L2 cache.
    max_nodes : int
        Upper limit of nodes in a superblock, likewise: it stays cached while several document blocks pass it.
    compiled : bool
        Whether programs are for machine code.
    tree_block : int
        Upper limit of trees in a block.
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
    """Numbers of all (column, missing goes left, threshold), ascending in that order; and the index of each node's."""
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
    """Bounds of what each tree block has, where a superblock's first block has all and the others have nothing."""
    return np.concatenate([[0], np.repeat(np.cumsum(sizes, dtype=np.int64), blocks)])


def _segments(distinct: npt.NDArray[np.int64]) -> tuple[np.ndarray, npt.NDArray[np.uint8]]:
    """Segments of ascending predicates, which share all but the rank's low bits; and the low bits of each predicate."""
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
    """Where runs of equal numbers begin."""
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
    # A complete tree is oblivious if each of its levels has only one predicate.
    bad = np.bincount(tree[first], mixed, minlength=forest.n_trees) > 0
    first = first[~bad[tree[first]]]
    n_levels = np.bincount(tree[first], minlength=forest.n_trees)
    deepest_first = first[np.lexsort((-depth[first], tree[first]))]
    return np.concatenate([[0], np.cumsum(n_levels)]), predicate[deepest_first].astype(np.uint16)


def gray_values(
    values: LeafValues, n_leaves: npt.NDArray[np.int64], oblivious: npt.NDArray[np.bool_]
) -> LeafValues:
    """Leaf values with leaf e's at ``e ^ (e >> 1)`` (at e in oblivious trees), padded to a power of two per tree.

    Rows of shared vectors and bounds of linear leaves' terms are moved alike. Trees are padded to at least
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
    """Values in Gray order, cut into parts of ``part_bytes``: unsigned [T, width of leaves, parts of a value, 64].

    None if ``part_bytes`` is 0 or trees have more than `TABLE_LEAVES` leaves.
    """
    n_trees, width = len(values.tree_output), values.value.shape[1]
    if not part_bytes or n_trees == 0 or len(values.leaf_id) != TABLE_LEAVES * n_trees:
        return None
    parts = values.value.view(f"u{part_bytes}").reshape(n_trees, TABLE_LEAVES, width, -1)
    tables = cache_lines.zeros((n_trees, width, parts.shape[3], TABLE_LEAVES), parts.dtype)
    tables[...] = parts.transpose(0, 2, 3, 1)
    return tables
