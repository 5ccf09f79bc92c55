"""The word layout: every test's leaves, cleared word by word, in QuickScorer's order."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from forests import random_forest

from gpuqs.forest import NAN_LEFT, Forest
from gpuqs.layout.qs_gpu import (
    ALIGNMENT,
    WordLayout,
    build_word_tuples,
    count_tuples,
    cut_tree_blocks,
    interleave,
    interleaved_words,
    pack_tuples,
    words_per_tree,
)
from gpuqs.layout.quickscorer import build_quickscorer

SHAPES = ["random", "chain", "complete"]


def ones(n_bits: int) -> int:
    return (1 << n_bits) - 1


def cleared_by_node(forest: Forest, layout: WordLayout, bits: int) -> dict[tuple[int, int, float], int]:
    """By definition: the leaves of each tree that its tests of a column and threshold clear."""
    words = words_per_tree(forest, bits)
    cleared: dict[tuple[int, int, float], int] = defaultdict(int)
    for node in range(forest.n_nodes):
        tree = int(forest.node_tree[node])
        width = bits * int(words[tree])
        first, middle = int(layout.ranges.first[node]), int(layout.ranges.middle[node])
        key = (tree, int(layout.columns.of_node[node]), float(layout.columns.threshold[node]))
        cleared[key] |= ones(width - first) ^ ones(width - middle)
    return cleared


def cleared_by_tuple(forest: Forest, layout: WordLayout, bits: int) -> dict[tuple[int, int, float], int]:
    """The same from the layout; every tuple must clear leaves that no other tuple of its key clears."""
    words = words_per_tree(forest, bits)
    cleared: dict[tuple[int, int, float], int] = defaultdict(int)
    offsets, tests = layout.tests.offsets, layout.tests
    for block, column in np.ndindex(layout.n_blocks, len(layout.columns)):
        base = layout.slot_offsets[layout.block_offsets[block]]
        for i in range(offsets[block, column], offsets[block, column + 1]):
            word = int(tests.slot[i]) + base
            tree = int(np.searchsorted(layout.slot_offsets, word, "right")) - 1
            assert layout.block_offsets[block] <= tree < layout.block_offsets[block + 1]
            zeros = int(tests.mask[i]) ^ ones(bits)
            shifted = zeros << bits * int(words[tree] - 1 - (word - layout.slot_offsets[tree]))
            key = (tree, column, float(layout.threshold64[i]))
            assert zeros != 0 and cleared[key] & shifted == 0
            cleared[key] |= shifted
    return cleared


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bits", [32, 64])
def test_masks_clear_the_left_subtrees(shape: str, bits: int) -> None:
    forest = random_forest(np.random.default_rng(1), n_trees=4, max_leaves=200, shape=shape, n_features=4)
    if shape == "chain":
        forest = replace(forest, left=forest.right, right=forest.left)
    layout = build_word_tuples(forest, cut_tree_blocks(words_per_tree(forest, bits), 3, 1 << 16), bits)
    assert cleared_by_tuple(forest, layout, bits) == cleared_by_node(forest, layout, bits)
    assert 0 < len(layout.tests.node) < count_tuples(forest, layout.ranges, bits)


def test_one_word_a_tree_is_the_papers_layout() -> None:
    """Except that tests of the same tree, column and threshold are merged, and for the order within a threshold."""
    forest = random_forest(np.random.default_rng(2), n_trees=25, max_leaves=64)
    paper = build_quickscorer(forest, 10, 64)
    words = build_word_tuples(forest, paper.block_offsets, 64)
    for ours, theirs, threshold in (
        (words.tests, paper.straight.tests, paper.straight.threshold64),
        (words.missing, paper.straight.missing, np.zeros(len(paper.straight.missing.node))),
    ):
        want: dict[tuple, int] = defaultdict(lambda: ones(64))
        for key in np.ndindex(theirs.offsets[:, :-1].shape):
            for i in range(theirs.offsets[key], theirs.offsets[key[0], key[1] + 1]):
                want[key, float(threshold[i]), int(theirs.tree[i])] &= int(theirs.mask[i])
        got = {}
        for key in np.ndindex(ours.offsets[:, :-1].shape):
            for i in range(ours.offsets[key], ours.offsets[key[0], key[1] + 1]):
                of_test = 0.0 if ours is words.missing else float(words.threshold64[i])
                got[key, of_test, int(ours.slot[i])] = int(ours.mask[i])
        assert got == want and len(got) == len(ours.slot)


def test_neighbouring_tuples_of_a_threshold_lie_in_different_banks() -> None:
    forest = random_forest(np.random.default_rng(7), n_trees=400, max_leaves=3, n_features=1, n_thresholds=3)
    layout = build_word_tuples(forest, np.array([0, 400], np.int32))
    groups = []
    for begin, end in pairwise(layout.tests.offsets[0]):
        slot, threshold = layout.tests.slot[begin:end], layout.threshold64[begin:end]
        groups += [slot[threshold == value] for value in np.unique(threshold)]
    assert max(map(len, groups)) > 64
    for slots in groups:
        bank = slots.astype(int) % 32
        rounds = np.split(bank, np.flatnonzero(np.diff(bank) <= 0) + 1)  # banks ascend in each: none repeats
        assert len(rounds) == np.bincount(bank).max()


@pytest.mark.parametrize("documents", [1, 4])
def test_packed_tuples(documents: int) -> None:
    forest = random_forest(np.random.default_rng(8), n_trees=90, max_leaves=40)
    layout = build_word_tuples(forest, np.array([0, 50, 90], np.int32))
    packed = pack_tuples(layout, documents)
    assert (packed.runs[..., :2] % ALIGNMENT == 0).all()
    taken = np.zeros(len(packed.slot), bool)
    for block, column in np.ndindex(packed.runs.shape[:2]):
        tests, missing, n_missing, _ = packed.runs[block, column]
        n_tests = np.diff(layout.tests.offsets[block])[column]
        for tuples, at, n in ((layout.tests, tests, n_tests), (layout.missing, missing, n_missing)):
            begin, end = tuples.offsets[block, column : column + 2]
            assert n == end - begin and not taken[at : at + n].any()
            taken[at : at + n] = True
            word = tuples.slot[begin:end].astype(int)
            place = packed.slot[at : at + n].astype(int)
            np.testing.assert_array_equal(place, word // 32 * 32 * documents + word % 32)
            np.testing.assert_array_equal(packed.mask[at : at + n], tuples.mask[begin:end])
    places = interleave(np.arange(layout.max_slots), documents)[:, None] + 32 * np.arange(documents)
    assert len(np.unique(places)) == places.size and places.max() < interleaved_words(layout.max_slots, documents)


def test_thresholds_rise_inside_a_column() -> None:
    forest = random_forest(np.random.default_rng(3), n_trees=30, max_leaves=100)
    layout = build_word_tuples(forest, cut_tree_blocks(words_per_tree(forest, 32), 7, 1 << 16))
    for row in layout.tests.offsets:
        for begin, end in pairwise(row):
            for threshold in (layout.threshold64[begin:end], layout.threshold32[begin:end]):
                assert (threshold[:-1] <= threshold[1:]).all()
    assert (layout.threshold32.astype(np.float64) <= layout.threshold64).all()


def test_missing_lists_hold_the_nodes_that_send_missing_right() -> None:
    forest = random_forest(np.random.default_rng(4))
    layout = build_word_tuples(forest, np.array([0, forest.n_trees], np.int32))
    right = np.flatnonzero((forest.routing & NAN_LEFT) == 0)
    want = {(layout.columns.of_node[node], forest.node_tree[node]) for node in right}
    column = np.repeat(np.arange(len(layout.columns)), np.diff(layout.missing.offsets[0]))
    tree = np.searchsorted(layout.slot_offsets, layout.missing.slot, "right") - 1
    assert set(zip(column.tolist(), tree.tolist(), strict=True)) == want


def test_tree_blocks_keep_both_limits() -> None:
    words = np.array([3, 3, 3, 9, 1, 1, 1, 1, 1, 9, 9])
    offsets = cut_tree_blocks(words, 4, 10)
    assert offsets.tolist() == [0, 3, 5, 9, 10, 11]
    assert cut_tree_blocks(words[:0], 4, 10).tolist() == [0]
    with pytest.raises(ValueError, match="9 words does not fit"):
        cut_tree_blocks(words, 4, 8)


def test_too_many_words_a_block_are_refused() -> None:
    forest = random_forest(np.random.default_rng(5), n_trees=65537, max_leaves=1)
    assert build_word_tuples(forest, np.array([0, 65536, 65537], np.int32)).max_slots == 65536
    with pytest.raises(ValueError, match="smaller tree blocks"):
        build_word_tuples(forest, np.array([0, 65537], np.int32))
