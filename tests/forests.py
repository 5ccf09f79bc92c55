"""Forests for tests: random ones of every shape, and documents that probe their tests."""

from __future__ import annotations

import numpy as np

from gpuqs.forest import NAN_LEFT, ZERO_MISSING, Forest

SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 5e-324, -5e-324, 1e-40, 1e-35, -1e-35, 2e-35, 1e300, -1e300]


def random_forest(
    rng: np.random.Generator,
    *,
    n_trees: int = 20,
    max_leaves: int = 16,
    n_features: int = 8,
    shape: str = "random",
    n_thresholds: int = 30,
    n_outputs: int = 1,
    vector_leaves: bool = False,
    **fields: object,
) -> Forest:
    """A forest whose trees are split at random leaves ("random"), at the newest ("chain") or level by level."""
    node_offsets, leaf_offsets = [0], [0]
    left: list[int] = []
    right: list[int] = []
    for _ in range(n_trees):
        n_leaves = int(rng.integers(1, max_leaves + 1)) if shape == "random" else max_leaves
        tree_left, tree_right = _grow(rng, n_leaves, shape)
        left += tree_left
        right += tree_right
        node_offsets.append(len(left))
        leaf_offsets.append(leaf_offsets[-1] + n_leaves)
    n_nodes, n_leaves = len(left), leaf_offsets[-1]
    grid = rng.normal(size=(n_features, n_thresholds))
    grid[:, : len(SPECIAL) - 1] = np.where(
        rng.random((n_features, len(SPECIAL) - 1)) < 0.3, SPECIAL[1:], grid[:, : len(SPECIAL) - 1]
    )[:, : grid.shape[1]]
    feature = rng.integers(0, n_features, n_nodes).astype(np.int32)
    threshold = grid[feature, rng.integers(0, n_thresholds, n_nodes)]
    if fields.get("input_dtype") == "float32":
        with np.errstate(over="ignore"):
            threshold = threshold.astype(np.float32).astype(np.float64)
    fields.setdefault("sum_dtype", "float64")
    return Forest(
        n_features=n_features,
        node_offsets=np.array(node_offsets, np.int64),
        leaf_offsets=np.array(leaf_offsets, np.int64),
        feature=feature,
        threshold=threshold,
        left=np.array(left, np.int32),
        right=np.array(right, np.int32),
        routing=rng.choice(np.array([0, NAN_LEFT, ZERO_MISSING, NAN_LEFT | ZERO_MISSING], np.uint8), n_nodes),
        leaf_value=rng.normal(size=(n_leaves, n_outputs if vector_leaves else 1)),
        n_outputs=n_outputs,
        tree_output=(np.arange(n_trees) % n_outputs).astype(np.int32),
        base_score=rng.normal(size=n_outputs),
        **fields,  # type: ignore[arg-type]
    )


def _grow(rng: np.random.Generator, n_leaves: int, shape: str) -> tuple[list[int], list[int]]:
    """Children of a tree with so many leaves; leaf numbers as LightGBM gives them (the split leaf stays left)."""
    left: list[int] = []
    right: list[int] = []
    holder: list[tuple[int, int] | None] = [None]  # (node, side) that each leaf hangs from
    for node in range(n_leaves - 1):
        pick = {"random": int(rng.integers(len(holder))), "chain": len(holder) - 1, "complete": 0}[shape]
        if shape == "complete":
            pick = node - (1 << (node + 1).bit_length() - 1) + 1
        place = holder[pick]
        if place is not None:
            (left if place[1] == 0 else right)[place[0]] = node
        left.append(~pick)
        right.append(~len(holder))
        holder[pick] = (node, 0)
        holder.append((node, 1))
    return left, right


def probing_documents(rng: np.random.Generator, forest: Forest, n: int, dtype: type = np.float64) -> np.ndarray:
    """Documents of random values, special values, thresholds, and their neighbours one ulp either side."""
    X = rng.normal(size=(n, forest.n_features)) * 1.5
    kind = rng.integers(0, 5, X.shape)
    X[kind == 1] = rng.choice(SPECIAL, int((kind == 1).sum()))
    with np.errstate(over="ignore"):
        X = X.astype(dtype)
    for f in range(forest.n_features):
        with np.errstate(over="ignore"):
            thresholds = forest.threshold[forest.feature == f].astype(dtype)
        if len(thresholds):
            for code, toward in ((2, None), (3, np.inf), (4, -np.inf)):
                rows = np.flatnonzero(kind[:, f] == code)
                x = rng.choice(thresholds, len(rows))
                X[rows, f] = x if toward is None else np.nextafter(x, dtype(toward))
    return X
