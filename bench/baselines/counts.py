"""Nodes that the systems visit per document and tree (paper 002, Table V), which explain who is faster."""

from __future__ import annotations

import numpy as np

from baselines.columns import find_columns, thresholds
from gpuqs.forest import Forest
from gpuqs.layout import columns as layout_columns
from gpuqs.layout.reversing import false_trees

#: Which kind of visited nodes a system processes one by one, and the time per node in paper 002 (nanoseconds at
#: 3.5 GHz, Istella, 1,000 trees x 64 leaves: Table III's time divided by Table V's count).
VISITS = {
    "qs": ("false nodes", 11.2 / 12.52),
    "VPRED": ("predicated", 54.3 / 45.60),
    "IF-THEN-ELSE": ("walks", 55.0 / 32.18),
    "STRUCT+": ("walks", 112.6 / 32.18),
}


def visited_nodes(forest: Forest, X: np.ndarray) -> dict[str, float]:
    """Means over documents and trees.

    "walks" visit the nodes from root to leaf (STRUCT+, IF-THEN-ELSE, ...); "predicated" walks always take as many
    steps as the tree is deep (PRED, VPRED); QuickScorer visits the "false nodes"; "nodes" counts all nodes.
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
    """False nodes per document and tree (paper 002, section 6) if trees with many of them are reversed.

    "none reversed"; "as a sample says": reverse trees with more false than true nodes on the sample; "as gpuqs says":
    reverse the trees that `bwqs` does, without a sample. A reversed tree's false nodes are the ones that were true.
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
    """Each tree's number of false nodes per document."""
    columns = find_columns(forest, missing=True)
    false = ~(columns.fill(X, X.dtype)[:, columns.of_node] <= thresholds(forest, X.dtype))
    sums: np.ndarray = np.bincount(forest.node_tree, false.mean(axis=0), minlength=forest.n_trees)
    return sums
