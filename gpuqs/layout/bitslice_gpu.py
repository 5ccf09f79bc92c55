"""The bit-sliced layout of GPUs: rows of document words, one per predicate, and tree programs.

As in `gpuqs.layout.bitslice`: a word's bit says "the test is false for this document", and a tree is the recurrence
``S_j = S_end | (S_first & predicate)``, whose S_j are the bits of the exit leaf's number in Gray code. Three things
are different on GPUs:

- **Rows.** A tree block's predicates are rows 1, 2, ... of words, in the order in which they are decoded; row 0 is
  zeros.
- **Polarity.** A predicate may be stored negated: the children of all of its nodes are then swapped. Its nodes vote: if
  one child is a leaf, a node wants it on the left, where in-order programs need no stack for it.
- **Programs.** Steps from left to right with a stack (`gpuqs.layout.steps`), or nodes over few slots
  (`gpuqs.layout.slots`) where a stack would be too deep.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gpuqs.cpu_fallback.making import number_predicates
from gpuqs.forest import Forest
from gpuqs.layout.bitslice import LOW_BITS, MAX_PREDICATES, RANK_BITS, oblivious_levels, predicate_keys
from gpuqs.layout.leaves import number_leaves
from gpuqs.layout.ranks import RankTables
from gpuqs.layout.slots import SlotPrograms, slot_programs
from gpuqs.layout.steps import StepPrograms, step_programs

#: Upper limit of leaves in a tree: leaf numbers have 16 bits, and a tree block has at most as many predicates.
MAX_LEAVES = MAX_PREDICATES
#: Upper limit of a forest's columns: more have not been tried.
MAX_COLUMNS = 1 << 16
#: Fewest trees that share rows, if `MAX_PREDICATES` allows.
TREES = 64
#: The kernels' `Segment`: predicates of a column whose ranks are the same above the low bits (`high`). Bit b of `low`:
#: there is one whose low bits are b; bit b of `flip`: its row is negated. Rows start at `row`, in the order of b.
#: `marked`: missing values go left, and the plane after the rank's bits marks them.
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
        Position of each leaf in its tree, from left to right after polarity has swapped children.
    oblivious : bool [T]
        Trees whose levels' predicates are the leaf number's bits: leaves are numbered in binary, not in Gray code.
    block_offsets : int32 [B + 1]
        First tree of each tree block.
    block_segments : int32 [B + 1]
    segments : SEGMENT [...]
    n_rows : int
        Rows of the largest tree block, including row 0.
    programs : StepPrograms or SlotPrograms
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
    programs: StepPrograms | SlotPrograms
    n_planes: int


def build_rows(
    forest: Forest, ranks: RankTables, max_predicates: int = MAX_PREDICATES, evaluation: str = "steps"
) -> RowLayout:
    """Lay a forest out, at most `MAX_LEAVES` leaves a tree.

    Parameters
    ----------
    forest : Forest
    ranks : RankTables
    max_predicates : int
        Upper limit of predicates in a tree block, unless `TREES` trees have more.
    evaluation : {"steps", "slots"}
        Programs to make; always slots if steps would need too deep a stack.
    """
    together = max(1, min(TREES, MAX_PREDICATES // max(forest.n_leaves, 1)))
    starts = np.append(np.arange(0, forest.n_trees, together), forest.n_trees).astype(np.int32)
    keys, key = predicate_keys(forest, ranks)
    first_nodes = forest.node_offsets[starts]
    max_nodes = forest.n_nodes + 1  # no limit
    ends, distinct, n_distinct, predicate = number_predicates(key, len(keys), first_nodes, max_predicates, max_nodes)
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
    segments, block_segments = _segments(keys[distinct], blocks, negated, ranks)
    n_planes = max(1, int(forest.n_leaves - 1).bit_length()) if forest.n_trees else 1
    of_trees = (turned, ranges, predicate + 1, level_offsets, levels)
    programs = step_programs(*of_trees) if evaluation == "steps" else None
    return RowLayout(
        ranks=ranks,
        position=ranges.position,
        oblivious=np.diff(level_offsets) > 0,
        block_offsets=block_offsets,
        block_segments=block_segments,
        segments=segments,
        n_rows=int(n_distinct.max(initial=0)) + 1,
        programs=programs or slot_programs(*of_trees),
        n_planes=n_planes,
    )


def _vote(forest: Forest, predicate: npt.NDArray[np.int64], n: int) -> npt.NDArray[np.bool_]:
    """Which of the ``n`` predicates are negated: those with more leaves as right children than as left children."""
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
        segments[name] = np.bincount(group, bits, minlength=len(first))  # distinct bits: their sum is their OR
    return segments, np.searchsorted(first, blocks).astype(np.int32)
