"""XGBoost's trees, as its files hold them -> the canonical arrays of a `Forest`.

All trees are converted at once: their nodes stand one after another, and a tree is a slice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gpuqs.errors import ModelFormatError
from gpuqs.forest import CATEGORICAL, MAX_DEPTH, NAN_LEFT, SET_RIGHT
from gpuqs.formats.fields import get, numbers, whole

#: XGBoost takes category codes from here on for "no category": float32 has no odd ones above.
_MAX_CATEGORIES: Final = 1 << 24
#: Most 32-bit words of category sets (64 MiB): a huge code in every node of a small file is an attack.
_MAX_CATEGORY_WORDS: Final = 1 << 24
_INT32_MAX: Final = int(np.iinfo(np.int32).max)


@dataclass(frozen=True)
class Nodes:
    """Inner nodes and leaves of all trees, numbered as in the file; M nodes, T trees.

    Parameters
    ----------
    offsets : int64 [T + 1]
        First node of each tree.
    left, right, feature : int64 [M]
        As in the file: children inside the tree, -1 as left child of a leaf.
    condition : float32 [M]
        Threshold of an inner node.
    default_left, categorical : bool [M]
    value : float32 [M, width]
        Value of a leaf.
    set_node, set_size : int64 [S]
        Nodes that have a category set (over all trees), and its size.
    set_code : int64 [sum of set_size]
        The sets' category codes, set by set.
    """

    offsets: npt.NDArray[np.int64]
    left: npt.NDArray[np.int64]
    right: npt.NDArray[np.int64]
    feature: npt.NDArray[np.int64]
    condition: npt.NDArray[np.float32]
    default_left: npt.NDArray[np.bool_]
    categorical: npt.NDArray[np.bool_]
    value: npt.NDArray[np.float32]
    set_node: npt.NDArray[np.int64]
    set_size: npt.NDArray[np.int64]
    set_code: npt.NDArray[np.int64]


def read_nodes(trees: list[Any], n_outputs: int) -> Nodes:
    """The nodes of the file's ``trees``."""
    parts = [_tree(tree, number, n_outputs) for number, tree in enumerate(trees)]
    if len({part["value"].shape[1] for part in parts}) > 1:
        raise ModelFormatError("some trees have vector leaves, others have not", field="size_leaf_vector")
    offsets = np.cumsum([0, *(len(part["left"]) for part in parts)], dtype=np.int64)
    for part, first in zip(parts, offsets.tolist(), strict=False):
        part["set_node"] = part["set_node"] + first
    none = _no_nodes(parts[0]["value"].shape[1] if parts else 1)  # gives the dtypes where there is no tree
    joined = {name: np.concatenate([none[name], *(part[name] for part in parts)]) for name in none}
    return Nodes(offsets=offsets, **joined)


def _no_nodes(width: int) -> dict[str, np.ndarray]:
    whole_numbers = ("left", "right", "feature", "set_node", "set_size", "set_code")
    return {
        **{name: np.zeros(0, np.int64) for name in whole_numbers},
        **{name: np.zeros(0, bool) for name in ("default_left", "categorical")},
        "condition": np.zeros(0, np.float32),
        "value": np.zeros((0, width), np.float32),
    }


