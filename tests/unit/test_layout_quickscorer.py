"""QuickScorer's arrays against brute force over the forest's nodes."""

from __future__ import annotations

import numpy as np
import pytest
from forests import exit_leaf_by_walk, probing_documents, random_forest

from gpuqs.forest import NAN_LEFT, ZERO_MISSING, ZERO_THRESHOLD, Forest
from gpuqs.layout.columns import round_down
from gpuqs.layout.leaves import number_leaves
from gpuqs.layout.quickscorer import QuickScorerLayout, Tuples, build_quickscorer, mask_bits_for

CASES = [
    # (leaves, shape, trees, tree block, mask bits)
    (8, "random", 12, 5, 8),
    (16, "complete", 7, 3, 16),
    (32, "random", 20, 20, 32),
    (32, "chain", 5, 2, 32),
    (64, "random", 9, 4, 64),
    (64, "chain", 4, 100, 64),
    (64, "complete", 3, 1, 64),
    (3, "random", 6, 4, 64),
]


def lay_out(leaves: int, shape: str, n_trees: int, tree_block: int, bits: int) -> tuple[Forest, QuickScorerLayout]:
    rng = np.random.default_rng(leaves + n_trees)
    forest = random_forest(rng, n_trees=n_trees, max_leaves=leaves, shape=shape)
    return forest, build_quickscorer(forest, tree_block, bits)


def brute_force(forest: Forest, layout: QuickScorerLayout, block: int, column: int, *, missing: bool) -> set[int]:
    first, end = layout.block_offsets[block : block + 2]
    return {
        n
        for n in range(forest.n_nodes)
        if first <= forest.node_tree[n] < end
        and layout.columns.of_node[n] == column
        and not (missing and forest.routing[n] & NAN_LEFT)
    }


@pytest.mark.parametrize("case", CASES, ids=str)
def test_tests_are_listed_by_block_and_column(case: tuple) -> None:
    forest, layout = lay_out(*case)
    tree_block = case[3]
    assert layout.block_offsets.tolist() == [*range(0, forest.n_trees, tree_block), forest.n_trees]
    for tuples, missing in ((layout.straight.tests, False), (layout.straight.missing, True)):
        assert tuples.offsets.shape == (len(layout.block_offsets) - 1, len(layout.columns) + 1)
        covered = 0
        for block in range(len(layout.block_offsets) - 1):
            assert tuples.offsets[block, 0] == covered
            for column in range(len(layout.columns)):
                start, end = tuples.offsets[block, column : column + 2]
                nodes = tuples.node[start:end].tolist()
                assert len(nodes) == len(set(nodes))
                assert set(nodes) == brute_force(forest, layout, block, column, missing=missing)
                thresholds = forest.threshold[nodes]
                assert (thresholds[1:] >= thresholds[:-1]).all()
                assert (tuples.tree[start:end] == forest.node_tree[nodes] - layout.block_offsets[block]).all()
            covered = tuples.offsets[block, -1]
        assert covered == len(tuples.node) == len(tuples.tree) == len(tuples.mask)
    assert len(layout.straight.tests.node) == forest.n_nodes


@pytest.mark.parametrize("case", CASES, ids=str)
def test_masks_clear_the_leaves_of_the_left_subtree(case: tuple) -> None:
    forest, layout = lay_out(*case)
    bits, ranges = case[4], number_leaves(forest)
    for tuples in (layout.straight.tests, layout.straight.missing):
        assert tuples.mask.dtype == np.dtype(f"u{bits // 8}")
        for node, mask in zip(tuples.node, tuples.mask.tolist(), strict=True):
            as_text = format(mask, f"0{bits}b")  # leaf 0 first
            expected = ["0" if ranges.first[node] <= leaf < ranges.middle[node] else "1" for leaf in range(bits)]
            assert as_text == "".join(expected)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_thresholds_stand_beside_their_tests(case: tuple) -> None:
    forest, layout = lay_out(*case)
    np.testing.assert_array_equal(layout.straight.threshold64, forest.threshold[layout.straight.tests.node])
    np.testing.assert_array_equal(layout.straight.threshold32, round_down(layout.straight.threshold64))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_algorithm_over_the_arrays_finds_the_exit_leaves(case: tuple) -> None:
    """QuickScorer's Algorithm 1, run in Python on the layout, against a walk from the root."""
    forest, layout = lay_out(*case)
    bits, ranges = case[4], number_leaves(forest)
    for x in probing_documents(np.random.default_rng(1), forest, 12):
        word = [(1 << bits) - 1] * forest.n_trees
        for block in range(len(layout.block_offsets) - 1):
            for column in range(len(layout.columns)):
                value = float(x[layout.columns.feature[column]])
                if layout.columns.routing[column] == ZERO_MISSING and abs(value) <= ZERO_THRESHOLD:
                    value = np.nan
                for tuples, at in false_tests(layout, block, column, value):
                    tree = layout.block_offsets[block] + tuples.tree[at]
                    word[tree] &= int(tuples.mask[at])
        for tree in range(forest.n_trees):
            leaf = exit_leaf_by_walk(forest, tree, x)
            assert bits - word[tree].bit_length() == ranges.position[leaf]


def false_tests(layout: QuickScorerLayout, block: int, column: int, value: float) -> list[tuple[Tuples, int]]:
    tuples = layout.straight.missing if np.isnan(value) else layout.straight.tests
    found = []
    for at in range(*tuples.offsets[block, column : column + 2]):
        if not np.isnan(value) and value <= layout.straight.threshold64[at]:
            break
        found.append((tuples, at))
    return found


@pytest.mark.parametrize(
    ("n_leaves", "bits"),
    [(0, 8), (8, 8), (9, 16), (16, 16), (17, 32), (32, 32), (33, 64), (64, 64), (65, None), (10_000, None)],
)
def test_mask_bits(n_leaves: int, bits: int | None) -> None:
    assert mask_bits_for(n_leaves) == bits


def test_a_forest_without_trees() -> None:
    _, layout = lay_out(8, "random", 0, 4, 8)
    assert len(layout.straight.tests.node) == 0 and len(layout.columns) == 0
