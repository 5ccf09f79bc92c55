"""Trees cut into treelets: a node by itself, or with its left child, its right child, or both.

A treelet's root passes its result to the children in a register, so that a forest cut into few
treelets reads and writes less memory than node by node.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuqs.forest import Forest
from gpuqs.layout.traversal import split_by_depth

#: Kind bit: the treelet holds its root's left child.
WITH_LEFT = 1
#: Kind bit: it holds the right child.
WITH_RIGHT = 2


@dataclass(frozen=True)
class Treelets:
    """Treelets that cover every inner node once; M treelets.

    Parameters
    ----------
    root : int64 [M]
        The forest's node at the top of each.
    kind : int64 [M]
        Bits `WITH_LEFT` and `WITH_RIGHT`.
    level : int64 [M]
        Treelets above it in its tree.
    """

    root: npt.NDArray[np.int64]
    kind: npt.NDArray[np.int64]
    level: npt.NDArray[np.int64]


def cut_into_treelets(forest: Forest) -> Treelets:
    """Cover each tree with the fewest treelets (bottom-up dynamic programming over its nodes)."""
    n = forest.n_nodes
    base = forest.node_offsets[forest.node_tree]
    # All leaves are node n, which costs nothing, and whose children are node n.
    left = np.append(np.where(forest.left >= 0, base + forest.left, n), n)
    right = np.append(np.where(forest.right >= 0, base + forest.right, n), n)
    levels = split_by_depth(forest)

    cost = np.zeros(n + 1, np.int64)  # fewest treelets below and including a node
    below = np.zeros(n + 1, np.int64)  # the same without the node itself
    kind = np.zeros(n + 1, np.int64)
    for nodes in reversed(levels):
        a, b = left[nodes], right[nodes]
        below[nodes] = cost[a] + cost[b]
        choices = np.stack([below[nodes], below[a] + cost[b], cost[a] + below[b], below[a] + below[b]])
        choices[WITH_LEFT, a == n] = choices[WITH_RIGHT, b == n] = n + 1  # no such child
        choices[WITH_LEFT | WITH_RIGHT, (a == n) | (b == n)] = n + 1
        # Of equal costs the largest treelet, so that more of the lower ones are on the same level.
        kind[nodes] = 3 - choices[::-1].argmin(axis=0)
        cost[nodes] = choices.min(axis=0) + 1

    level = np.full(n + 1, -1, np.int64)
    level[forest.node_offsets[:-1][np.diff(forest.node_offsets) > 0]] = 0
    for nodes in levels:
        roots = nodes[level[nodes] >= 0]
        for child, bit in ((left, WITH_LEFT), (right, WITH_RIGHT)):
            taken = (kind[roots] & bit) != 0
            next_roots = [(roots[~taken], child[roots[~taken]])]
            inside = child[roots[taken]]
            next_roots += [(roots[taken], left[inside]), (roots[taken], right[inside])]
            for parent, node in next_roots:
                level[node] = level[parent] + 1
        level[n] = -1
    root = np.flatnonzero(level[:n] >= 0)
    return Treelets(root, kind[root], level[root])