def _tree(tree: Any, number: int, n_outputs: int) -> dict[str, np.ndarray]:
    """The part of `Nodes` that one tree makes, its lengths checked."""
    param = get(tree, "tree_param", dict, tree=number)
    n_nodes = whole(param, "num_nodes", 1, _INT32_MAX, tree=number)
    width = whole(param, "size_leaf_vector", 0, _INT32_MAX, 0, tree=number)
    if whole(tree, "id", 0, _INT32_MAX, number, tree=number) != number:
        raise ModelFormatError("trees are out of order", tree=number, field="id")

    def column(key: str, dtype: npt.DTypeLike, length: int = n_nodes) -> np.ndarray:
        values = numbers(get(tree, key, list, tree=number), key, dtype, tree=number)
        if len(values) != length:
            raise ModelFormatError(f"{len(values)} values where {length} should be", tree=number, field=key)
        return values

    left, right = column("left_children", np.int64), column("right_children", np.int64)
    condition = column("split_conditions", np.float32)
    if width <= 1:
        value = condition[:, None]
    elif width != n_outputs:
        problem = f"{width} values a leaf, but {n_outputs} outputs"
        raise ModelFormatError(problem, tree=number, field="size_leaf_vector")
    elif "leaf_weights" in tree:  # from 3.2 on; a leaf's right child is its number there
        leaf = np.flatnonzero(left == -1)
        weights = column("leaf_weights", np.float32, len(leaf) * width).reshape(-1, width)
        if ((right[leaf] < 0) | (right[leaf] >= len(leaf))).any():
            raise ModelFormatError("a leaf has no weights", tree=number, field="leaf_weights")
        value = np.zeros((n_nodes, width), np.float32)
        value[leaf] = weights[right[leaf]]
    else:
        value = column("base_weights", np.float32, n_nodes * width).reshape(-1, width)
    part = {
        **_no_nodes(value.shape[1]),
        "left": left,
        "right": right,
        "feature": column("split_indices", np.int64),
        "condition": condition,
        "default_left": column("default_left", np.int64) != 0,
        "categorical": np.zeros(n_nodes, bool),
        "value": value,
    }
    if len(get(tree, "split_type", list, [], tree=number)):
        split_type = column("split_type", np.int64)
        if ((split_type != 0) & (split_type != 1)).any():
            raise ModelFormatError("must be 0 (numeric) or 1 (categorical)", tree=number, field="split_type")
        part["categorical"] = split_type == 1
        if part["categorical"].any():
            part |= _category_sets(tree, number, n_nodes)
    return part


def _category_sets(tree: dict[str, Any], number: int, n_nodes: int) -> dict[str, np.ndarray]:
    """The category sets of one tree, its codes brought into the order of the nodes that hold them."""

    def column(key: str) -> npt.NDArray[np.int64]:
        return numbers(get(tree, key, list, tree=number), key, np.int64, tree=number)

    def refuse(bad: bool, problem: str, key: str) -> None:
        if bad:
            raise ModelFormatError(problem, tree=number, field=key)

    node, start, size = (column(f"categories_{key}") for key in ("nodes", "segments", "sizes"))
    code = column("categories")
    refuse(len(start) != len(node), f"{len(start)} values for {len(node)} nodes", "categories_segments")
    refuse(len(size) != len(node), f"{len(size)} values for {len(node)} nodes", "categories_sizes")
    refuse(bool(((node < 0) | (node >= n_nodes)).any()), f"node is not in [0, {n_nodes})", "categories_nodes")
    refuse(len(np.unique(node)) != len(node), "node appears twice", "categories_nodes")
    outside = (start < 0) | (start > len(code)) | (size < 0) | (size > len(code) - start)
    refuse(bool(outside.any()), "segment lies outside of the categories", "categories_segments")
    refuse(int(size.sum()) > len(code), "segments overlap", "categories_sizes")
    bad_code = (code < 0) | (code >= _MAX_CATEGORIES)
    refuse(bool(bad_code.any()), f"code is not in [0, {_MAX_CATEGORIES})", "categories")
    first = np.cumsum(size) - size
    take = np.repeat(start - first, size) + np.arange(int(size.sum()))
    return {"set_node": node, "set_size": size, "set_code": code[take]}


