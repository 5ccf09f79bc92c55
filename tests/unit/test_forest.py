"""Forest: invalid fields are refused with their place; immutability; ranges of trees."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace

import numpy as np
import pytest
from forests import random_forest

from gpuqs.errors import ModelFormatError
from gpuqs.forest import CATEGORICAL, Forest
from gpuqs.forest_checks import MAX_DEPTH
from gpuqs.schema import Schema


def two_trees(**changes: object) -> Forest:
    """Tree 0 is a single leaf; tree 1 has node 0 (feature 0), nodes 1 and 2 below it, and leaves 0 to 3."""
    fields: dict[str, object] = {
        "n_features": 3,
        "node_offsets": np.array([0, 0, 3]),
        "leaf_offsets": np.array([0, 1, 5]),
        "feature": np.array([0, 1, 2], np.int32),
        "threshold": np.array([0.5, -1.0, 2.0]),
        "left": np.array([1, ~0, ~2], np.int32),
        "right": np.array([2, ~1, ~3], np.int32),
        "routing": np.zeros(3, np.uint8),
        "leaf_value": np.arange(5.0)[:, None],
    }
    return Forest(**{**fields, **changes})  # type: ignore[arg-type]


def chain(n_nodes: int) -> Forest:
    """One tree that grows to the right only."""
    nodes = np.arange(n_nodes, dtype=np.int32)
    right = nodes + 1
    right[-1] = ~n_nodes
    return Forest(
        n_features=1,
        node_offsets=np.array([0, n_nodes]),
        leaf_offsets=np.array([0, n_nodes + 1]),
        feature=np.zeros(n_nodes, np.int32),
        threshold=nodes.astype(np.float64),
        left=~nodes,
        right=right,
        routing=np.zeros(n_nodes, np.uint8),
        leaf_value=np.zeros((n_nodes + 1, 1)),
    )


def test_a_sound_forest_and_what_it_says_of_itself() -> None:
    forest = two_trees()
    assert (forest.n_trees, forest.n_nodes, forest.n_leaves, forest.n_outputs) == (2, 3, 4, 1)
    assert forest.node_tree.tolist() == [1, 1, 1]
    assert forest.depth.tolist() == [0, 1, 1]
    assert forest.tree_weight.tolist() == [1, 1]
    assert forest.base_score.tolist() == [0]
    assert forest.leaf_id.tolist() == [0, 0, 1, 2, 3]
    assert not forest.has_categories and not forest.vector_leaves


def int32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


@pytest.mark.parametrize(
    ("changes", "tree", "field", "problem"),
    [
        ({"left": int32(3, ~0, ~2)}, 1, "left", "node 0: child is outside"),
        ({"left": int32(1, ~0, ~4)}, 1, "left", "node 2: child is outside"),
        ({"right": int32(2, 2**31 - 1, ~3)}, 1, "right", "node 1: child is outside"),
        ({"right": int32(2, -(2**31), ~3)}, 1, "right", "node 1: child is outside"),
        ({"left": int32(1, 0, ~2)}, 1, "left", "node 1: child is outside its tree .or is its root"),
        (
            {"left": int32(1, 1, ~2), "right": int32(2, ~1, ~3)},
            1,
            "left/right",
            "node 1: node has no parent or several",
        ),
        ({"right": int32(1, ~1, ~3)}, 1, "left/right", "node 1: node has no parent or several"),
        ({"left": int32(~0, ~0, ~2)}, 1, "left/right", "node 1: node has no parent or several"),
        ({"left": int32(1, ~1, ~2)}, 1, "left/right", "leaf 0 has no parent or several"),
        (
            {"left": int32(~0, 2, 1), "right": int32(~1, ~2, ~3)},
            1,
            "left/right",
            "node 1: nodes form a cycle",
        ),
        (
            {"left": int32(~0, 1, 2), "right": int32(~1, ~2, ~3)},
            1,
            "left/right",
            "node 1: nodes form a cycle",
        ),
        ({"feature": int32(0, 3, 2)}, 1, "feature", r"node 1: feature is not in \[0, 3\)"),
        ({"feature": int32(0, 1, -1)}, 1, "feature", "node 2: feature is not in"),
        ({"threshold": np.array([0.5, np.nan, 2])}, 1, "threshold", "node 1: threshold is NaN"),
        ({"routing": np.array([0, 0, 64], np.uint8)}, 1, "routing", "node 2: unknown routing bits"),
        (
            {"leaf_value": np.array([[0], [1], [np.nan], [3], [4.0]])},
            1,
            "leaf_value",
            "leaf 1: value is not finite",
        ),
        (
            {"leaf_value": np.array([[np.inf], [1], [2], [3], [4.0]])},
            0,
            "leaf_value",
            "leaf 0: value is not finite",
        ),
        ({"tree_output": int32(0, 1)}, 1, "tree_output", r"output is not in \[0, 1\)"),
        ({"tree_output": int32(-1, 0)}, 0, "tree_output", "output is not in"),
        ({"tree_weight": np.array([1, np.nan])}, 1, "tree_weight", "weight is not finite"),
        ({"base_score": np.array([-np.inf])}, None, "base_score", "base score is not finite"),
        ({"leaf_offsets": np.array([0, 2, 5])}, 0, "leaf_value", "one leaf more than it has nodes"),
        ({"schema": Schema(("a", "b"))}, None, "feature_names", "2 feature names for 3 features"),
    ],
)
def test_what_is_refused(changes: dict, tree: int | None, field: str, problem: str) -> None:
    with pytest.raises(ModelFormatError, match=problem) as caught:
        two_trees(**changes)
    assert (caught.value.tree, caught.value.field) == (tree, field)
    if tree is not None:
        assert f"tree {tree}" in str(caught.value)
    assert repr(field) in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "error", "problem"),
    [
        ({"threshold": np.zeros(3, np.float32)}, TypeError, "threshold must be float64"),
        ({"left": np.array([1, ~0, ~2])}, TypeError, "left must be int32"),
        ({"threshold": np.zeros(4)}, ValueError, "threshold has length 4, not 3"),
        ({"node_offsets": np.array([0, 4, 3])}, ValueError, "node_offsets must rise"),
        ({"node_offsets": np.array([1, 1, 3])}, ValueError, "node_offsets must rise"),
        (
            {"leaf_offsets": np.array([0, 1, 6]), "leaf_id": np.zeros(5, np.int32)},
            ValueError,
            "leaf_offsets must rise",
        ),
        ({"leaf_value": np.zeros(5)}, ValueError, "leaf_value has shape"),
        ({"leaf_value": np.zeros((5, 2))}, ValueError, "leaf_value has shape"),
        ({"category_offsets": np.array([0, 1, 1, 1])}, ValueError, "category_offsets must rise"),
        ({"sum_dtype": "float16"}, ValueError, "sum_dtype is 'float16'"),
        ({"input_dtype": "int"}, ValueError, "input_dtype"),
        ({"integer_dtype": "int"}, ValueError, "integer_dtype"),
        ({"link": "magic"}, ValueError, "link is 'magic'"),
    ],
)
def test_arrays_of_the_wrong_kind(changes: dict, error: type[Exception], problem: str) -> None:
    with pytest.raises(error, match=problem):
        two_trees(**changes)


def test_a_cycle_that_no_root_reaches_is_found_in_any_tree() -> None:
    sound = random_forest(np.random.default_rng(0), n_trees=4, max_leaves=20, shape="complete")
    left, right = sound.left.copy(), sound.right.copy()
    at = int(sound.node_offsets[2])
    # The root gets a leaf as its left child; the subtree of node 1 then hangs from one of its own leaves.
    below = 1
    while left[at + below] >= 0:
        below = int(left[at + below])
    left[at], left[at + below] = left[at + below], left[at]
    with pytest.raises(ModelFormatError, match="cycle") as caught:
        replace(sound, left=left, right=right)
    assert caught.value.tree == 2


def test_deep_chains() -> None:
    forest = chain(MAX_DEPTH + 1)
    assert forest.depth.tolist() == list(range(MAX_DEPTH + 1))
    with pytest.raises(ModelFormatError, match=f"node {MAX_DEPTH + 1}: tree is deeper than {MAX_DEPTH}"):
        chain(MAX_DEPTH + 2)


def test_a_long_cycle_is_refused_in_time() -> None:
    n = 200_000
    nodes = np.arange(n, dtype=np.int32)
    right = nodes + 1
    right[0], right[-1] = ~n, 1  # nodes 1 ... n - 1 form a cycle
    began = time.process_time()
    with pytest.raises(ModelFormatError, match="cycle"):
        replace(chain(3), node_offsets=np.array([0, n]), leaf_offsets=np.array([0, n + 1]),
                feature=np.zeros(n, np.int32), threshold=np.zeros(n), left=~nodes, right=right,
                routing=np.zeros(n, np.uint8), leaf_value=np.zeros((n + 1, 1)), leaf_id=np.zeros(0, np.int32),
                category_offsets=np.zeros(0, np.int64), linear_offsets=np.zeros(0, np.int64))  # fmt: skip
    assert time.process_time() - began < 30, "cycles must not cost time in the square of their length"


LINEAR_BAD: dict[str, tuple[dict[str, object], str]] = {
    "no constant": ({"linear_feature": np.array([0, 1], np.int32)}, "begin with its constant"),
    "two constants": ({"linear_feature": np.array([-1, -1], np.int32)}, "begin with its constant"),
    "no such feature": ({"linear_feature": np.array([-1, 8], np.int32)}, r"feature not in \[0, 8\)"),
    "below": ({"linear_feature": np.array([-1, -2], np.int32)}, "feature not in"),
    "float32": ({"sum_dtype": "float32"}, "combined with vector leaves, float32 sums or tree weights"),
    "weights": ({"tree_weight": np.array([0.5, 1.0])}, "combined with vector leaves, float32 sums or tree weights"),
}


@pytest.mark.parametrize("name", LINEAR_BAD)
def test_linear_models_are_checked(name: str) -> None:
    fields, message = LINEAR_BAD[name]
    forest = random_forest(np.random.default_rng(0), n_trees=2)
    offsets = np.full(len(forest.leaf_value) + 1, 2)
    offsets[0] = 0
    linear = {"linear_feature": np.array([-1, 3], np.int32), "linear_coefficient": np.ones(2)}
    sound = replace(forest, linear_offsets=offsets, **linear)
    assert sound.has_linear_leaves and 3 in sound.tested and not forest.has_linear_leaves
    with pytest.raises(ModelFormatError, match=message):
        replace(sound, **fields)


def test_arrays_cannot_be_written() -> None:
    forest = two_trees()
    arrays = {name: value for name, value in vars(forest).items() if isinstance(value, np.ndarray)}
    assert {"threshold", "left", "leaf_value", "tree_weight", "category_words"} <= set(arrays)
    for name, value in arrays.items():
        assert not value.flags.writeable, name
    with pytest.raises(AttributeError):
        forest.n_features = 4  # type: ignore[misc]


def test_the_callers_arrays_cannot_reach_in() -> None:
    threshold = np.array([0.5, -1.0, 2.0])
    forest = two_trees(threshold=threshold)
    with contextlib.suppress(ValueError):  # the caller's own array was frozen, which is fine, too
        threshold[0] = np.nan
    assert forest.threshold[0] == 0.5


@pytest.mark.parametrize("trees", [slice(0, 3), slice(2, 7), slice(None), slice(5, 5), slice(6, 2), slice(-3, None)])
def test_select_gives_the_range_and_nothing_else(trees: slice) -> None:
    rng = np.random.default_rng(3)
    forest = random_forest(rng, n_trees=9, max_leaves=7, n_outputs=3)
    forest = replace(
        forest,
        tree_weight=rng.normal(size=9),
        leaf_id=rng.permutation(len(forest.leaf_value)).astype(np.int32),
    )
    part = forest.select(trees)
    kept = range(9)[trees]
    assert part.n_trees == len(kept)
    for at, tree in enumerate(kept):
        for offsets, names in (
            ("node_offsets", ("feature", "threshold", "left", "right", "routing")),
            ("leaf_offsets", ("leaf_value", "leaf_id")),
        ):
            of_part, of_forest = getattr(part, offsets), getattr(forest, offsets)
            for name in names:
                np.testing.assert_array_equal(
                    getattr(part, name)[of_part[at] : of_part[at + 1]],
                    getattr(forest, name)[of_forest[tree] : of_forest[tree + 1]],
                )
    np.testing.assert_array_equal(part.tree_output, forest.tree_output[trees] if len(kept) else [])
    np.testing.assert_array_equal(part.tree_weight, forest.tree_weight[trees] if len(kept) else [])
    np.testing.assert_array_equal(part.base_score, forest.base_score)


def test_select_keeps_category_sets_with_their_nodes() -> None:
    words = np.array([1, 2, 3], np.uint32)
    forest = two_trees(
        routing=np.array([CATEGORICAL, 0, CATEGORICAL], np.uint8),
        category_offsets=np.array([0, 1, 1, 3]),
        category_words=words,
    )
    assert forest.has_categories
    assert forest.select(slice(1, 2)).category_words.tolist() == [1, 2, 3]
    assert forest.select(slice(0, 1)).category_words.tolist() == []


def test_select_with_steps_is_refused() -> None:
    with pytest.raises(ValueError, match="step 1, not 2"):
        two_trees().select(slice(0, 2, 2))


def test_a_forest_without_trees() -> None:
    forest = random_forest(np.random.default_rng(0), n_trees=0)
    assert (forest.n_trees, forest.n_nodes, forest.n_leaves) == (0, 0, 0)


@pytest.mark.parametrize("leaf_id", [None, 5])
def test_leaf_ids_that_are_no_array_are_refused(leaf_id: object) -> None:
    with pytest.raises(TypeError, match="leaf_id must be int32"):
        replace(random_forest(np.random.default_rng(0)), leaf_id=leaf_id)
