"""XGBoost's trees, as its files hold them -> the canonical arrays of a `Forest`.

A tree's object is turned into a `Tree`, which takes a fraction of its memory, as soon as it is parsed. Trees are
converted many at a time: their nodes lie one after another, and a tree is a slice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from gpuqs.errors import ModelFormatError, UnsupportedModelError
from gpuqs.forest import CATEGORICAL, NAN_LEFT, SET_RIGHT
from gpuqs.forest_checks import MAX_DEPTH
from gpuqs.formats.fields import INT32_MAX, get, numbers, whole
from gpuqs.formats.growing import GrowingForest, offsets

#: XGBoost treats category codes from here on as "no category": float32 cannot hold odd integers above.
_MAX_CATEGORIES: Final = 1 << 24
#: Upper limit of 32-bit words in category sets (64 MiB): a huge code in every node of a small file is an attack.
_MAX_CATEGORY_WORDS: Final = 1 << 24
#: Fields of a tree's category sets; they may be empty.
_SETS: Final = ("categories_nodes", "categories_segments", "categories_sizes", "categories")
#: Trees are converted together once they have about this many values: few calls, and little temporary memory.
_BLOCK_VALUES: Final = 1 << 16
#: A tree's memory besides its values, counted in values.
_TREE_VALUES: Final = 64

#: The fields of a tree's nodes: the key of each in the file, and its type. Integers that the type cannot hold become
#: its largest, which is never valid.
_FIELDS: Final[dict[str, tuple[str, np.dtype[Any]]]] = {
    "left": ("left_children", np.dtype(np.int32)),
    "right": ("right_children", np.dtype(np.int32)),
    "feature": ("split_indices", np.dtype(np.int32)),
    "condition": ("split_conditions", np.dtype(np.float32)),
    "default_left": ("default_left", np.dtype(np.uint8)),
}
_FLOAT: Final = np.dtype(np.float32)
#: Keys of arrays of numbers in the file's trees.
ARRAYS: Final = frozenset(
    {
        *(key for key, _ in _FIELDS.values()),
        *(*_SETS, "split_type", "leaf_weights", "base_weights", "loss_changes", "parents", "sum_hessian"),
    }
)


class Tree(NamedTuple):
    """A tree of the file, its lengths checked; M nodes.

    Parameters
    ----------
    number : int or None
        Its place among the trees, as the file states it.
    left, right, feature, condition, default_left : arrays [M]
        As the file holds them, of the types of `_FIELDS`.
    categorical : uint8 [M] or None
        None if no node is categorical.
    vectors : float32 [leaves, width] or None
        Values of vector leaves, in the order of the leaves; if None, a leaf's value is its condition.
    sets : tuple of int64 arrays
        Nodes that have a category set, the sets' sizes, and their codes set by set.
    """

    number: int | None
    left: npt.NDArray[np.int32]
    right: npt.NDArray[np.int32]
    feature: npt.NDArray[np.int32]
    condition: npt.NDArray[np.float32]
    default_left: npt.NDArray[np.uint8]
    categorical: npt.NDArray[np.uint8] | None
    vectors: npt.NDArray[np.float32] | None
    sets: tuple[npt.NDArray[np.int64], ...]

    @property
    def width(self) -> int:
        return 1 if self.vectors is None else self.vectors.shape[1]


@dataclass(frozen=True)
class Nodes:
    """Inner nodes and leaves of some trees, numbered as in the file; M nodes, T trees.

    Parameters
    ----------
    first_tree : int
        Number of the first of these trees, for error messages.
    offsets : int64 [T + 1]
        First node of each tree.
    left, right, feature : int64 [M]
        As in the file: children inside the tree, -1 as left child of a leaf.
    condition : float32 [M]
        Threshold of an inner node.
    default_left, categorical : uint8 [M]
        All must be 0 or 1.
    value : float32 [leaves, width]
        Values of the nodes that are leaves.
    set_node, set_size : int64 [S]
        Nodes that have a category set (over all trees), and its size.
    set_code : int64 [sum of set_size]
        The sets' category codes, set by set.
    """

    first_tree: int
    offsets: npt.NDArray[np.int64]
    left: npt.NDArray[np.int64]
    right: npt.NDArray[np.int64]
    feature: npt.NDArray[np.int64]
    condition: npt.NDArray[np.float32]
    default_left: npt.NDArray[np.uint8]
    categorical: npt.NDArray[np.uint8]
    value: npt.NDArray[np.float32]
    set_node: npt.NDArray[np.int64]
    set_size: npt.NDArray[np.int64]
    set_code: npt.NDArray[np.int64]


def condensed(obj: dict[str, Any]) -> dict[str, Any] | Tree:
    """An object of the file, as a `Tree` if it is a sound one."""
    if "left_children" not in obj:
        return obj
    try:
        return _tree(obj, None)
    except ModelFormatError:  # raised again when the tree's number is known
        return obj


def forest_arrays(trees: list[Any], n_outputs: int, n_features: int) -> dict[str, np.ndarray]:
    """The arrays of a `Forest` over nodes and leaves, from what `condensed` made of the file's ``trees``.

    The list is emptied as it is read, so that trees make room for the arrays.
    """
    forest = GrowingForest()
    for nodes in _blocks(trees, n_outputs):
        forest.extend(_canonical_arrays(nodes, n_features, _MAX_CATEGORY_WORDS - forest.n_words))
    return forest.arrays()


def _blocks(trees: list[Any], n_outputs: int) -> Iterator[Nodes]:
    """The nodes of the file's ``trees``, joined into blocks of trees."""
    block: list[Tree] = []
    first, n_values, width = 0, 0, 0
    for number in range(len(trees)):
        tree, trees[number] = trees[number], None
        if not isinstance(tree, Tree):
            tree = _tree(tree, number)
        if tree.number not in (None, number):
            raise ModelFormatError("trees are out of order", tree=number, field="id")
        if tree.width not in (1, n_outputs):
            problem = f"{tree.width} values a leaf, but {n_outputs} outputs"
            raise ModelFormatError(problem, tree=number, field="size_leaf_vector")
        if number and tree.width != width:
            raise UnsupportedModelError(
                f"tree {number}: some trees have vector leaves and others do not, which is not evaluated; score the "
                "model with XGBoost, or train it with one multi_strategy throughout"
            )
        width = tree.width
        block.append(tree)
        n_values += len(tree.left) * width + _TREE_VALUES
        if n_values >= _BLOCK_VALUES:
            yield _joined(block, first)
            block, first, n_values = [], number + 1, 0
    if block:
        yield _joined(block, first)


