"""Forests for benchmarks, shaped as LambdaMART grows them and generated in seconds at any size; LightGBM's text."""

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
    holder = np.full((n_trees, n_leaves), -1, np.int64)  # each leaf's parent, as 2 * node + side
    for node in range(n_nodes):
        pick = rng.integers(0, node + 1, n_trees)
        place = holder[rows, pick]
        hung = np.flatnonzero(place >= 0)
        children[place[hung] % 2, hung, place[hung] // 2] = node
        children[0, :, node], children[1, :, node] = ~pick, ~(node + 1)
        holder[rows, pick], holder[:, node + 1] = 2 * node, 2 * node + 1
    left, right = children[:, :, :n_nodes]
    return forest_of(rng, X.shape[1], *popular_tests(rng, X, (n_trees, n_nodes)), left, right, "LambdaMART")


def popular_tests(rng: np.random.Generator, X: np.ndarray, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Features, few of which make up most tests, and thresholds: quantiles of ``X``'s columns, 255 per feature."""
    n_features = X.shape[1]
    popularity = 1.0 / np.arange(1, n_features + 1)
    feature = rng.permutation(n_features)[rng.choice(n_features, shape, p=popularity / popularity.sum())]
    quantiles = np.quantile(X.astype(np.float64), np.linspace(0.002, 0.998, 255), axis=0)
    return feature, quantiles[rng.integers(0, 255, shape), feature]


def forest_of(
    rng: np.random.Generator,
    n_features: int,
    feature: np.ndarray,
    threshold: np.ndarray,
    left: np.ndarray,
    right: np.ndarray,
    kind: str,
) -> Forest:
    """A forest of trees of one size, whose nodes' arrays are [T, nodes of a tree]; missing values go right."""
    n_trees, n_nodes = feature.shape
    return Forest(
        n_features=n_features,
        node_offsets=np.arange(n_trees + 1, dtype=np.int64) * n_nodes,
        leaf_offsets=np.arange(n_trees + 1, dtype=np.int64) * (n_nodes + 1),
        feature=feature.ravel().astype(np.int32),
        threshold=threshold.ravel(),
        left=left.ravel().astype(np.int32),
        right=right.ravel().astype(np.int32),
        routing=np.zeros(feature.size, np.uint8),
        leaf_value=rng.normal(scale=0.1, size=(n_trees * (n_nodes + 1), 1)),
        source=f"made-up {kind}, {n_trees} x {n_nodes + 1}",
    )


def complete(n_trees: int, depth: int, X: np.ndarray, seed: int = 0) -> Forest:
    """A forest of complete trees of a depth, thresholds as in `lambdamart_like`."""
    rng = np.random.default_rng(seed)
    n_nodes = (1 << depth) - 1
    child = np.arange(1, 2 * n_nodes + 1).reshape(-1, 2)  # level by level
    sides = np.where(child < n_nodes, child, ~(child - n_nodes)).T.astype(np.int32)
    left, right = (np.broadcast_to(side, (n_trees, n_nodes)) for side in sides)
    return forest_of(rng, X.shape[1], *popular_tests(rng, X, (n_trees, n_nodes)), left, right, "complete trees")


def chained(n_trees: int, n_leaves: int, X: np.ndarray, seed: int = 0) -> Forest:
    """A forest of deep, lopsided trees, shaped as those of paper 002, Table V (Istella, 64 leaves).

    Three quarters of a tree's nodes are a chain of tests that split off few documents each (``x <= threshold`` holds
    for all but some 2.5 % of ``X``); the others hang from the chain's top and are false for most documents. At 64
    leaves a tree is 47 levels deep, a document meets about 33 nodes, and a fifth of all nodes are false.

    Parameters
    ----------
    n_trees, n_leaves : int
    X : float32 [D, n_features]
    seed : int
    """
    rng = np.random.default_rng(seed)
    n_nodes = n_leaves - 1
    n_chain = max(n_nodes * 3 // 4, 1)
    left = np.full((n_trees, n_nodes), ~0, np.int32)
    right = np.broadcast_to(~np.arange(1, n_leaves, dtype=np.int32), (n_trees, n_nodes)).copy()  # one leaf a node
    left[:, : n_chain - 1] = np.arange(1, n_chain)
    for node in range(n_chain, n_nodes):  # each takes the place of the leaf to the right of a node near the top
        right[:, node] = right[:, node - n_chain]
        left[:, node], right[:, node - n_chain] = ~(node + 1), node
    quantile = np.empty((n_trees, n_nodes))
    quantile[:, :n_chain] = rng.uniform(0.95, 1.0, (n_trees, n_chain))
    quantile[:, n_chain:] = rng.uniform(0.0, 0.3, (n_trees, n_nodes - n_chain))
    feature = rng.integers(0, X.shape[1], (n_trees, n_nodes))
    rank = np.minimum((quantile * len(X)).astype(np.int64), len(X) - 1)
    threshold = np.sort(X.astype(np.float64), axis=0)[rank, feature]
    return forest_of(rng, X.shape[1], feature, threshold, left, right, "chains")


def lightgbm_text(forest: Forest) -> str:
    """LightGBM's text for a forest of numeric tests with one output."""
    lines = ["tree", "version=v4", "num_class=1", "num_tree_per_iteration=1", "label_index=0"]
    lines += [f"max_feature_idx={forest.n_features - 1}", "objective=lambdarank"]
    lines += ["feature_names=" + " ".join(f"Column_{i}" for i in range(forest.n_features))]
    lines += ["feature_infos=" + " ".join(["none"] * forest.n_features), ""]
    for t in range(forest.n_trees):
        nodes = slice(forest.node_offsets[t], forest.node_offsets[t + 1])
        leaves = slice(forest.leaf_offsets[t], forest.leaf_offsets[t + 1])
        fields = {
            "split_feature": forest.feature[nodes],
            "split_gain": np.zeros(nodes.stop - nodes.start, np.int64),
            "threshold": forest.threshold[nodes],
            "decision_type": np.zeros(nodes.stop - nodes.start, np.int64),
            "left_child": forest.left[nodes],
            "right_child": forest.right[nodes],
            "leaf_value": forest.leaf_value[leaves, 0],
        }
        lines += [f"Tree={t}", f"num_leaves={leaves.stop - leaves.start}", "num_cat=0"]
        lines += [f"{name}={' '.join(map(repr, values.tolist()))}" for name, values in fields.items()]
        lines += ["shrinkage=1", "", ""]
    return "\n".join([*lines, "end of trees", "", "parameters:", "end of parameters", ""])
