"""Links: raw scores to values, as the source libraries' objectives define them."""

from __future__ import annotations

import numpy as np

from gpuqs.forest import Forest


def to_values(forest: Forest, raw: np.ndarray, n_trees: int | None = None) -> np.ndarray:
    """Turn raw scores [D, K] of all trees, or of ``n_trees``, into what the source library's ``predict`` gives."""
    n_trees = forest.n_trees if n_trees is None else n_trees
    if forest.average and n_trees:
        raw = raw / raw.dtype.type(n_trees if forest.vector_leaves else n_trees / forest.n_outputs)
    if forest.link == "identity":
        return raw
    return apply_link(forest.link, forest.link_scale, raw)


def apply_link(name: str, scale: float, raw: np.ndarray) -> np.ndarray:
    """Turn raw scores into values.

    Parameters
    ----------
    name : str
        One of `gpuqs.forest.LINKS`.
    scale : float
        Factor on the raw score inside the link.
    raw : float64 or float32 [D, K]

    Returns
    -------
    ndarray
        Same shape and dtype as ``raw``.
    """
    with np.errstate(over="ignore"):
        if name == "identity":
            return raw
        if name in ("sigmoid", "ova_sigmoid"):
            return 1 / (1 + np.exp(-raw.dtype.type(scale) * raw))
        if name == "softmax":
            grown = np.exp(raw - raw.max(axis=1, keepdims=True))
            return grown / grown.sum(axis=1, keepdims=True)
        if name == "exp":
            return np.exp(raw)
        if name == "exp2":  # of isolation forests in Treelite: link_scale is negative
            return np.exp2(raw.dtype.type(scale) * raw)
        if name == "log1p_exp":
            return np.log1p(np.exp(raw))
        if name == "sqrt_signed":
            return np.sign(raw) * raw * raw
        if name == "hinge":
            return (raw > 0).astype(raw.dtype)
        if name == "mean_variance":  # CatBoost's RMSEWithUncertainty: the mean, the logarithm of the deviation
            values = raw.copy()
            values[:, 1] = np.exp(2 * raw[:, 1])
            return values
        if name == "isolation":  # scikit-learn's IsolationForest: the mean depth, against the expected one
            return -np.exp2(-scale * raw)
    raise ValueError(f"unknown link {name!r}")
