"""The orders in which a forest's nodes are gone through: level by level, in preorder, in pairs of siblings."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpuqs.forest import Forest


def split_by_depth(forest: Forest) -> list[npt.NDArray[np.int64]]:
    """The nodes of each depth, from the roots down."""
    by_depth = np.argsort(forest.depth, kind="stable")
    return np.split(by_depth, np.flatnonzero(np.diff(forest.depth[by_depth])) + 1)


def _children(forest: Forest) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Each node's children among all items: the forest's nodes first, then its leaves."""
    node_base = forest.node_offsets[forest.node_tree]
    leaf_base = forest.n_nodes + forest.leaf_offsets[forest.node_tree]
    left, right = (np.where(c >= 0, node_base + c, leaf_base + ~c) for c in (forest.left, forest.right))
    return left, right


def preorder(forest: Forest, n_left_leaves: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """Number of each node among its tree's, where a walk that turns left first meets them.

    Parameters
    ----------
    forest : Forest
    n_left_leaves : int32 [N]
        Leaves of each node's left subtree.
    """
    left, right = _children(forest)
    number = np.zeros(forest.n_nodes, np.int64)
    for nodes in split_by_depth(forest):
        after = number[nodes] + 1
        n_left = n_left_leaves[nodes] - 1  # nodes of the left subtree
        for child, of_child in ((left[nodes], after), (right[nodes], after + n_left)):
            inner = child < forest.n_nodes
            number[child[inner]] = of_child[inner]
    return number


def pair_up(
    forest: Forest, number: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Lay items out: each tree's root first, then pairs of siblings in the order of their parents' ``number``.

    Returns
    -------
    place : int64 [N + L]
        Place of each of the forest's nodes, then of each of its leaves.
    distance : int64 [N]
        From each node to its left child.
    tree_offsets : int64 [T + 1]
        First item of each tree.
    """
    n_nodes, tree_offsets = forest.n_nodes, forest.node_offsets + forest.leaf_offsets
    left, right = _children(forest)
    place = np.empty(n_nodes + len(forest.leaf_value), np.int64)
    first = tree_offsets[forest.node_tree] + 1 + 2 * number
    place[left], place[right] = first, first + 1
    has_nodes = np.diff(forest.node_offsets) > 0
    place[np.where(has_nodes, forest.node_offsets[:-1], n_nodes + forest.leaf_offsets[:-1])] = tree_offsets[:-1]
    return place, place[left] - place[:n_nodes], tree_offsets
