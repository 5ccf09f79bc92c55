"""Trees as steps from left to right, with a stack: the programs of the GPU kernel `steps`.

Step j gives S_j. Between steps there are ``a``, the last S, and ``top``, the S that closes the current subtree:

- A node whose left child is a leaf is a step: ``a = top | (a & row)``.
- Any other node pushes before the first step of its subtree: it pushes ``top``, then sets ``top = top | (a & row)``,
  its own S. Its own step only copies that, ``a = top`` (its row is row 0, zeros), and the step after pops.

Eight steps are a group. Groups are in pages of one size, no larger than the kernel stages at once. An oblivious
tree's groups are its levels' rows, eight planes each. Steps beyond the last give zeros.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuqs.forest import Forest
from gpuqs.layout.leaves import LeafRanges

#: Steps of a group, whose rows are loaded together.
STEPS = 8
#: Upper limit of 32-bit words in a page: 16 bytes per lane.
PAGE = 128
#: 32-bit words of a group: its steps' rows, and two of flags.
GROUP = STEPS + 2
#: Words that the kernel reads after the rows of a page's nodes that push: the row of the next one, and one word more.
AHEAD = 2
#: Bits of a step's flags that say how many nodes push before it.
PUSHES = 0x3F
#: The bit that says that the stack is popped before they push.
POP = 0x80
#: The bit between says something of the whole group, which depends on the step of the group that has it:
MARK = 0x40
#: its page ends with the group,
ENDS_PAGE = 0
#: its tree ends with the group,
ENDS_TREE = 1
#: its rows are an oblivious tree's levels.
LEVELS = 2
#: Upper limit of the stack's depth. With the planes of the largest trees, four warps with two words per lane then take
#: 46 KiB of shared memory; 48 KiB are available without opting in.
MAX_DEPTH = 28


@dataclass(frozen=True)
class StepPrograms:
    """Programs of T trees.

    Parameters
    ----------
    pages : uint32 [pages, words of a page]
        Rows of the groups' steps, flags of the groups' steps (a byte each), rows of the nodes that push, in order,
        and the row of the first node that pushes in a later page.
    tree_pages : int32 [T + 1]
        First page of each tree.
    n_groups : int
        Groups of a page; those after the one that ends it are not run.
    depth : int
        Depth of the deepest stack.
    """

    pages: npt.NDArray[np.uint32]
    tree_pages: npt.NDArray[np.int32]
    n_groups: int
    depth: int


def step_programs(
    turned: Forest,
    ranges: LeafRanges,
    row: npt.NDArray[np.int64],
    level_offsets: npt.NDArray[np.int64],
    levels: npt.NDArray[np.uint16],
) -> StepPrograms | None:
    """Programs, or None where a tree's stack is deeper than `MAX_DEPTH`.

    Parameters
    ----------
    turned : Forest
        The forest after polarity has swapped children.
    ranges : LeafRanges
    row : int64 [N]
        Row of each node.
    level_offsets, levels
        As returned by `gpuqs.layout.bitslice.oblivious_levels`.
    """
    n_levels = np.diff(level_offsets)
    n_steps = np.where(n_levels > 0, n_levels, np.diff(turned.node_offsets))
    tree_groups = np.maximum(-(-n_steps // STEPS), 1)
    offsets = np.append(0, np.cumsum(tree_groups))
    first_step = STEPS * offsets[:-1]
    rows, flags = np.zeros(STEPS * offsets[-1], np.uint32), np.zeros(STEPS * offsets[-1], np.uint8)

    by_step = n_levels[turned.node_tree] == 0
    pushes = by_step & (turned.left >= 0)
    plain = by_step & ~pushes
    start = first_step[turned.node_tree]
    rows[(start + ranges.middle - 1)[plain]] = row[plain]
    after = start + ranges.middle
    after = after[pushes & (ranges.middle < STEPS * tree_groups[turned.node_tree])]
    before = (start + ranges.first)[pushes]
    order = np.lexsort((turned.depth[pushes], before))
    pushed_before, pushed_row = before[order], row[pushes][order]
    n_pushed = np.bincount(before, minlength=len(rows))
    height = np.cumsum(n_pushed)
    height -= np.cumsum(np.bincount(after, minlength=len(rows)))
    height -= np.repeat(np.append(0, height)[first_step], STEPS * tree_groups)
    depth = int(height.max(initial=0))
    if depth > MAX_DEPTH:
        return None
    flags[:] = n_pushed
    flags[after] |= POP
    of_tree = np.repeat(np.arange(turned.n_trees), n_levels)
    rows[first_step[of_tree] + np.arange(len(levels)) - level_offsets[of_tree]] = levels.astype(np.int64) + 1

    tree = np.repeat(np.arange(turned.n_trees), tree_groups)
    number = np.arange(len(tree)) - offsets[tree]
    n_groups, page, most = _cut(number, n_pushed.reshape(-1, STEPS).sum(axis=1))
    of_group = flags.reshape(-1, STEPS)
    ends_tree = np.diff(tree, append=-1) != 0
    of_group[np.diff(page, append=-1) != 0, ENDS_PAGE] |= MARK
    of_group[ends_tree, ENDS_TREE] |= MARK
    of_group[n_levels[tree] > 0, LEVELS] |= MARK

    words = -(-(n_groups * GROUP + most + AHEAD) // 4) * 4
    pages = np.zeros((page[-1] + 1 if len(page) else 0, words), np.uint32)
    place = (number % n_groups)[:, None]
    at = page[:, None]
    pages[at, place * STEPS + np.arange(STEPS)] = rows.reshape(-1, STEPS)
    pages[at, n_groups * STEPS + place * 2 + np.arange(2)] = of_group.view(np.uint32)
    of_pushed = page[pushed_before // STEPS]
    first = np.searchsorted(of_pushed, np.arange(len(pages) + 1))
    pages[of_pushed, n_groups * GROUP + np.arange(len(of_pushed)) - first[of_pushed]] = pushed_row
    pages[np.arange(len(pages)), n_groups * GROUP + np.diff(first)] = np.append(pushed_row, 0)[first[1:]]
    tree_pages = np.append(0, page[ends_tree] + 1).astype(np.int32)
    return StepPrograms(pages, tree_pages, n_groups, depth)


def _cut(number: npt.NDArray[np.int64], pushed: npt.NDArray[np.int64]) -> tuple[int, npt.NDArray[np.int64], int]:
    """Groups of a page, as many as fit; the page of each group, and the most nodes that push in one.

    Parameters
    ----------
    number : int64 [G]
        Number of each group in its tree.
    pushed : int64 [G]
        Nodes that push in each group; any group by itself fits a page.
    """
    n_groups = min(int(number.max(initial=0)) + 1, STEPS)
    while True:
        page = np.cumsum(number % n_groups == 0) - 1
        most = int(np.bincount(page, pushed, minlength=1).max())
        if n_groups * GROUP + most + AHEAD <= PAGE:
            return n_groups, page, most
        n_groups -= 1