def _joined(trees: list[Tree], first_tree: int) -> Nodes:
    starts = offsets([len(tree.left) for tree in trees])
    left = np.concatenate([tree.left for tree in trees]).astype(np.int64)
    condition = np.concatenate([tree.condition for tree in trees])
    categorical = np.zeros(len(left), np.uint8)
    for start, tree in zip(starts.tolist(), trees, strict=False):
        if tree.categorical is not None:
            categorical[start : start + len(tree.categorical)] = tree.categorical
    vectors = [tree.vectors for tree in trees if tree.vectors is not None]
    none = np.zeros(0, np.int64)
    with_sets = [(start, *tree.sets) for start, tree in zip(starts.tolist(), trees, strict=False) if tree.sets]
    return Nodes(
        first_tree=first_tree,
        offsets=starts,
        left=left,
        right=np.concatenate([tree.right for tree in trees]).astype(np.int64),
        feature=np.concatenate([tree.feature for tree in trees]).astype(np.int64),
        condition=condition,
        default_left=np.concatenate([tree.default_left for tree in trees]),
        categorical=categorical,
        value=np.concatenate(vectors) if vectors else condition[left == -1, None],
        set_node=np.concatenate([none, *(start + node for start, node, _, _ in with_sets)]),
        set_size=np.concatenate([none, *(size for _, _, size, _ in with_sets)]),
        set_code=np.concatenate([none, *(code for _, _, _, code in with_sets)]),
    )


