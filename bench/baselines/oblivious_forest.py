"""Oblivious forests for the bench, made in a moment at any size."""

from __future__ import annotations

import numpy as np

from gpuqs.forest import Forest


def oblivious_like(n_trees: int, depth: int, X: np.ndarray, seed: int = 0) -> Forest:
    """Complete trees that make one test a level, thresholds from quantiles of ``X``'s columns (255 a feature)."""
    rng = np.random.default_rng(seed)
    n_nodes, n_leaves = (1 << depth) - 1, 1 << depth
    node = np.arange(n_nodes)
    level = np.frexp(node + 1)[1] - 1  # nodes are numbered as in a heap
    child = 2 * node + 1
    left, right = (np.where(c < n_nodes, c, ~(c - n_nodes)) for c in (child, child + 1))
    popularity = 1.0 / np.arange(1, X.shape[1] + 1)
    feature = rng.permutation(X.shape[1])[
        rng.choice(X.shape[1], (n_trees, depth), p=popularity / popularity.sum())
    ]
    quantiles = np.quantile(X.astype(np.float64), np.linspace(0.002, 0.998, 255), axis=0)
    threshold = quantiles[rng.integers(0, 255, feature.shape), feature]
    return Forest(
        n_features=X.shape[1],
        node_offsets=np.arange(n_trees + 1) * n_nodes,
        leaf_offsets=np.arange(n_trees + 1) * n_leaves,
        feature=feature[:, level].ravel().astype(np.int32),
        threshold=threshold[:, level].ravel(),
        left=np.tile(left, n_trees).astype(np.int32),
        right=np.tile(right, n_trees).astype(np.int32),
        routing=np.zeros(n_trees * n_nodes, np.uint8),
        leaf_value=rng.normal(scale=0.1, size=(n_trees * n_leaves, 1)),
        source=f"made-up oblivious, {n_trees} x {n_leaves}",
    )
