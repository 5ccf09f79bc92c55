"""Reversed trees and oblivious ones: QuickScorer's arrays for both, against walks over the forest's nodes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from agreement import needs_quickscorer
from forests import exit_leaf_by_walk, probing_documents, random_forest

from gpuqs.engines import ENGINES
from gpuqs.engines.quickscorer import ObliviousQuickScorer
from gpuqs.forest import NAN_LEFT, ZERO_MISSING, ZERO_THRESHOLD, Forest
from gpuqs.layout.columns import find_columns
from gpuqs.layout.leaves import number_leaves
from gpuqs.layout.oblivious import MAX_LEVELS, build_oblivious, level_nodes, n_levels
from gpuqs.layout.quickscorer import QuickScorerLayout, build_quickscorer
from gpuqs.layout.reversing import FALSE_SHARE, SIGNIFICANT, false_trees, mirrored
from gpuqs.model import Model


def forest_of(shape: str = "random", max_leaves: int = 16, n_trees: int = 40, **fields: object) -> Forest:
    return random_forest(np.random.default_rng(7), shape=shape, max_leaves=max_leaves, n_trees=n_trees, **fields)


def replaced(forest: Forest, **arrays: np.ndarray) -> Forest:
    names = (
        "n_features",
        "node_offsets",
        "leaf_offsets",
        "feature",
        "threshold",
        "left",
        "right",
        "routing",
        "leaf_value",
    )
    return Forest(**({name: getattr(forest, name) for name in names} | arrays))


def test_trees_are_reversed_whose_thresholds_are_low(monkeypatch: pytest.MonkeyPatch) -> None:
    """A document with values drawn from the thresholds exceeds most of these; here the share is counted one by one."""
    forest = forest_of(max_leaves=8)
    columns = find_columns(forest)
    shares = []
    for tree in range(forest.n_trees):
        nodes = range(*forest.node_offsets[tree : tree + 2])
        odds = []
        for node in nodes:
            of_column = columns.threshold[columns.of_node == columns.of_node[node]]
            below, ties = (f(of_column, columns.threshold[node]).sum() for f in (np.less, np.equal))
            odds.append(1 - (below + ties / 2) / len(of_column))
        shares.append(sum(odds) / max(len(odds), 1))
    expected = np.array(shares) > FALSE_SHARE
    np.testing.assert_array_equal(false_trees(forest, columns), expected)
    assert SIGNIFICANT < expected.mean() < 0.5
    monkeypatch.setattr("gpuqs.layout.reversing.SIGNIFICANT", expected.mean() + 0.01)
    assert not false_trees(forest, columns).any()


def test_reversed_trees_have_lists_of_their_own() -> None:
    forest, reverse = forest_of(n_trees=30), np.arange(30) % 3 == 0
    layout = build_quickscorer(forest, 8, 16, reverse)
    assert layout.reversed is not None
    assert (reverse[forest.node_tree[layout.reversed.tests.node]]).all()
    assert not (reverse[forest.node_tree[layout.straight.tests.node]]).any()
    assert sum(len(lists.tests.node) for lists in (layout.straight, layout.reversed)) == forest.n_nodes
    assert (forest.routing[layout.reversed.missing.node] & NAN_LEFT != 0).all()
    assert (forest.routing[layout.straight.missing.node] & NAN_LEFT == 0).all()
    for lists, sign in ((layout.straight, 1), (layout.reversed, -1)):
        for offsets in lists.tests.offsets:
            for begin, end in pairwise(offsets):
                assert (np.diff(lists.threshold64[begin:end]) * sign >= 0).all()


def test_mirroring_all_trees_is_numbering_trees_whose_children_are_swapped() -> None:
    forest = forest_of()
    swapped = replaced(forest, left=forest.right, right=forest.left)
    every = np.ones(forest.n_trees, bool)
    got, want = mirrored(forest, number_leaves(forest), every), number_leaves(swapped)
    for field in ("first", "middle", "end", "position"):
        np.testing.assert_array_equal(getattr(got, field), getattr(want, field))


@needs_quickscorer
@pytest.mark.parametrize("reverse", [0, 1, 2], ids=["none", "some", "all"])
@pytest.mark.parametrize("fields", [{}, {"max_leaves": 64}, {"input_dtype": "float32"}], ids=str)
def test_reversing_changes_no_leaf(reverse: int, fields: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    forest = forest_of(**fields)
    chosen = np.arange(forest.n_trees) % 3 < [0, 2, 3][reverse]
    monkeypatch.setattr("gpuqs.engines.quickscorer.false_trees", lambda *_: chosen)
    X = probing_documents(np.random.default_rng(1), forest, 133)
    engine, leaves = ENGINES["bwqs"], np.empty((len(X), forest.n_trees), np.int32)
    engine.leaves(engine.prepare(forest, "exact", params={"tree_block": 7}), X, leaves)
    np.testing.assert_array_equal(leaves, Model(forest).predict(X, "leaf", engine="reference"))


def exit_leaf(layout: QuickScorerLayout, tree: int, x: np.ndarray) -> int:
    """Algorithm 3 for one tree of a layout of one block, with ANDs to the inverted leaf."""
    columns, inverted = layout.columns, -1
    for tuples, is_missing in ((layout.straight.tests, False), (layout.straight.missing, True)):
        column = np.repeat(np.arange(len(columns)), np.diff(tuples.offsets[0]))
        for at in np.flatnonzero(tuples.tree == tree):
            value = x[columns.feature[column[at]]]
            if columns.routing[column[at]] == ZERO_MISSING and abs(value) <= ZERO_THRESHOLD:
                value = np.nan
            if np.isnan(value) if is_missing else value > layout.straight.threshold64[at]:
                inverted &= int(tuples.mask[at]) - (1 << layout.mask_bits)
    return ~inverted


@pytest.mark.parametrize(("leaves", "bits"), [(8, 8), (256, 8), (512, 16)])
def test_levels_of_oblivious_trees(leaves: int, bits: int) -> None:
    forest = forest_of("oblivious", leaves, n_trees=12)
    assert forest.n_leaves == leaves
    layout, levels = build_oblivious(forest, 12), n_levels(forest)
    assert layout.mask_bits == bits and layout.oblivious
    assert (1 << levels == np.diff(forest.leaf_offsets)).all()
    assert len(layout.straight.tests.node) == levels.sum()
    for x in probing_documents(np.random.default_rng(1), forest, 8):
        for tree in range(12):
            leaf = exit_leaf_by_walk(forest, tree, x)
            assert exit_leaf(layout, tree, x) == layout.position[leaf]


@pytest.mark.parametrize("shape", ["random", "chain", "complete"])
def test_other_trees_are_not_oblivious(shape: str) -> None:
    forest = forest_of(shape)
    assert level_nodes(forest) is None
    assert "not oblivious" in str(ObliviousQuickScorer().why_not(forest))


@pytest.mark.parametrize("field", ["threshold", "feature", "routing"])
def test_one_node_that_differs_from_its_level(field: str) -> None:
    forest = forest_of("oblivious", 8)
    assert level_nodes(forest) is not None
    array, last = getattr(forest, field).copy(), forest.node_offsets[1 + n_levels(forest).argmax()] - 1
    others = {"threshold": 0.123, "feature": (forest.feature[last] + 1) % forest.n_features}
    array[last] = others.get(field, forest.routing[last] ^ NAN_LEFT)
    assert level_nodes(replaced(forest, **{field: array})) is None


@needs_quickscorer
@pytest.mark.parametrize("leaves", [1, 2, 256, 512])
def test_trees_of_many_levels(leaves: int) -> None:
    """Leaf numbers of one and two bytes; single leaves and single tests also count as oblivious."""
    forest = forest_of("oblivious", leaves, n_trees=6)
    X = probing_documents(np.random.default_rng(1), forest, 77)
    model = Model(forest)
    got, want = (model.predict(X, "leaf", engine=engine) for engine in ("qs_oblivious", "reference"))
    np.testing.assert_array_equal(got, want)


def test_trees_of_too_many_levels() -> None:
    forest = forest_of("oblivious", 2 << MAX_LEVELS, n_trees=1)
    assert f"{2 << MAX_LEVELS} leaves" in str(ObliviousQuickScorer().why_not(forest))
