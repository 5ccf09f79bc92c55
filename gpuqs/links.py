"""Links: from raw scores to values, as the source libraries' objectives define them, and from these to classes.

The loops are in ``cpu_fallback/driver/links.cpp``, those for GPUs in ``cuda/apply_link.cu``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from gpuqs import cpu_fallback
from gpuqs.forest import Forest
from gpuqs.forest_checks import LINKS

#: How class numbers follow from scores: the output with the largest score; or whether a score is above zero, at least
#: zero, or above one half.
CLASS_DECISIONS: Final = ("argmax", "above_zero", "from_zero", "above_half")

#: Functions from raw scores to values: `gpuqs.forest.LINKS`, and variants of some libraries.
KERNELS: Final = (
    *LINKS,
    *("clamped_sigmoid", "double_exp"),
    *("mirrored_sigmoid", "narrow_softmax", "softmax_beside_zero", "rounded_softmax"),
    *("table_exp", "table_softmax"),
)

#: onnxruntime's kernels, by the operator's post_transform and the link. They do not apply to links that separate nodes
#: after the trees compute.
_OF_ONNX: Final = {
    ("SOFTMAX", "sigmoid"): "softmax_beside_zero",
    ("LOGISTIC", "sigmoid"): "mirrored_sigmoid",
    ("LOGISTIC", "ova_sigmoid"): "mirrored_sigmoid",
    ("SOFTMAX", "softmax"): "narrow_softmax",
}


def kernel_of(forest: Forest) -> str:
    """The one of `KERNELS` that computes the forest's values."""
    if forest.library == "ONNX":
        return _OF_ONNX.get((forest.objective.rpartition(" ")[2], forest.link), forest.link)
    if forest.library == "Treelite" and forest.link == "softmax":
        return "rounded_softmax"
    if forest.library == "CatBoost" and forest.link in ("exp", "softmax"):
        return f"table_{forest.link}"
    if forest.library != "XGBoost":
        return forest.link
    if forest.objective == "survival:aft":
        return "double_exp"
    return "clamped_sigmoid" if forest.link == "sigmoid" else forest.link


def numpy_link(forest: Forest) -> Callable[[np.ndarray], np.ndarray] | None:
    """The NumPy function from raw scores [D, K] to a forest's values, if the library computes them in NumPy; else None.

    Its last bits differ from those of the kernel that `kernel_of` names, which calls the C library's functions, as
    libraries not written in Python do, and scikit-learn does for its sigmoids.
    """
    by_scipy = forest.objective == "multi:softmax"  # XGBoost's classifiers compute its probabilities in Python
    if not (forest.library == "scikit-learn" or by_scipy):
        return None
    if forest.link == "softmax":
        return _softmax_by_columns if forest.objective.startswith("HistGradientBoosting") else _softmax_of_numpy
    return _exp_of_numpy if forest.link == "exp" else None


def to_values(
    forest: Forest, raw: np.ndarray, n_trees: int | None = None, *, out: np.ndarray | None = None, n_threads: int = 1
) -> np.ndarray:
    """Turn sums [D, K] of all trees, or of ``n_trees``, into what the source library's ``predict`` gives.

    ``out``, where given, may be filled with them, and may be ``raw``.
    """
    n_trees = forest.n_trees if n_trees is None else n_trees
    if not forest.average and forest.link == "identity":
        return raw
    values_of_raw = numpy_link(forest)
    if values_of_raw is not None:
        return values_of_raw(_averaged(forest, raw, n_trees) if forest.average else raw)
    divisor = trees_averaged(forest, n_trees) if forest.average else 1.0
    return apply_link(kernel_of(forest), forest.link_scale, raw, divisor=divisor, out=out, n_threads=n_threads)


def to_raw(forest: Forest, sums: np.ndarray, n_trees: int) -> np.ndarray:
    """Turn sums [D, K] of ``n_trees`` trees into the source library's raw scores."""
    return _averaged(forest, sums, n_trees) if forest.average_raw else sums


def trees_averaged(forest: Forest, n_trees: int) -> float:
    """The divisor of averaged sums of ``n_trees`` trees: the trees of one output; NaN for none."""
    return (n_trees if forest.vector_leaves else n_trees / forest.n_outputs) or np.nan  # 0 / 0, without a warning


def _averaged(forest: Forest, sums: np.ndarray, n_trees: int) -> np.ndarray:
    averages: np.ndarray = sums / sums.dtype.type(trees_averaged(forest, n_trees))
    return averages


def tells_probabilities(forest: Forest) -> bool:
    """Whether values are probabilities of classes."""
    return forest.link in ("sigmoid", "ova_sigmoid", "softmax", "hinge")


def tells_classes(forest: Forest) -> bool:
    """Whether values are probabilities of classes, or classes."""
    return tells_probabilities(forest) or forest.link == "argmax"


def multi_label(forest: Forest) -> bool:
    """Whether the outputs are probabilities that do not exclude each other: a class for each."""
    return forest.link in ("sigmoid", "hinge") and forest.n_outputs > 1


def decides_on_values(forest: Forest) -> bool:
    """Whether classes are decided from values; if not, from sums. The values of "argmax" are class numbers already."""
    return forest.class_rule == "value" and forest.link != "argmax"


def class_decision(forest: Forest) -> str:
    """The one of `CLASS_DECISIONS` by which the source library decides classes."""
    if forest.n_outputs > 1 and not multi_label(forest):
        return "argmax"
    if forest.class_rule == "raw_or_zero":
        return "from_zero"
    return "above_half" if decides_on_values(forest) else "above_zero"


def apply_link(
    name: str, scale: float, raw: np.ndarray, *, divisor: float = 1.0, out: np.ndarray | None = None, n_threads: int = 1
) -> np.ndarray:
    """Turn sums into values.

    Parameters
    ----------
    name : str
        One of `KERNELS`.
    scale : float
        Factor on the raw score inside the link.
    raw : float64 or float32 [D, K]
    divisor : float
        The number of trees that the sums are averaged over, or 1.
    out : ndarray, optional
        Where values are written: in C order, with the shape and dtype of the result. May be ``raw``, except for
        "argmax".
    n_threads : int

    Returns
    -------
    ndarray
        Same shape and dtype as ``raw``; [D, 1] from "argmax".
    """
    n, n_outputs = raw.shape
    if out is None:
        out = np.empty((n, 1 if name == "argmax" else n_outputs), raw.dtype)
    cpu_fallback.Link(name, raw.dtype, n_outputs, scale, divisor).apply(np.ascontiguousarray(raw), out, n_threads)
    return out


def _exp_of_numpy(raw: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        values: np.ndarray = np.exp(raw)
    return values


def _softmax_of_numpy(raw: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        grown = np.exp(raw - raw.max(axis=1, keepdims=True))
        values: np.ndarray = grown / grown.sum(axis=1, keepdims=True)
    return values


def _softmax_by_columns(raw: np.ndarray) -> np.ndarray:
    """`_softmax_of_numpy` for raw scores stored output by output, which NumPy adds up in another order."""
    return _softmax_of_numpy(np.asfortranarray(raw))
