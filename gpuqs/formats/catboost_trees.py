"""CatBoost's trees -> the canonical arrays of a `Forest`; and how its JSON holds them.

A symmetric tree is one list of tests, the lowest bit of the leaf index first: it becomes a
complete binary tree with the test of the highest bit at its root, so that its leaves stand from
left to right in index order. `Condenser` makes the objects of trees small as soon as they are parsed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gpuqs.errors import ModelFormatError
from gpuqs.formats.catboost_ctrs import table
from gpuqs.formats.catboost_tests import Split, Tests, reals
from gpuqs.formats.fields import get
from gpuqs.formats.growing import GrowingArray, offsets

#: Upper limit of a symmetric tree's tests; CatBoost itself stops at 16.
MAX_DEPTH: Final = 30
#: Keys of arrays of numbers in the JSON.
ARRAYS: Final = frozenset(("borders", "leaf_values", "leaf_weights"))


class Condenser:
    """Makes the objects of a model's trees small: called with every object of the file when it is parsed.

    Splits become `Split`, inner nodes tuples (split, left, right), leaves tuples (value,), leaf values arrays, and the
    counts of CTRs `CtrTable`. Malformed objects stay as they are.
    """

    def __init__(self) -> None:
        self._splits: dict[Any, Split] = {}

    def __call__(self, obj: dict[str, Any]) -> Any:
        if "split_type" in obj:
            return self._split(obj)
        if "split" in obj and "left" in obj and "right" in obj:
            return obj["split"], obj["left"], obj["right"]
        if "weight" in obj and "value" in obj:
            return (obj["value"],)
        if "hash_map" in obj:
            with suppress(ModelFormatError):  # raised again when it is looked up
                return table(obj)
        if "leaf_values" in obj:
            obj.pop("leaf_weights", None)
            with suppress(ModelFormatError):  # raised again when the tree's number is known
                obj["leaf_values"] = reals(obj["leaf_values"], "leaf_values")
        return obj

    def _split(self, obj: dict[str, Any]) -> Any:
        try:  # types are part of the key, as 1, 1.0 and True are equal
            return self._splits.setdefault((*obj.items(), *map(type, obj.values())), Split(obj, None))
        except TypeError:  # holds an object or array
            return obj


@dataclass(frozen=True)
class Trees:
    """Trees one after another: N nodes, L leaves, T trees, K outputs.

    Parameters
    ----------
    test : int [N]
        Number of each node's test.
    left, right : int [N]
        Children inside the tree, leaf i as ``~i``.
    value : float64 [L, K]
    leaf_id : int [L]
    n_leaves : int64 [T]
    """

    test: np.ndarray
    left: np.ndarray
    right: np.ndarray
    value: npt.NDArray[np.float64]
    leaf_id: np.ndarray
    n_leaves: npt.NDArray[np.int64]

    @property
    def leaf_offsets(self) -> npt.NDArray[np.int64]:
        """The first leaf of each tree, and the end of the last."""
        return offsets(self.n_leaves)

    def arrays(self, tests: Tests) -> dict[str, np.ndarray]:
        """The arrays of a `Forest` over nodes and leaves."""
        return {
            "node_offsets": offsets(self.n_leaves - 1),
            "leaf_offsets": self.leaf_offsets,
            **tests.node_arrays(self.test),
            "left": self.left.astype(np.int32, copy=False),
            "right": self.right.astype(np.int32, copy=False),
            "leaf_value": self.value,
            "leaf_id": self.leaf_id.astype(np.int32, copy=False),
        }


def json_trees(document: dict[str, Any], tests: Tests, n_outputs: int) -> Trees:
    """The trees of a JSON file's document, whose list is emptied as it is read."""
    symmetric = "trees" not in document
    if not symmetric and "oblivious_trees" in document:
        raise ModelFormatError("is present together with oblivious_trees: the file is damaged", field="trees")
    trees = get(document, "oblivious_trees" if symmetric else "trees", list)
    return (_symmetric_trees if symmetric else _nested_trees)(trees, tests, n_outputs)


def _symmetric_trees(trees: list[Any], tests: Tests, n_outputs: int) -> Trees:
    """The file's ``oblivious_trees``."""
    test, depth, values = GrowingArray(np.int64), GrowingArray(np.int64), GrowingArray(np.float64)
    for number, tree in _taken_out(trees):
        splits = splits_of(tree, number)
        if len(splits) > MAX_DEPTH:
            raise ModelFormatError(f"tree is deeper than {MAX_DEPTH}", tree=number, field="splits")
        value = reals(get(tree, "leaf_values", list, tree=number), "leaf_values", number)
        if len(value) != n_outputs << len(splits):
            problem = f"{len(value)} values for {len(splits)} splits and {n_outputs} outputs"
            raise ModelFormatError(problem, tree=number, field="leaf_values")
        test.extend([tests.test(split, number) for split in splits])
        depth.extend([len(splits)])
        values.extend(value)
    return complete_trees(test.array(), depth.array(), values.array().reshape(-1, n_outputs))


