"""The outputs of `predict`, their shapes and types; class labels; values tree by tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, get_args

import numpy as np

from gpuqs.errors import UnsupportedModelError
from gpuqs.forest import Forest
from gpuqs.kept import once_each
from gpuqs.layout.leaves import LeafValues
from gpuqs.links import class_decision, decides_on_values, multi_label, tells_classes, to_values

Output = Literal["value", "raw", "class", "leaf", "per_tree"]
Precision = Literal["exact", "fast"]
OUTPUTS: Final = get_args(Output)
PRECISIONS: Final = get_args(Precision)

#: Leaf values that are gathered at a time, so that intermediate arrays stay in a cache.
_TOGETHER: Final = 1 << 15
#: Upper limit of numbers, used or not, per leaf in a table by leaf number. Libraries that also number nodes have two.
_MAX_NUMBERS: Final = 8


def check_options(forest: Forest, output: str, precision: str, engine: str) -> None:
    """Refuse unknown precisions, outputs that this forest does not have, and engines that are not strings."""
    if not isinstance(engine, str):
        raise ValueError(f"engine must be a name, such as 'auto', not {engine!r}")
    if precision not in PRECISIONS:
        raise ValueError(f"precision must be 'exact' or 'fast', not {precision!r}")
    if output == "per_tree" and precision == "fast":
        raise ValueError("output='per_tree' gives leaf values as they are; use precision='exact'")
    if forest.has_linear_leaves and precision == "fast":
        raise ValueError("precision='fast' does not support linear trees; use precision='exact'")
    if output == "class" and not (forest.classes or tells_classes(forest)):
        raise ValueError(f"output='class' is for classifiers; this model's scores are of {objective_of(forest)}")
    if output == "class" and forest.class_rule == "other":
        raise UnsupportedModelError(
            "the model has a probability threshold other than 0.5 for its classes, which gpuqs does not know; compare "
            "the probabilities with it (output='value', or predict_proba), or call set_probability_threshold(0.5) "
            "before the model is converted"
        )


def objective_of(forest: Forest) -> str:
    """The objective that a model was trained for, in words; LightGBM's files do not name custom objectives."""
    if forest.objective:
        return f"objective {forest.objective!r}"
    return "a custom objective" if forest.library == "LightGBM" else "an objective that is not known"


def answer_form(forest: Forest, values: LeafValues, output: str, n: int) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and dtype of the answer for ``n`` documents, from the programs' leaf values."""
    if output in ("value", "raw"):
        labels_alone = output == "value" and forest.link == "argmax"
        return (n,) if forest.n_outputs == 1 or labels_alone else (n, forest.n_outputs), values.score_dtype
    n_trees = len(values.trees)
    if output == "leaf":
        return (n, n_trees), np.dtype(np.int32)
    if output == "per_tree":
        width = values.value.shape[1]
        return (n, n_trees) if width == 1 else (n, n_trees, width), values.value.dtype
    labels = class_labels(forest)
    return (n, forest.n_outputs) if multi_label(forest) else (n,), labels.dtype


def class_labels(forest: Forest) -> np.ndarray:
    """The labels, in the order of the outputs: the model's own, or 0, 1, ..."""
    return labels_as_array(forest.classes) if forest.classes else np.arange(max(forest.n_outputs, 2))


def labels_as_array(labels: Sequence[Any]) -> np.ndarray:
    """Labels as an array in which they stay distinct, of a plain type if possible."""
    array = np.array(labels)
    if array.dtype.kind == "f" and all(isinstance(label, int) for label in labels):  # mixed int64 and uint64
        array = np.array(labels, np.uint64 if min(labels) >= 0 else object)
    elif array.dtype.kind == "U" and array.tolist() != list(labels):  # NumPy takes a string's trailing NULs for padding
        array = np.array(labels, object)
    return array


def class_numbers(forest: Forest, sums: np.ndarray, n_trees: int) -> np.ndarray:
    """The class of each document, from sums [D, K] of ``n_trees`` trees, by `Forest.class_rule`.

    In multi-label models, whose probabilities do not exclude each other, each output gives a class, [D, K].
    """
    scores = to_values(forest, sums, n_trees) if decides_on_values(forest) else sums
    decision = class_decision(forest)
    if decision == "argmax":
        numbers: np.ndarray = scores.argmax(axis=1)
        return numbers
    second = scores >= 0 if decision == "from_zero" else scores > (0.5 if decision == "above_half" else 0)
    return (second if forest.n_outputs > 1 else second[:, 0]).astype(np.int64)


def values_of_leaves(forest: Forest, leaves: np.ndarray, out: np.ndarray) -> None:
    """Fill ``out`` (as `answer_form` says of "per_tree") from the source library's leaf numbers [D, T]."""
    values, weight = forest.leaf_value, forest.tree_weight.astype(out.dtype)[:, None]
    if out.ndim == 2:
        values, weight = values[:, 0], weight[:, 0]
    rows = max(_TOGETHER // max(weight.size, 1), 1)
    for start in range(0, len(leaves), rows):
        part = slice(start, start + rows)
        of_part = values[positions_of_leaves(forest, leaves[part]) + forest.leaf_offsets[:-1]]
        np.multiply(of_part.astype(out.dtype, copy=False), weight, out=out[part])


def positions_of_leaves(forest: Forest, leaves: np.ndarray) -> np.ndarray:
    """Positions in their trees, int32 [D, T], of leaves given by the source library's numbers; may be ``leaves``."""
    if forest.leaves_by_position:
        return leaves
    if (numbered := _leaves_by_number(forest)) is not None:
        starts, position = numbered
        found: np.ndarray = position[starts + leaves]
        return found
    positions = np.empty_like(leaves)
    for tree in range(forest.n_trees):
        of_tree = slice(*forest.leaf_offsets[tree : tree + 2].tolist())
        by_id = np.argsort(forest.leaf_id[of_tree])
        positions[:, tree] = by_id[np.searchsorted(forest.leaf_id[of_tree][by_id], leaves[:, tree])]
    return positions


@once_each
def _leaves_by_number(forest: Forest) -> tuple[np.ndarray, np.ndarray] | None:
    """A table of leaf positions by number: where each tree's part begins, int64 [T], and the positions.

    None if numbers are so large that the table would be, too.
    """
    n_leaves, firsts = np.diff(forest.leaf_offsets), forest.leaf_offsets[:-1]
    ends = np.cumsum(np.maximum.reduceat(forest.leaf_id, firsts).astype(np.int64) + 1)
    if ends[-1] > _MAX_NUMBERS * len(forest.leaf_id):
        return None
    starts, position = np.append(0, ends[:-1]), np.zeros(ends[-1], np.int32)
    in_tree = np.arange(len(forest.leaf_id)) - np.repeat(firsts, n_leaves)
    position[np.repeat(starts, n_leaves) + forest.leaf_id] = in_tree
    return starts, position