def _tree(tree: Any, number: int | None) -> Tree:
    """A tree's object as a `Tree`, its lengths checked."""
    param = get(tree, "tree_param", dict, tree=number)
    n_nodes = whole(param, "num_nodes", 1, INT32_MAX, tree=number)
    width = whole(param, "size_leaf_vector", 0, INT32_MAX, 0, tree=number)
    said = whole(tree, "id", 0, INT32_MAX, tree=number) if "id" in tree else None

    def column(key: str, dtype: np.dtype, length: int = n_nodes) -> np.ndarray:
        values: np.ndarray = tree.get(key)
        if type(values) is not np.ndarray or values.dtype != dtype:  # UBJSON's mostly are that
            values = _narrowed(get(tree, key, list, tree=number), key, dtype, number)
        if len(values) != length:
            raise ModelFormatError(f"{len(values)} values where {length} should be", tree=number, field=key)
        return values

    left, right, feature, condition, default_left = (column(key, dtype) for key, dtype in _FIELDS.values())
    vectors = None
    if width > 1 and "leaf_weights" in tree:  # from 3.2 on; there a leaf's right child is its row of weights
        leaf = np.flatnonzero(left == -1)
        weights = column("leaf_weights", _FLOAT, len(leaf) * width).reshape(-1, width)
        at = right[leaf]
        if ((at < 0) | (at >= len(leaf))).any():
            raise ModelFormatError("a leaf has no weights", tree=number, field="leaf_weights")
        vectors = weights[at]
    elif width > 1:
        vectors = column("base_weights", _FLOAT, n_nodes * width).reshape(-1, width)[left == -1]
    categorical = None
    sets: tuple[npt.NDArray[np.int64], ...] = ()
    if len(get(tree, "split_type", list, [], tree=number)):
        kinds = column("split_type", np.dtype(np.uint8))
        if any_categorical := np.count_nonzero(kinds) > 0:
            if kinds.max() > 1:
                raise ModelFormatError("must be 0 (numeric) or 1 (categorical)", tree=number, field="split_type")
            categorical = kinds
        for key in _SETS:  # XGBoost reads no file without them
            get(tree, key, list, tree=number)
        if any_categorical:
            sets = _category_sets(tree, number, (kinds != 0) & (left != -1))
    return Tree(said, left, right, feature, condition, default_left, categorical, vectors, sets)


def _narrowed(values: Any, key: str, dtype: np.dtype, tree: int | None) -> np.ndarray:
    """Numbers as ``dtype``; integers that it cannot hold become its largest."""
    wide = numbers(values, key, dtype if dtype.kind == "f" else np.int64, tree=tree)
    narrow: np.ndarray = wide.astype(dtype, copy=False)
    if dtype.kind != "f":
        narrow[narrow != wide] = np.iinfo(dtype).max
    return narrow


def _category_sets(
    tree: dict[str, Any], number: int | None, without: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int64], ...]:
    """The category sets of one tree, with codes in the order of the nodes that hold them.

    ``without``: the nodes that must have a set; those that have one are cleared in it.
    """

    def column(key: str) -> npt.NDArray[np.int64]:
        return numbers(get(tree, key, list, tree=number), key, np.int64, tree=number)

    def refuse(bad: bool, problem: str, key: str) -> None:
        if bad:
            raise ModelFormatError(problem, tree=number, field=key)

    node, start, size = (column(f"categories_{key}") for key in ("nodes", "segments", "sizes"))
    code = column("categories")
    refuse(len(start) != len(node), f"{len(start)} values for {len(node)} nodes", "categories_segments")
    refuse(len(size) != len(node), f"{len(size)} values for {len(node)} nodes", "categories_sizes")
    outside = (node < 0) | (node >= len(without))
    refuse(bool(outside.any()), f"node is not in [0, {len(without)})", "categories_nodes")
    refuse(len(np.unique(node)) != len(node), "node appears twice", "categories_nodes")
    without[node] = False
    refuse(bool(without.any()), f"node {without.argmax()} is categorical and has no set", "categories_nodes")
    outside = (start < 0) | (start > len(code)) | (size < 0) | (size > len(code) - start)
    refuse(bool(outside.any()), "segment lies outside of the categories", "categories_segments")
    refuse(int(size.sum()) > len(code), "segments overlap", "categories_sizes")
    bad_code = (code < 0) | (code >= _MAX_CATEGORIES)
    refuse(bool(bad_code.any()), f"code is not in [0, {_MAX_CATEGORIES})", "categories")
    first = np.cumsum(size) - size
    take = np.repeat(start - first, size) + np.arange(int(size.sum()))
    return node, size, code[take]


