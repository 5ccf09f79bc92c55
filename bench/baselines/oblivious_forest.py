"""Oblivious forests for the bench, quickly generated at any size."""

from __future__ import annotations

import numpy as np
from made_up import forest_of, popular_tests

from gpuqs.forest import Forest


def oblivious_like(n_trees: int, depth: int, X: np.ndarray, seed: int = 0) -> Forest:
    """Complete trees with one test per level, thresholds from quantiles of ``X``'s columns (255 per feature)."""
    rng = np.random.default_rng(seed)
    n_nodes = (1 << depth) - 1
    node = np.arange(n_nodes)
    level = np.frexp(node + 1)[1] - 1  # nodes are numbered as in a heap
    child = 2 * node + 1
    left, right = (np.where(c < n_nodes, c, ~(c - n_nodes)) for c in (child, child + 1))
    feature, threshold = popular_tests(rng, X, (n_trees, depth))
    left, right = (np.tile(child, (n_trees, 1)) for child in (left, right))
    return forest_of(rng, X.shape[1], feature[:, level], threshold[:, level], left, right, "oblivious")