def canonical_arrays(nodes: Nodes, n_features: int) -> dict[str, np.ndarray]:
    """The arrays of a `Forest` over nodes and leaves, from what can be reached from the roots."""
    leaf = nodes.left == -1
    reached = _reachable(nodes, leaf)
    inner_node, leaf_node = np.flatnonzero(reached & ~leaf), np.flatnonzero(reached & leaf)
    node_offsets = np.searchsorted(inner_node, nodes.offsets)
    leaf_offsets = np.searchsorted(leaf_node, nodes.offsets)
    tree = np.searchsorted(nodes.offsets, inner_node, "right") - 1
    base = nodes.offsets[tree]

    place = np.zeros(len(leaf), np.int64)  # of each reached node among its tree's nodes or leaves
    place[inner_node] = np.arange(len(inner_node)) - node_offsets[tree]
    leaf_tree = np.searchsorted(nodes.offsets, leaf_node, "right") - 1
    place[leaf_node] = ~(np.arange(len(leaf_node)) - leaf_offsets[leaf_tree])
    left, right = place[base + nodes.left[inner_node]], place[base + nodes.right[inner_node]]

    feature, categorical = nodes.feature[inner_node], nodes.categorical[inner_node]
    condition = np.where(categorical, np.float32(0), nodes.condition[inner_node])
    value = nodes.value[leaf_node]
    outside = (feature < 0) | (feature >= n_features)
    _refuse(nodes, inner_node[outside], f"feature is not in [0, {n_features})", "split_indices")
    _refuse(nodes, inner_node[np.isnan(condition)], "threshold is NaN", "split_conditions")
    infinite = leaf_node[~np.isfinite(value).all(axis=1)]
    _refuse(
        nodes,
        infinite,
        "leaf value is not finite",
        "split_conditions" if value.shape[1] == 1 else "leaf_weights",
    )
    default_left = nodes.default_left[inner_node]
    # Nothing is below -inf: only missing values may go left. With the children swapped that is x <= inf.
    never = condition == -np.inf
    left, right = np.where(never, right, left), np.where(never, left, right)
    with np.errstate(over="ignore", under="ignore"):
        below = np.nextafter(condition, np.float32(-np.inf))
    threshold = np.where(never, np.float32(np.inf), below)
    routing = (default_left ^ never) * NAN_LEFT + categorical * (CATEGORICAL | SET_RIGHT)
    category_offsets, category_words = _category_words(nodes, inner_node[categorical], inner_node)
    return {
        "node_offsets": node_offsets,
        "leaf_offsets": leaf_offsets,
        "feature": feature.astype(np.int32),
        "threshold": threshold.astype(np.float64),
        "left": left.astype(np.int32),
        "right": right.astype(np.int32),
        "routing": routing.astype(np.uint8),
        "leaf_value": value.astype(np.float64),
        "leaf_id": (leaf_node - nodes.offsets[leaf_tree]).astype(np.int32),
        "category_offsets": category_offsets,
        "category_words": category_words,
    }


def _reachable(nodes: Nodes, leaf: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Nodes that the roots lead to, level by level; pruned trees of old versions hold others too."""
    reached = np.zeros(len(leaf), bool)
    level = nodes.offsets[:-1]
    for _ in range(MAX_DEPTH + 2):
        again = np.sort(level)
        again = np.concatenate([level[reached[level]], again[1:][again[1:] == again[:-1]]])
        _refuse(nodes, again, "node has several parents", "left_children/right_children")
        reached[level] = True
        inner = level[~leaf[level]]
        if len(inner) == 0:
            return reached
        tree = np.searchsorted(nodes.offsets, inner, "right") - 1
        first, n_nodes = nodes.offsets[tree], np.diff(nodes.offsets)[tree]
        children = []
        for key, child in (("left_children", nodes.left[inner]), ("right_children", nodes.right[inner])):
            _refuse(nodes, inner[(child < 1) | (child >= n_nodes)], "child is outside of its tree", key)
            children.append(first + child)
        level = np.concatenate(children)
    return _refuse(nodes, level, f"tree is deeper than {MAX_DEPTH}", "left_children/right_children")


def _category_words(
    nodes: Nodes, wanted: npt.NDArray[np.int64], inner_node: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
    """Bitsets of the nodes that are ``wanted``, in the order of ``inner_node``."""
    owner = np.repeat(nodes.set_node, nodes.set_size)
    keep = np.isin(owner, wanted)
    owner, code = np.searchsorted(inner_node, owner[keep]), nodes.set_code[keep]
    n_words = np.zeros(len(inner_node), np.int64)
    np.maximum.at(n_words, owner, code // 32 + 1)
    offsets = np.concatenate([[0], np.cumsum(n_words)])
    if offsets[-1] > _MAX_CATEGORY_WORDS:
        problem = f"category sets take {offsets[-1] >> 18} MiB; number the categories densely from 0"
        raise ModelFormatError(problem, field="categories")
    words = np.zeros(offsets[-1], np.uint32)
    np.bitwise_or.at(words, offsets[owner] + code // 32, np.uint32(1) << (code % 32).astype(np.uint32))
    return offsets, words


def _refuse(nodes: Nodes, bad: npt.NDArray[np.int64], problem: str, field: str) -> None:
    """Raise where ``bad`` names a node."""
    if len(bad):
        tree = int(np.searchsorted(nodes.offsets, bad[0], "right")) - 1
        raise ModelFormatError(f"node {bad[0] - nodes.offsets[tree]}: {problem}", tree=tree, field=field)
