"""Trees as scikit-learn holds them, nodes and leaves in one table, joined into a Forest's arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuqs.forest import CATEGORICAL, NAN_LEFT


@dataclass(frozen=True)
class NodeTable:
    """One tree of M nodes, leaves among them; node 0 is the root.

    Parameters
    ----------
    leaf : bool [M]
        Which nodes are leaves; what the other fields but ``value`` hold for them is ignored.
    left, right : integer [M]
        Numbers of a node's children.
    feature : integer [M]
    threshold : float64 [M]
    routing : uint8 [M]
        As in `gpuqs.forest.Forest`.
    value : float64 [M, K]
        What leaves add.
    sets : sequence of uint32 arrays
        Category sets of the nodes that have the bit `CATEGORICAL`, in the order of these nodes.
    """

    leaf: npt.NDArray[np.bool_]
    left: npt.NDArray[np.int64]
    right: npt.NDArray[np.int64]
    feature: npt.NDArray[np.int64]
    threshold: npt.NDArray[np.float64]
    routing: npt.NDArray[np.uint8]
    value: npt.NDArray[np.float64]
    sets: Sequence[npt.NDArray[np.uint32]] = field(default_factory=tuple)


def table_of_tree(tree: Any, value: npt.NDArray[np.float64], *, missing: bool = True) -> NodeTable:
    """The table of a ``sklearn.tree`` estimator's ``tree_``.

    Parameters
    ----------
    tree : sklearn.tree._tree.Tree
    value : float64 [M, K]
    missing : bool
        Whether NaN goes where the tree says (which it does since scikit-learn 1.3), not right.
    """
    left = np.asarray(tree.children_left, np.int64)
    nan_left = np.asarray(getattr(tree, "missing_go_to_left", np.zeros(len(left), np.uint8)), bool)
    return NodeTable(
        leaf=left == -1,
        left=left,
        right=np.asarray(tree.children_right, np.int64),
        feature=np.asarray(tree.feature, np.int64),
        threshold=np.asarray(tree.threshold, np.float64),
        routing=np.where(nan_left & missing, NAN_LEFT, 0).astype(np.uint8),
        value=value,
    )


def node_depths(tree: Any) -> npt.NDArray[np.int64]:
    """Depth of every node of a ``tree_``, int64 [M]; the root's is 0."""
    left, right = np.asarray(tree.children_left), np.asarray(tree.children_right)
    depth = np.zeros(len(left), np.int64)
    level = np.zeros(1, np.int64)
    while len(level):
        inner = level[left[level] != -1]
        below = np.concatenate([left[inner], right[inner]])
        depth[below] = depth[np.tile(inner, 2)] + 1
        level = below
    return depth


def forest_arrays(tables: Sequence[NodeTable]) -> dict[str, np.ndarray]:
    """The arrays of a Forest of these trees; ``leaf_id`` is a leaf's number in its table."""
    parts: dict[str, list[np.ndarray]] = {
        name: [] for name in ("feature", "threshold", "left", "right", "routing", "leaf_value", "leaf_id")
    }
    words: list[np.ndarray] = []
    for table in tables:
        leaf, inner = table.leaf, ~table.leaf
        number = np.where(leaf, -np.cumsum(leaf), np.cumsum(inner) - 1)  # leaf i is ~i = -(i + 1)
        parts["feature"].append(table.feature[inner])
        parts["threshold"].append(table.threshold[inner])
        parts["left"].append(number[table.left[inner]])
        parts["right"].append(number[table.right[inner]])
        parts["routing"].append(table.routing[inner])
        parts["leaf_value"].append(table.value[leaf])
        parts["leaf_id"].append(np.flatnonzero(leaf))
        words += table.sets
    dtypes = {"threshold": np.float64, "routing": np.uint8, "leaf_value": np.float64}
    arrays = {name: np.concatenate(of_trees).astype(dtypes.get(name, np.int32)) for name, of_trees in parts.items()}
    sizes = np.zeros(len(arrays["routing"]), np.int64)
    sizes[(arrays["routing"] & CATEGORICAL) != 0] = [len(of_node) for of_node in words]
    arrays["node_offsets"] = _offsets([len(of_tree) for of_tree in parts["feature"]])
    arrays["leaf_offsets"] = _offsets([len(of_tree) for of_tree in parts["leaf_id"]])
    arrays["category_offsets"] = _offsets(sizes)
    arrays["category_words"] = np.concatenate([np.zeros(0, np.uint32), *words])
    return arrays


def _offsets(sizes: Any) -> npt.NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
