"""Nodes that the systems visit, a document and tree (paper 002, Table V): what explains who is faster."""

from __future__ import annotations

import numpy as np

from baselines.columns import find_columns, thresholds
from gpuqs.forest import Forest
from gpuqs.layout import columns as layout_columns
from gpuqs.layout.reversing import false_trees

#: Which of the visited nodes a system takes one after the other; and what one took in paper 002 (nanoseconds on a
#: processor of 3.5 GHz, Istella, 1,000 trees x 64 leaves: Table III's time over Table V's count).
VISITS = {
    "qs": ("false nodes", 11.2 / 12.52),
    "VPRED": ("predicated", 54.3 / 45.60),
    "IF-THEN-ELSE": ("walks", 55.0 / 32.18),
    "STRUCT+": ("walks", 112.6 / 32.18),
}


def visited_nodes(forest: Forest, X: np.ndarray) -> dict[str, float]:
    """Means over documents and trees.

    "walks" visit the nodes from root to leaf (STRUCT+, IF-THEN-ELSE, ...); "predicated" walks make as many steps as the
    tree is deep (PRED, VPRED); "false nodes" are QuickScorer's; "nodes" are all.
    """
    columns = find_columns(forest, missing=True)
    rows = columns.fill(X, X.dtype)
    false = ~(rows[:, columns.of_node] <= thresholds(forest, X.dtype))
    has_nodes = np.diff(forest.node_offsets) > 0
    at = np.broadcast_to(np.where(has_nodes, 0, -1), (len(X), forest.n_trees)).copy()
    steps = 0
    while (walking := at >= 0).any():
        document, tree = np.nonzero(walking)
        node = forest.node_offsets[tree] + at[document, tree]
        at[document, tree] = np.where(false[document, node], forest.right[node], forest.left[node])
        steps += len(node)
    deepest = np.zeros(forest.n_trees, np.int64)
    np.maximum.at(deepest, forest.node_tree, forest.depth + 1)
    pairs = max(len(X) * forest.n_trees, 1)
    return {
        "walks": steps / pairs,
        "predicated": float(deepest.sum()) / max(forest.n_trees, 1),
        "false nodes": float(false.sum()) / pairs,
        "nodes": forest.n_nodes / max(forest.n_trees, 1),
    }


def visited_by_reversing(forest: Forest, sample: np.ndarray, X: np.ndarray) -> dict[str, float]:
    """False nodes a document and tree (paper 002, section 6), where trees with many of them are reversed.

    "none reversed"; "as a sample says": trees with more false nodes than true ones on the sample; "as gpuqs says":
    those that `bwqs` reverses, which knows no sample. A reversed tree's false nodes are those that were true.
    """
    nodes = np.diff(forest.node_offsets)
    false, of_sample = (false_nodes(forest, rows) for rows in (X, sample))
    choices = {
        "none reversed": np.zeros(forest.n_trees, bool),
        "as a sample says": of_sample > nodes / 2,
        "as gpuqs says": false_trees(forest, layout_columns.find_columns(forest)),
    }
    return {name: float(np.where(turned, nodes - false, false).mean()) for name, turned in choices.items()}


def false_nodes(forest: Forest, X: np.ndarray) -> np.ndarray:
    """Each tree's nodes whose test is false, a document."""
    columns = find_columns(forest, missing=True)
    false = ~(columns.fill(X, X.dtype)[:, columns.of_node] <= thresholds(forest, X.dtype))
    sums: np.ndarray = np.bincount(forest.node_tree, false.mean(axis=0), minlength=forest.n_trees)
    return sums
