"""The arrays of a Forest, each declared once: its type, its axis, and its default if it is left out.

With this table a Forest is completed, checked and cut into ranges of trees, and gpuqs's own files are read and written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from gpuqs.cpu_fallback import making


class ForestArray(NamedTuple):
    """One of a Forest's arrays.

    Parameters
    ----------
    dtype : str
    axis : {"tree", "node", "leaf", "output", "category word", "linear term", "iteration"}
        What the array has one item for.
    offsets_into : str, optional
        The array holds offsets into that axis: ``array[i]:array[i + 1]`` of it belongs to item i. Such an array is one
        item longer, and rises from 0 to the length of that axis.
    default : int or callable, optional
        Value of all items of an array that is left out, or a function that makes it from the arrays listed before it.
        An array without a default must be given.
    n_dimensions : int
    """

    dtype: str
    axis: str
    offsets_into: str | None = None
    default: int | Callable[[Mapping[str, np.ndarray]], np.ndarray] | None = None
    n_dimensions: int = 1


def leaf_positions(arrays: Mapping[str, np.ndarray]) -> npt.NDArray[np.int32]:
    """The position of each leaf in its tree, as leaves are stored."""
    positions: npt.NDArray[np.int32] = making.stored_positions(arrays["leaf_offsets"])
    return positions


def _tree_for_each_output(arrays: Mapping[str, np.ndarray]) -> npt.NDArray[np.int64]:
    """Iterations with one tree for every output (one for all where leaves are vectors); a single iteration if trees
    are in another order."""
    n_trees, n_outputs = len(arrays["tree_output"]), len(arrays["base_score"])
    step = 1 if arrays["leaf_value"].shape[1:] == (n_outputs,) else max(n_outputs, 1)
    in_turn = step == 1 or np.array_equal(arrays["tree_output"], np.arange(n_trees) % step)
    return np.append(np.arange(0, n_trees, step if in_turn else max(n_trees, 1)), n_trees)


#: By name. Offsets come before the arrays that they index, and an array before those whose default is made from it.
ARRAYS: Final = {
    "node_offsets": ForestArray("int64", "tree", offsets_into="node"),
    "leaf_offsets": ForestArray("int64", "tree", offsets_into="leaf"),
    "feature": ForestArray("int32", "node"),
    "threshold": ForestArray("float64", "node"),
    "left": ForestArray("int32", "node"),
    "right": ForestArray("int32", "node"),
    "routing": ForestArray("uint8", "node"),
    "leaf_value": ForestArray("float64", "leaf", n_dimensions=2),
    "tree_output": ForestArray("int32", "tree", default=0),
    "tree_weight": ForestArray("float64", "tree", default=1),
    "base_score": ForestArray("float64", "output", default=0),
    "leaf_id": ForestArray("int32", "leaf", default=leaf_positions),
    "category_offsets": ForestArray("int64", "node", offsets_into="category word", default=0),
    "category_words": ForestArray("uint32", "category word", default=0),
    "linear_offsets": ForestArray("int64", "leaf", offsets_into="linear term", default=0),
    "linear_feature": ForestArray("int32", "linear term", default=0),
    "linear_coefficient": ForestArray("float64", "linear term", default=0),
    "iteration_starts": ForestArray("int64", "iteration", offsets_into="tree", default=_tree_for_each_output),
}


def left_out() -> Any:
    """An array that was not given: `checked` puts its default in its place."""
    return np.zeros(0)


def lengths(arrays: Mapping[str, np.ndarray], n_outputs: int) -> dict[str, int]:
    """How many items each array must have; arrays that may have any number are left out."""
    axes = _axes(arrays, n_outputs)
    return {name: axes[of.axis] + (of.offsets_into is not None) for name, of in ARRAYS.items() if of.axis in axes}


def _axes(arrays: Mapping[str, np.ndarray], n_outputs: int) -> dict[str, int]:
    """The length of each axis; a forest may have any number of iterations."""
    return {
        "tree": len(arrays["node_offsets"]) - 1,
        "node": len(arrays["feature"]),
        "leaf": len(arrays["leaf_value"]),
        "output": n_outputs,
        "category word": len(arrays.get("category_words", ())),
        "linear term": len(arrays.get("linear_feature", ())),
    }


def _unshared(array: np.ndarray) -> np.ndarray:
    """The array, or a copy if it is a view of writable memory: a Forest is immutable."""
    whole = array
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    return array.copy() if whole is not array and whole.flags.writeable else array


def _filled(n: int, value: int, dtype: str) -> np.ndarray:
    """Like `numpy.full`, but zeros are not written: large arrays come zeroed from the system."""
    return np.full(n, value, dtype) if value else np.zeros(n, dtype)


def checked(given: Mapping[str, Any], n_outputs: int) -> dict[str, np.ndarray]:
    """All arrays of a Forest, in C order, with defaults for those that were left out.

    Raises
    ------
    TypeError
        An array has the wrong type.
    ValueError
        An array has the wrong shape, or offsets do not rise from 0 to the length of the axis that they index.
    """
    arrays = {name: _unshared(np.ascontiguousarray(given[name])) for name in ARRAYS}
    axes, n_items = _axes(arrays, n_outputs), lengths(arrays, n_outputs)
    for name, of in ARRAYS.items():
        left_out = len(arrays[name]) == 0
        if left_out and of.default is not None:
            make = of.default
            arrays[name] = make(arrays) if callable(make) else _filled(n_items[name], make, of.dtype)
        array = arrays[name]
        if array.dtype != of.dtype:
            raise TypeError(f"Forest.{name} must be {of.dtype}, not {array.dtype}")
        if array.ndim != of.n_dimensions:
            raise ValueError(f"Forest.{name} has shape {array.shape}, but must be {of.n_dimensions}-dimensional")
        if len(array) != n_items.get(name, len(array)):
            raise ValueError(f"Forest.{name} has length {len(array)}, not {n_items[name]}")
        if of.offsets_into is not None:
            total = axes[of.offsets_into]
            falls = not left_out and bool((array[1:] < array[:-1]).any())
            if len(array) == 0 or array[0] != 0 or array[-1] != total or falls:
                raise ValueError(f"Forest.{name} must rise from 0 to {total}")
    return arrays


def as_by_default(arrays: Mapping[str, np.ndarray]) -> set[str]:
    """Which of the larger arrays are equal to their defaults, and may be left out."""
    found = {"category_offsets", "category_words"} if len(arrays["category_words"]) == 0 else set()
    if len(arrays["linear_feature"]) == 0:
        found |= {"linear_offsets", "linear_feature", "linear_coefficient"}
    return found | ({"leaf_id"} if np.array_equal(arrays["leaf_id"], leaf_positions(arrays)) else set())


def select_trees(arrays: Mapping[str, np.ndarray], start: int, stop: int) -> dict[str, np.ndarray]:
    """The arrays of the trees ``[start, stop)``, without those that are the same for any range."""
    kept = {"tree": slice(start, stop)}
    part = {}
    for name, of in ARRAYS.items():
        array, items = arrays[name], kept.get(of.axis)
        if items is None:
            if of.offsets_into in kept:
                part[name] = _cut_offsets(array, kept[of.offsets_into])
        elif of.offsets_into is None:
            part[name] = array[items]
        else:
            offsets = array[items.start : items.stop + 1]
            kept[of.offsets_into] = slice(int(offsets[0]), int(offsets[-1]))
            part[name] = offsets - offsets[0]
    return part


def _cut_offsets(offsets: np.ndarray, items: slice) -> np.ndarray:
    """Offsets into a range of items, which may begin and end between two of the offsets."""
    within = offsets[(offsets > items.start) & (offsets < items.stop)]
    ends = [items.start, *within.tolist(), items.stop] if items.stop > items.start else [items.start]
    cut: np.ndarray = np.array(ends, offsets.dtype) - items.start
    return cut