def complete_trees(
    test: npt.NDArray[np.int64], depth: npt.NDArray[np.int64], value: npt.NDArray[np.float64]
) -> Trees:
    """Symmetric trees as complete binary ones; leaf i is CatBoost's leaf i.

    Parameters
    ----------
    test : int64 [sum of depths]
        The tests of each tree, the lowest bit's first.
    depth : int64 [T]
    value : float64 [L, K]
    """
    starts, node_offsets, leaf_offsets = offsets(depth), offsets((1 << depth) - 1), offsets(1 << depth)
    node_test, left, right = (np.empty(node_offsets[-1], np.int32) for _ in range(3))
    leaf_id = np.empty(leaf_offsets[-1], np.int32)
    first = 0
    for end in (np.flatnonzero(np.diff(depth, append=-1)) + 1).tolist():  # trees of equal depth together
        tests = test[starts[first] : starts[end]].reshape(end - first, depth[first])
        level, *children = _complete(int(depth[first]))
        nodes, leaves = (slice(of[first], of[end]) for of in (node_offsets, leaf_offsets))
        node_test[nodes] = tests[:, ::-1][:, level].ravel()
        left[nodes], right[nodes] = (np.tile(child, end - first) for child in children)
        leaf_id[leaves] = np.tile(np.arange(len(level) + 1), end - first)
        first = end
    return Trees(node_test, left, right, value, leaf_id, 1 << depth)


def splits_of(tree: Any, number: int) -> list[Any]:
    """The splits of a symmetric tree; CatBoost writes null where it has none."""
    if isinstance(tree, dict) and tree.get("splits", []) is None:
        return []
    found: list[Any] = get(tree, "splits", list, tree=number)
    return found


def _complete(depth: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Level, left and right child of the nodes of a complete tree, numbered level by level."""
    n_nodes = (1 << depth) - 1
    level = np.repeat(np.arange(depth), 1 << np.arange(depth))
    left = 2 * np.arange(n_nodes) + 1
    left, right = (np.where(child < n_nodes, child, ~(child - n_nodes)) for child in (left, left + 1))
    return level, left, right


def _nested_trees(trees: list[Any], tests: Tests, n_outputs: int) -> Trees:
    """The file's ``trees``: nodes numbered parents first, left before right; leaves from left to right."""
    test, left, right, leaf_id = (GrowingArray(np.int32) for _ in range(4))
    value, n_leaves = GrowingArray(np.float64), GrowingArray(np.int64)
    for number, tree in _taken_out(trees):
        for grown, of_tree in zip((test, left, right, value), _nested(tree, number, tests, n_outputs), strict=True):
            grown.extend(of_tree)
        n_leaves.extend([len(value) // n_outputs - len(leaf_id)])
        leaf_id.extend(np.arange(len(value) // n_outputs - len(leaf_id)))
    node_test, children = test.array(), (left.array(), right.array())
    return Trees(node_test, *children, value.array().reshape(-1, n_outputs), leaf_id.array(), n_leaves.array())


def _taken_out(trees: list[Any]) -> Iterator[tuple[int, Any]]:
    """Number and object of each tree, which is removed from the list so that its memory is freed once it is read."""
    for number in range(len(trees)):
        tree, trees[number] = trees[number], None
        yield number, tree


def _nested(root: Any, number: int, tests: Tests, n_outputs: int) -> tuple[npt.ArrayLike, ...]:
    """Tests, left and right children of a tree's nodes, and the values of its leaves."""
    test: list[int] = []
    child: tuple[list[int], list[int]] = ([], [])
    values: list[Any] = []
    stack = [(root, -1, 0)]  # what is still to be read, and the node and side that it hangs from
    while stack:
        item, parent, side = stack.pop()
        if isinstance(item, dict) and "split" in item:
            item = (item["split"], *(get(item, key, object, tree=number) for key in ("left", "right")))
        if isinstance(item, tuple) and len(item) == 3:
            place = len(test)
            test.append(tests.test(item[0], number))
            child[0].append(0)
            child[1].append(0)
            for kid, key, s in ((item[2], "right", 1), (item[1], "left", 0)):
                if not isinstance(kid, (dict, tuple)):
                    raise ModelFormatError("is not an object", tree=number, field=key)
                stack.append((kid, place, s))
        else:
            leaf = len(values) // n_outputs
            place = ~leaf
            value = item[0] if isinstance(item, tuple) else get(item, "value", object, tree=number)
            value = value if isinstance(value, list) else [value]
            if len(value) != n_outputs:
                problem = f"leaf {leaf}: {len(value)} values for {n_outputs} outputs"
                raise ModelFormatError(problem, tree=number, field="value")
            values += value
        if parent >= 0:
            child[side][parent] = place
    return test, *child, reals(values, "value", number)
