"""Orders of a forest's nodes: level by level, in pairs of siblings, in preorder."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpuqs.cpu_fallback import making
from gpuqs.forest import Forest


def split_by_depth(forest: Forest) -> list[npt.NDArray[np.int64]]:
    """The nodes of each depth, from the roots down."""
    by_depth = np.argsort(forest.depth, kind="stable")
    return np.split(by_depth, np.flatnonzero(np.diff(forest.depth[by_depth])) + 1)


def pair_up(forest: Forest) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Lay items out: each tree's root first, then pairs of siblings in preorder of their parents.

    Returns
    -------
    place : int64 [N + L]
        Place of each of the forest's nodes, then of each of its leaves.
    distance : int64 [N]
        From each node to its left child.
    tree_offsets : int64 [T + 1]
        First item of each tree.
    """
    return *making.pair_up(forest), forest.node_offsets + forest.leaf_offsets


def preorder(forest: Forest) -> npt.NDArray[np.int64]:
    """Place of each node if trees are stored one after another, their nodes in preorder: int64 [N]."""
    place, distance, item_offsets = pair_up(forest)
    # Pairs of siblings lie in preorder of their parents, from each tree's second item on.
    first_pair = place[: forest.n_nodes] + distance - 1 - item_offsets[forest.node_tree]
    return forest.node_offsets[forest.node_tree] + first_pair // 2
