"""Forests for GPU benchmarks: shaped as LambdaMART grows them, made in seconds at any size."""

from __future__ import annotations

import numpy as np

from gpuqs.forest import Forest


def lambdamart_like(n_trees: int, n_leaves: int, X: np.ndarray, seed: int = 0) -> Forest:
    """A forest of trees with ``n_leaves`` leaves each, grown leaf by leaf, all trees at once.

    Thresholds are quantiles of ``X``'s columns (255 a feature, as histogram-trained models have
    them); few features make up most tests, as in learning to rank.

    Parameters
    ----------
    n_trees, n_leaves : int
    X : float32 [D, n_features]
    seed : int
    """
    rng = np.random.default_rng(seed)
    n_nodes, rows = n_leaves - 1, np.arange(n_trees)
    children = np.zeros((2, n_trees, max(n_nodes, 1)), np.int32)
    holder = np.full((n_trees, n_leaves), -1, np.int64)  # 2 * node + side that each leaf hangs from
    for node in range(n_nodes):
        pick = rng.integers(0, node + 1, n_trees)
        place = holder[rows, pick]
        hung = np.flatnonzero(place >= 0)
        children[place[hung] % 2, hung, place[hung] // 2] = node
        children[0, :, node], children[1, :, node] = ~pick, ~(node + 1)
        holder[rows, pick], holder[:, node + 1] = 2 * node, 2 * node + 1
    n_features = X.shape[1]
    popularity = 1.0 / np.arange(1, n_features + 1)
    feature = rng.permutation(n_features)[
        rng.choice(n_features, n_trees * n_nodes, p=popularity / popularity.sum())
    ]
    quantiles = np.quantile(X.astype(np.float64), np.linspace(0.002, 0.998, 255), axis=0)
    return Forest(
        n_features=n_features,
        node_offsets=np.arange(n_trees + 1, dtype=np.int64) * n_nodes,
        leaf_offsets=np.arange(n_trees + 1, dtype=np.int64) * n_leaves,
        feature=feature.astype(np.int32),
        threshold=quantiles[rng.integers(0, 255, len(feature)), feature],
        left=children[0, :, :n_nodes].ravel(),
        right=children[1, :, :n_nodes].ravel(),
        routing=np.zeros(len(feature), np.uint8),
        leaf_value=rng.normal(scale=0.1, size=(n_trees * n_leaves, 1)),
        source=f"made-up LambdaMART, {n_trees} x {n_leaves}",
    )
