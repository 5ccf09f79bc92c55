"""Trees as scikit-learn holds them, nodes and leaves in one table, joined into a Forest's arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gpuqs.cpu_fallback import node_tables
from gpuqs.errors import ModelFormatError
from gpuqs.forest import CATEGORICAL, NAN_LEFT
from gpuqs.formats.growing import GrowingForest, offsets

#: Trees are converted together once they have at least this many nodes: few calls, and little temporary memory.
_BLOCK_NODES: Final = 1 << 12


@dataclass(frozen=True)
class NodeTable:
    """One tree of M nodes, leaves among them; node 0 is the root. Or several trees, one after another.

    Parameters
    ----------
    leaf : bool [M]
        Which nodes are leaves; what fields other than ``value`` hold for them is ignored.
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
    starts : int64 [T + 1], optional
        Bounds of the trees among the nodes; one tree by default. Children are numbered within their tree.
    """

    leaf: npt.NDArray[np.bool_]
    left: npt.NDArray[np.int64]
    right: npt.NDArray[np.int64]
    feature: npt.NDArray[np.int64]
    threshold: npt.NDArray[np.float64]
    routing: npt.NDArray[np.uint8]
    value: npt.NDArray[np.float64]
    sets: Sequence[npt.NDArray[np.uint32]] = field(default_factory=tuple)
    starts: npt.NDArray[np.int64] | None = None

    @property
    def bounds(self) -> npt.NDArray[np.int64]:
        return np.array([0, len(self.leaf)]) if self.starts is None else self.starts


def table_of_tree(tree: Any, value: npt.NDArray[np.float64], *, missing: bool = True) -> NodeTable:
    """The table of a ``sklearn.tree`` estimator's ``tree_``.

    Parameters
    ----------
    tree : sklearn.tree._tree.Tree
    value : float64 [M, K]
    missing : bool
        Whether NaN goes where the tree says (as it does since scikit-learn 1.3), instead of right.
    """
    left = np.asarray(tree.children_left, np.int64)
    routing = np.zeros(len(left), np.uint8)
    if missing and hasattr(tree, "missing_go_to_left"):
        routing[np.asarray(tree.missing_go_to_left) != 0] = NAN_LEFT
    return NodeTable(
        leaf=left == -1,
        left=left,
        right=np.asarray(tree.children_right, np.int64),
        feature=np.asarray(tree.feature, np.int64),
        threshold=np.asarray(tree.threshold, np.float64),
        routing=routing,
        value=value,
    )


def node_depths(tree: Any) -> npt.NDArray[np.int64]:
    """Depth of every node of a ``tree_``, int64 [M]; the root's is 0.

    Those of a damaged tree, which no Forest takes, are arbitrary.
    """
    left, right = np.asarray(tree.children_left), np.asarray(tree.children_right)
    depth = np.zeros(len(left), np.int64)
    level, n_met = np.zeros(1, np.int64), 1
    while len(level) and n_met <= len(left):
        inner = level[left[level] != -1]
        below, beside = np.concatenate([left[inner], right[inner]]), np.tile(inner, 2)
        there = (below >= 0) & (below < len(left))
        level = below[there]
        depth[level] = depth[beside[there]] + 1
        n_met += len(level)
    return depth


def forest_arrays(tables: Iterable[NodeTable]) -> dict[str, np.ndarray]:
    """The arrays of a Forest of these trees; ``leaf_id`` is a leaf's number among its tree's nodes."""
    forest, first_tree = GrowingForest(), 0
    for block in _blocks(tables):
        forest.extend(_canonical(block, first_tree))
        first_tree += len(block.bounds) - 1
    return forest.arrays()


def _blocks(tables: Iterable[NodeTable]) -> Iterator[NodeTable]:
    """The tables, joined into blocks of trees."""
    block: list[NodeTable] = []
    n_nodes = 0
    for table in tables:
        block.append(table)
        n_nodes += len(table.leaf)
        if n_nodes >= _BLOCK_NODES:
            yield _joined(block)
            block, n_nodes = [], 0
    if block:
        yield _joined(block)


def _joined(tables: list[NodeTable]) -> NodeTable:
    """Some tables, with values of equal width, as one."""
    if len(tables) == 1:
        return tables[0]
    names = "leaf", "left", "right", "feature", "threshold", "routing", "value"
    arrays = {name: np.concatenate([getattr(table, name) for table in tables]) for name in names}
    starts = offsets(np.concatenate([np.diff(table.bounds) for table in tables]))
    return NodeTable(**arrays, sets=[words for table in tables for words in table.sets], starts=starts)


def _canonical(table: NodeTable, first_tree: int) -> dict[str, np.ndarray]:
    """What the trees of a table add to a Forest's arrays, with sizes instead of offsets."""
    columns = (np.asarray(column, np.int64) for column in (table.left, table.right, table.feature))
    routing = np.asarray(table.routing, np.uint8)
    leaf, value = table.leaf.view(np.uint8), np.asarray(table.value, np.float64)
    divided = node_tables.divide(leaf, *columns, table.threshold, routing, value, table.bounds)
    if isinstance(divided, tuple):
        tree, node, field = divided
        raise ModelFormatError(f"node {node}: child is outside of its tree", tree=first_tree + tree, field=field)
    n_words = np.zeros(len(divided["routing"]), np.int64)
    if len(table.sets):
        n_words[(divided["routing"] & CATEGORICAL) != 0] = [len(words) for words in table.sets]
    words = np.concatenate(table.sets) if len(table.sets) else np.zeros(0)
    return {**divided, "n_words": n_words, "category_words": words}