def _canonical_arrays(nodes: Nodes, n_features: int, max_words: int) -> dict[str, np.ndarray]:
    """The arrays of a `Forest` over the nodes and leaves that the roots lead to, with sizes instead of offsets."""
    leaf = nodes.left == -1
    reached = _reachable(nodes, leaf)
    inner_node, leaf_node = np.flatnonzero(reached & ~leaf), np.flatnonzero(reached & leaf)
    node_offsets = np.searchsorted(inner_node, nodes.offsets)
    leaf_offsets = np.searchsorted(leaf_node, nodes.offsets)
    tree_of = np.repeat(np.arange(len(nodes.offsets) - 1), np.diff(nodes.offsets))
    tree, leaf_tree = tree_of[inner_node], tree_of[leaf_node]
    base = nodes.offsets[tree]

    place = np.zeros(len(leaf), np.int64)  # of each reached node among its tree's nodes or leaves
    place[inner_node] = np.arange(len(inner_node)) - node_offsets[tree]
    place[leaf_node] = ~(np.arange(len(leaf_node)) - leaf_offsets[leaf_tree])
    left, right = place[base + nodes.left[inner_node]], place[base + nodes.right[inner_node]]

    wrong = np.flatnonzero(nodes.default_left > 1)
    _refuse(nodes, wrong, "must be 0 (right) or 1 (left)", "default_left")
    feature, categorical = nodes.feature[inner_node], nodes.categorical[inner_node].astype(bool)
    condition = np.where(categorical, np.float32(0), nodes.condition[inner_node])
    value = nodes.value[reached[leaf]]
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
    default_left = nodes.default_left[inner_node].astype(bool)
    # Nothing is below -inf, so only missing values may go left: this becomes x <= inf with the children swapped.
    never = condition == -np.inf
    left, right = np.where(never, right, left), np.where(never, left, right)
    with np.errstate(over="ignore", under="ignore"):
        below = np.nextafter(condition, np.float32(-np.inf))
    threshold = np.where(never, np.float32(np.inf), below)
    routing = (default_left ^ never) * NAN_LEFT + categorical * (CATEGORICAL | SET_RIGHT)
    n_words, category_words = _category_words(nodes, inner_node[categorical], inner_node, max_words)
    return {
        "n_nodes": np.diff(node_offsets),
        "n_leaves": np.diff(leaf_offsets),
        "feature": feature,
        "threshold": threshold,
        "left": left,
        "right": right,
        "routing": routing,
        "leaf_value": value,
        "leaf_id": leaf_node - nodes.offsets[leaf_tree],
        "n_words": n_words,
        "category_words": category_words,
    }


def _reachable(nodes: Nodes, leaf: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Nodes that the roots lead to, found level by level; pruned trees of old versions hold others too."""
    if _all_in_order(nodes, leaf):
        return np.ones(len(leaf), bool)
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
    _refuse(nodes, level, f"tree is deeper than {MAX_DEPTH}", "left_children/right_children")
    raise AssertionError("a level without nodes ends the loop")


def _all_in_order(nodes: Nodes, leaf: npt.NDArray[np.bool_]) -> bool:
    """Whether each node except the roots is the child of one before it, as in trees that were not pruned."""
    inner = np.flatnonzero(~leaf)
    sizes = np.diff(nodes.offsets)
    first, end = (np.repeat(ends, sizes)[inner] for ends in (nodes.offsets[:-1], nodes.offsets[1:]))
    left, right = first + nodes.left[inner], first + nodes.right[inner]
    if 2 * len(inner) != len(leaf) - len(sizes) or not (np.minimum(left, right) > inner).all():
        return False
    if not (np.maximum(left, right) < end).all():
        return False
    is_child = np.zeros(len(leaf), bool)
    is_child[left] = is_child[right] = True
    return int(np.count_nonzero(is_child)) == 2 * len(inner)


def _category_words(
    nodes: Nodes, wanted: npt.NDArray[np.int64], inner_node: npt.NDArray[np.int64], max_words: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
    """Sizes in words of the sets of all nodes in ``inner_node``, and the sets of those that are ``wanted``."""
    owner = np.repeat(nodes.set_node, nodes.set_size)
    keep = np.isin(owner, wanted)
    owner, code = np.searchsorted(inner_node, owner[keep]), nodes.set_code[keep]
    n_words = np.zeros(len(inner_node), np.int64)
    np.maximum.at(n_words, owner, code // 32 + 1)
    starts = offsets(n_words)
    if starts[-1] > max_words:
        mebibytes = (_MAX_CATEGORY_WORDS - max_words + starts[-1]) >> 18
        problem = f"category sets take {mebibytes} MiB; number the categories densely from 0"
        raise ModelFormatError(problem, field="categories")
    words = np.zeros(starts[-1], np.uint32)
    np.bitwise_or.at(words, starts[owner] + code // 32, np.uint32(1) << (code % 32).astype(np.uint32))
    return n_words, words


def _refuse(nodes: Nodes, bad: npt.NDArray[np.int64], problem: str, field: str) -> None:
    """Raise for the first node in ``bad``, if there is one."""
    if len(bad):
        tree = int(np.searchsorted(nodes.offsets, bad[0], "right")) - 1
        problem = f"node {bad[0] - nodes.offsets[tree]}: {problem}"
        raise ModelFormatError(problem, tree=nodes.first_tree + tree, field=field)
