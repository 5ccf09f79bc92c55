"""Trees as nodes over few slots: the programs of the GPU kernel `slots`, for trees of any shape.

A node's S_j stays in a slot until no other node needs it. The subtree with fewer leaves goes first, so that few slots
suffice: trees of 64 leaves take at most nine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuqs.forest import Forest
from gpuqs.layout.leaves import LeafRanges
from gpuqs.layout.traversal import split_by_depth

#: Programs are padded to a multiple of this many nodes, whose rows are loaded together.
NODES_TOGETHER = 8

#: The slot with all ones: S_0 of every tree.
ONES = 0
#: The slot with zeros: S_L of every tree.
ZEROS = 1
#: The first slot that programs write.
FIRST_SLOT = 2

#: The kernels' `Node`: a row, and the slots of S_first, S_end, S_j, and of the plane that S_j enters.
NODE = np.dtype([("row", "u4"), ("first", "u1"), ("end", "u1"), ("own", "u1"), ("plane", "u1")])


@dataclass(frozen=True)
class SlotPrograms:
    """Programs of T trees.

    Parameters
    ----------
    node_offsets : int32 [T + 1]
        First node of each tree's program.
    nodes : NODE [...]
        Parents before children. Planes have the slots from `n_slots` on.
    n_slots : int
    """

    node_offsets: npt.NDArray[np.int32]
    nodes: np.ndarray
    n_slots: int


def slot_programs(
    turned: Forest,
    ranges: LeafRanges,
    row: npt.NDArray[np.int64],
    level_offsets: npt.NDArray[np.int64],
    levels: npt.NDArray[np.uint16],
) -> SlotPrograms:
    """Programs of trees of any shape; arguments as `gpuqs.layout.steps.step_programs` has them."""
    oblivious = np.diff(level_offsets) > 0
    place, first, end, own = _slots(turned, ranges)
    n_slots = max(int(own.max(initial=0)), FIRST_SLOT) + 1
    length = np.where(oblivious, np.diff(level_offsets), np.diff(turned.node_offsets))
    room = -(-length // NODES_TOGETHER) * NODES_TOGETHER
    offsets = np.append(0, np.cumsum(room))
    nodes = np.zeros(offsets[-1], NODE)
    nodes["first"], nodes["end"], nodes["own"], nodes["plane"] = ZEROS, ZEROS, FIRST_SLOT, n_slots  # padding

    mine = ~oblivious[turned.node_tree]
    at = (offsets[turned.node_tree] + place)[mine]
    lowest_bit = ranges.middle & -ranges.middle
    plane = n_slots + np.frexp(np.maximum(lowest_bit, 1))[1] - 1
    for name, values in (("row", row), ("first", first), ("end", end), ("own", own), ("plane", plane)):
        nodes[name][at] = values[mine]

    # In an oblivious tree, a level's S is its predicate, ZEROS | (ONES & predicate), and so is its plane.
    of_tree = np.repeat(np.arange(turned.n_trees), np.diff(level_offsets))
    level = np.arange(len(levels)) - level_offsets[of_tree]
    at = offsets[of_tree] + level
    nodes["row"][at], nodes["first"][at], nodes["plane"][at] = levels.astype(np.int64) + 1, ONES, n_slots + level
    return SlotPrograms(offsets.astype(np.int32), nodes, n_slots)


def _slots(turned: Forest, ranges: LeafRanges) -> tuple[npt.NDArray[np.int64], ...]:
    """For each node: its place in its tree's program, and the slots of S_first, S_end and of its own S_j.

    Level by level: a node takes the lowest free slot, and tells both children which slots are taken, and whether
    S_first and S_end are needed after the child. Slots of the first child's subtree are free again for the second's.
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
            # For the second child, the other boundary's slot is free, unless it is needed later.
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
