"""Forests and documents as the papers' systems need them: every test is ``x <= threshold``, false for missing values.

    a node that sends missing values right reads its feature's original column
    any other reads an added column: the feature's, with -inf (left) or NaN (right) for missing values
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuqs.forest import CATEGORICAL, NAN_LEFT, ZERO_MISSING, ZERO_THRESHOLD, Forest


@dataclass(frozen=True)
class Columns:
    """The original columns, then one for each (feature, routing) in ``added``; ``of_node`` is each node's column."""

    n_features: int
    of_node: np.ndarray
    added: tuple[tuple[int, int], ...]

    def __len__(self) -> int:
        return self.n_features + len(self.added)

    def fill(self, X: np.ndarray, dtype: np.dtype) -> np.ndarray:
        """Rows with these columns; ``X`` itself if it already has this form."""
        with np.errstate(over="ignore"):
            X = np.ascontiguousarray(X, dtype)
        if not self.added:
            return X
        rows = np.empty((len(X), len(self)), dtype)
        rows[:, : self.n_features] = X
        for at, (feature, routing) in enumerate(self.added, self.n_features):
            x = X[:, feature]
            missing = np.isnan(x)
            if routing & ZERO_MISSING:
                missing |= np.abs(x.astype(np.float64)) <= ZERO_THRESHOLD
            rows[:, at] = np.where(missing, -np.inf if routing & NAN_LEFT else np.nan, x)
        return rows


def find_columns(forest: Forest, missing: bool) -> Columns:
    """The columns for a forest of numeric tests; ``missing`` False: documents have no NaN."""
    assert not (forest.routing & CATEGORICAL).any()
    routing = forest.routing.astype(np.int64)
    if not missing:
        routing[routing == NAN_LEFT] = 0
    key = forest.feature * 4 + routing
    kinds = np.unique(key[routing != 0])
    of_node = np.where(routing == 0, forest.feature, forest.n_features + np.searchsorted(kinds, key))
    return Columns(forest.n_features, of_node.astype(np.int32), tuple((int(k) // 4, int(k) % 4) for k in kinds))


def thresholds(forest: Forest, dtype: np.dtype) -> np.ndarray:
    """Thresholds rounded down to the type of documents: a document value passes one iff it passes the original."""
    with np.errstate(over="ignore"):
        rounded = forest.threshold.astype(dtype)
    above = rounded > forest.threshold
    rounded[above] = np.nextafter(rounded[above], dtype.type(-np.inf))
    return rounded


def is_oblivious(forest: Forest, of_node: np.ndarray) -> bool:
    """Whether every tree is complete with one test per level."""
    tree, depth = forest.node_tree, forest.depth
    n_leaves = np.diff(forest.leaf_offsets)
    deepest = np.frexp(n_leaves)[1] - 1
    level = tree * 64 + depth
    if (n_leaves != 1 << deepest).any() or (depth >= deepest[tree]).any():
        return False
    first = np.zeros(64 * (forest.n_trees + 1), np.int64)
    first[level] = np.arange(forest.n_nodes)
    alike = first[level]
    return bool((of_node == of_node[alike]).all() and (forest.threshold == forest.threshold[alike]).all())
