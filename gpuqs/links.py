"""Links: raw scores to values, as the source libraries' objectives define them, and classes from these.

``cuda/apply_link.cu`` does the same for documents on a GPU.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from gpuqs.forest import Forest

#: How class numbers follow from scores: the largest one's output, or whether one is above zero, zero or above, above
#: one half.
CLASS_DECISIONS: Final = ("argmax", "above_zero", "from_zero", "above_half")


def to_values(forest: Forest, raw: np.ndarray, n_trees: int | None = None) -> np.ndarray:
    """Turn sums [D, K] of all trees, or of ``n_trees``, into what the source library's ``predict`` gives."""
    n_trees = forest.n_trees if n_trees is None else n_trees
    if forest.average:
        raw = _averaged(forest, raw, n_trees)
    if forest.link == "identity":
        return raw
    return apply_link(forest.link, forest.link_scale, raw)


def to_raw(forest: Forest, sums: np.ndarray, n_trees: int) -> np.ndarray:
    """Turn sums [D, K] of ``n_trees`` trees into the source library's raw scores."""
    return _averaged(forest, sums, n_trees) if forest.average_raw else sums


def trees_averaged(forest: Forest, n_trees: int) -> float:
    """The divisor of averaged sums of ``n_trees`` trees: the trees of one output; NaN for none."""
    return (n_trees if forest.vector_leaves else n_trees / forest.n_outputs) or np.nan  # 0 / 0, without a warning


def _averaged(forest: Forest, sums: np.ndarray, n_trees: int) -> np.ndarray:
    averages: np.ndarray = sums / sums.dtype.type(trees_averaged(forest, n_trees))
    return averages


def multi_label(forest: Forest) -> bool:
    """Whether the outputs are probabilities that do not exclude each other: a class for each."""
    return forest.link in ("sigmoid", "hinge") and forest.n_outputs > 1


def decides_on_values(forest: Forest) -> bool:
    """Whether classes are decided on values, else on sums; the values of "argmax" are class numbers already."""
    return forest.class_rule == "value" and forest.link != "argmax"


def class_decision(forest: Forest) -> str:
    """The one of `CLASS_DECISIONS` by which the source library tells classes."""
    if forest.n_outputs > 1 and not multi_label(forest):
        return "argmax"
    if forest.class_rule == "raw_or_zero":
        return "from_zero"
    return "above_half" if decides_on_values(forest) else "above_zero"


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
        Same shape and dtype as ``raw``; [D, 1] from "argmax".
    """
    with np.errstate(over="ignore"):
        values: np.ndarray
        if name == "identity":
            values = raw
        elif name in ("sigmoid", "ova_sigmoid"):
            values = 1 / (1 + np.exp(-raw.dtype.type(scale) * raw))
        elif name == "softmax":
            grown = np.exp(raw - raw.max(axis=1, keepdims=True))
            values = grown / grown.sum(axis=1, keepdims=True)
        elif name == "argmax":  # XGBoost's multi:softmax: the number of the likeliest class
            values = raw.argmax(axis=1)[:, None].astype(raw.dtype)
        elif name == "exp":
            values = np.exp(raw)
        elif name == "exp2":  # of isolation forests in Treelite: link_scale is negative
            values = np.exp2(raw.dtype.type(scale) * raw)
        elif name == "log1p_exp":
            values = np.log1p(np.exp(raw))
        elif name == "sqrt_signed":
            values = np.sign(raw) * raw * raw
        elif name == "hinge":
            values = (raw > 0).astype(raw.dtype)
        elif name == "mean_variance":  # CatBoost's RMSEWithUncertainty: the mean, the logarithm of the deviation
            values = raw.copy()
            values[:, 1] = np.exp(2 * raw[:, 1])
        elif name == "isolation":  # scikit-learn's IsolationForest: the mean depth, against the expected one
            values = -np.exp2(-scale * raw)
        else:
            raise ValueError(f"unknown link {name!r}")
    return values
