"""The bit-sliced layout of GPUs: rows of document words, one a predicate, and tree programs over few slots.

As in `gpuqs.layout.bitslice`: a word's bit says "the test is false for this document", and a tree is the recurrence
``S_j = S_end | (S_first & predicate)``, whose S_j are the bits of the exit leaf's number in Gray code. Three things
are a GPU's own:

- **Rows.** A tree block's predicates are rows 1, 2, ... of words, in the order in which they are decoded; row 0 is
  zeros.
- **Polarity.** A predicate may be stored negated: the children of all of its nodes then change places. Its nodes vote:
  one with a single leaf below wants it on its left, where in-order programs need no stack for it.
- **Slots.** A node's S_j lies in a slot until no other node needs it. Of two subtrees the one with fewer leaves goes
  first, so that few slots do for a tree of any shape: those of 64 leaves take at most nine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gpuqs.cpu_fallback.making import number_predicates
from gpuqs.forest import Forest
from gpuqs.layout.bitslice import LOW_BITS, MAX_PREDICATES, RANK_BITS, oblivious_levels, predicate_keys
from gpuqs.layout.leaves import LeafRanges, number_leaves
from gpuqs.layout.ranks import RankTables
from gpuqs.layout.traversal import split_by_depth

#: Most leaves of a tree: as many predicates as a tree block may have, and numbers of 16 bits.
MAX_LEAVES = MAX_PREDICATES
#: Trees that share rows, at least, as far as `MAX_PREDICATES` allows.
TREES = 64
#: Nodes of a program are padded to a multiple of so many, whose rows are loaded together.
NODES_TOGETHER = 8

#: Slots with all ones (S_0 of every tree) and with zeros (S_L); the first that programs write.
ONES, ZEROS, FIRST_SLOT = 0, 1, 2

#: The kernels' `Node`: a row, and the slots of S_first, S_end, S_j, and of the plane that S_j enters.
NODE = np.dtype([("row", "u4"), ("first", "u1"), ("end", "u1"), ("own", "u1"), ("plane", "u1")])
#: The kernels' `Segment`: predicates of a column whose ranks are alike (`high`) above the low bits. Bit b of `low`:
#: there is one whose low bits are b; of `flip`: its row is negated. Their rows start at `row`, in the order of b.
#: `marked`: missing values go left, and the plane after the rank's bits says which these are.
SEGMENT = np.dtype(
    [("row", "u4"), ("plane", "u4"), ("n_bits", "u1"), ("marked", "u1"), ("high", "u2"), ("low", "u2"), ("flip", "u2")]
)


@dataclass(frozen=True)
class RowLayout:
    """A forest as rows and programs; B tree blocks, T trees, L leaves.

    Parameters
    ----------
    ranks : RankTables
    position : int32 [L]
        Of each leaf in its tree, from left to right, as polarity has put them.
    oblivious : bool [T]
        Trees whose levels' predicates are their leaves' bits; the leaves are numbered in binary, not in Gray code.
    block_offsets : int32 [B + 1]
        First tree of each tree block.
    block_segments : int32 [B + 1]
    segments : SEGMENT [...]
    n_rows : int
        Rows of the largest tree block, row 0 among them.
    node_offsets : int32 [T + 1]
        First node of each tree's program.
    nodes : NODE [...]
        Parents before children. Planes have the slots from `n_slots` on.
    n_slots : int
    n_planes : int
        Bits of the largest tree's leaf numbers; one at least.
    """

    ranks: RankTables
    position: npt.NDArray[np.int32]
    oblivious: npt.NDArray[np.bool_]
    block_offsets: npt.NDArray[np.int32]
    block_segments: npt.NDArray[np.int32]
    segments: np.ndarray
    n_rows: int
    node_offsets: npt.NDArray[np.int32]
    nodes: np.ndarray
    n_slots: int
    n_planes: int


def build_rows(forest: Forest, ranks: RankTables, max_predicates: int = MAX_PREDICATES) -> RowLayout:
    """Lay a forest out, at most `MAX_LEAVES` leaves a tree.

    Parameters
    ----------
    forest : Forest
    ranks : RankTables
    max_predicates : int
        Predicates of a tree block, as far as `TREES` trees have no more.
    """
    together = max(1, min(TREES, MAX_PREDICATES // max(forest.n_leaves, 1)))
    starts = np.append(np.arange(0, forest.n_trees, together), forest.n_trees).astype(np.int32)
    keys, key = predicate_keys(forest, ranks)
    first_nodes = forest.node_offsets[starts]
    most_nodes = forest.n_nodes + 1  # no limit
    ends, distinct, n_distinct, predicate = number_predicates(key, len(keys), first_nodes, max_predicates, most_nodes)
    block_offsets = starts[np.append(0, ends)]
    blocks = np.append(0, np.cumsum(n_distinct))
    block_of_node = np.searchsorted(forest.node_offsets[block_offsets[1:]], np.arange(forest.n_nodes), "right")
    of_all = blocks[block_of_node] + predicate
    negated = _vote(forest, of_all, len(distinct))
    swapped = negated[of_all]
    turned = replace(
        forest, left=np.where(swapped, forest.right, forest.left), right=np.where(swapped, forest.left, forest.right)
    )
    ranges = number_leaves(turned)
    level_offsets, levels = oblivious_levels(forest, predicate)
    oblivious = np.diff(level_offsets) > 0
    segments, block_segments = _segments(keys[distinct], blocks, negated, ranks)
    n_planes = max(1, int(forest.n_leaves - 1).bit_length()) if forest.n_trees else 1
    node_offsets, nodes, n_slots = _programs(turned, ranges, predicate + 1, oblivious, level_offsets, levels)
    return RowLayout(
        ranks=ranks,
        position=ranges.position,
        oblivious=oblivious,
        block_offsets=block_offsets,
        block_segments=block_segments,
        segments=segments,
        n_rows=int(n_distinct.max(initial=0)) + 1,
        node_offsets=node_offsets,
        nodes=nodes,
        n_slots=n_slots,
        n_planes=n_planes,
    )


def _vote(forest: Forest, predicate: npt.NDArray[np.int64], n: int) -> npt.NDArray[np.bool_]:
    """Which of the ``n`` predicates are negated: those with more leaves alone on the right than alone on the left."""
    wishes = (forest.right < 0).astype(np.int64) - (forest.left < 0)
    return np.bincount(predicate, wishes, minlength=n) > 0


def _segments(
    keys: npt.NDArray[np.int64], blocks: npt.NDArray[np.int64], negated: npt.NDArray[np.bool_], ranks: RankTables
) -> tuple[np.ndarray, npt.NDArray[np.int32]]:
    """Segments of the tree blocks, and the first of each; block b has ``keys[blocks[b]:blocks[b + 1]]``."""
    shared, bit = keys >> LOW_BITS, (keys & ((1 << LOW_BITS) - 1))
    starts = np.ones(len(keys), bool)
    starts[1:] = shared[1:] != shared[:-1]
    starts[blocks[:-1][blocks[:-1] < len(keys)]] = True
    first, group = np.flatnonzero(starts), np.cumsum(starts) - 1
    segments = np.zeros(len(first), SEGMENT)
    side, high_bits = shared[first] >> (RANK_BITS - LOW_BITS), RANK_BITS - LOW_BITS
    column = side >> 1
    segments["row"] = first - blocks[np.searchsorted(blocks, first, "right") - 1] + 1
    segments["plane"], segments["n_bits"] = ranks.plane_offsets[:-1][column], ranks.n_bits[column]
    segments["marked"] = side & 1
    segments["high"] = shared[first] & ((1 << high_bits) - 1)
    for name, bits in (("low", 1 << bit), ("flip", negated << bit)):
        segments[name] = np.bincount(group, bits, minlength=len(first))  # bits that differ: their sum is their or
    return segments, np.searchsorted(first, blocks).astype(np.int32)


def _programs(
    turned: Forest,
    ranges: LeafRanges,
    row: npt.NDArray[np.int64],
    oblivious: npt.NDArray[np.bool_],
    level_offsets: npt.NDArray[np.int64],
    levels: npt.NDArray[np.uint16],
) -> tuple[npt.NDArray[np.int32], np.ndarray, int]:
    """Where programs start, their nodes, and how many slots they take; ``levels`` as `oblivious_levels` gives them."""
    place, first, end, own = _slots(turned, ranges)
    n_slots = max(int(own.max(initial=0)), FIRST_SLOT) + 1
    length = np.where(oblivious, np.diff(level_offsets), np.diff(turned.node_offsets))
    room = -(-length // NODES_TOGETHER) * NODES_TOGETHER
    offsets = np.append(0, np.cumsum(room))
    nodes = np.zeros(offsets[-1], NODE)
    nodes["first"], nodes["end"], nodes["own"], nodes["plane"] = ZEROS, ZEROS, FIRST_SLOT, n_slots  # of the padding

    mine = ~oblivious[turned.node_tree]
    at = (offsets[turned.node_tree] + place)[mine]
    lowest_bit = ranges.middle & -ranges.middle
    plane = n_slots + np.frexp(np.maximum(lowest_bit, 1))[1] - 1
    for name, values in (("row", row), ("first", first), ("end", end), ("own", own), ("plane", plane)):
        nodes[name][at] = values[mine]

    # A level's S is its predicate, ZEROS | (ONES & predicate), and its plane, too.
    of_tree = np.repeat(np.arange(turned.n_trees), np.diff(level_offsets))
    level = np.arange(len(levels)) - level_offsets[of_tree]
    at = offsets[of_tree] + level
    nodes["row"][at], nodes["first"][at], nodes["plane"][at] = levels.astype(np.int64) + 1, ONES, n_slots + level
    return offsets.astype(np.int32), nodes, n_slots


def _slots(turned: Forest, ranges: LeafRanges) -> tuple[npt.NDArray[np.int64], ...]:
    """Of each node: its place in its tree's program, and the slots of S_first, S_end and of its own S_j.

    Level by level: a node takes the lowest free slot, and hands to both children which slots are taken, and whether
    S_first and S_end are wanted beyond the child. What the first child's subtree takes is free again for the second.
    """
    n = turned.n_nodes
    place, taken = np.zeros(n, np.int64), np.full(n, (1 << FIRST_SLOT) - 1, np.int64)
    first, end, own = np.full(n, ONES), np.full(n, ZEROS), np.zeros(n, np.int64)
    keep_first, keep_end = np.ones(n, bool), np.ones(n, bool)  # the ones and zeros of the root stay
    base = turned.node_offsets[turned.node_tree]
    n_left, n_right = ranges.middle - ranges.first, ranges.end - ranges.middle
    for level in split_by_depth(turned):
        used, f, e = taken[level], first[level], end[level]
        free = ~used & (used + 1)
        slot = np.frexp(free)[1].astype(np.int64) - 1
        own[level] = slot
        used = used | free
        left_first = n_left[level] <= n_right[level]
        for side, children in enumerate((turned.left, turned.right)):
            goes_first = left_first if side == 0 else ~left_first
            inner = children[level] >= 0
            at, child = level[inner], (base[level] + children[level])[inner]
            mine, other = (f, e) if side == 0 else (e, f)
            keep_mine, keep_other = (keep_first, keep_end) if side == 0 else (keep_end, keep_first)
            before = (n_left if side else n_right)[level] - 1  # nodes of the other subtree
            place[child] = place[at] + 1 + np.where(goes_first, 0, before)[inner]
            # The second child finds the other boundary free, unless somebody else wants it.
            gone = ~goes_first & ~keep_other[level]
            taken[child] = np.where(gone, used & ~(1 << other), used)[inner]
            own_kept, mine_kept = goes_first[inner], keep_mine[at]
            if side == 0:
                first[child], end[child] = mine[inner], slot[inner]
                keep_first[child], keep_end[child] = mine_kept, own_kept
            else:
                first[child], end[child] = slot[inner], mine[inner]
                keep_first[child], keep_end[child] = own_kept, mine_kept
    return place, first, end, own
