"""The word layout: every test's leaves, cleared word by word, in QuickScorer's order."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from forests import random_forest

from gpuqs.forest import NAN_LEFT
from gpuqs.layout.quickscorer import build_quickscorer
from gpuqs.layout.qs_gpu import build_word_tuples, count_tuples, cut_tree_blocks, words_per_tree

SHAPES = ["random", "chain", "complete"]


def ones(n_bits: int) -> int:
    return (1 << n_bits) - 1


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bits", [32, 64])
def test_masks_clear_the_left_subtree(shape: str, bits: int) -> None:
    forest = random_forest(np.random.default_rng(1), n_trees=4, max_leaves=200, shape=shape)
    if shape == "chain":
        forest = replace(forest, left=forest.right, right=forest.left)
    words = words_per_tree(forest, bits)
    layout = build_word_tuples(forest, cut_tree_blocks(words, 3, 1 << 16), bits)
    assert len(layout.tests.node) == count_tuples(forest, layout.ranges, bits)
    cleared = dict.fromkeys(range(forest.n_nodes), 0)
    block = np.repeat(np.arange(layout.n_blocks), np.diff(layout.tests.offsets[:, [0, -1]], axis=1)[:, 0])
    for node, slot, mask, b in zip(
        layout.tests.node, layout.tests.slot, layout.tests.mask, block, strict=True
    ):
        tree = forest.node_tree[node]
        base = layout.slot_offsets[layout.block_offsets[b]]
        word = int(slot) + base - layout.slot_offsets[tree]
        assert 0 <= word < words[tree]
        zeros = int(mask) ^ ones(bits)
        assert zeros != 0
        shifted = zeros << bits * int(words[tree] - 1 - word)
        assert cleared[node] & shifted == 0
        cleared[node] |= shifted
    for node in range(forest.n_nodes):
        width = bits * int(words[forest.node_tree[node]])
        first, middle = int(layout.ranges.first[node]), int(layout.ranges.middle[node])
        assert cleared[node] == ones(width - first) ^ ones(width - middle)


def test_one_word_a_tree_is_the_papers_layout() -> None:
    forest = random_forest(np.random.default_rng(2), n_trees=25, max_leaves=64)
    paper = build_quickscorer(forest, 10, 64)
    words = build_word_tuples(forest, paper.block_offsets, 64)
    for ours, theirs in ((words.tests, paper.tests), (words.missing, paper.missing)):
        np.testing.assert_array_equal(ours.offsets, theirs.offsets)
        np.testing.assert_array_equal(ours.node, theirs.node)
        np.testing.assert_array_equal(ours.slot, theirs.tree)
        np.testing.assert_array_equal(ours.mask, theirs.mask)
    np.testing.assert_array_equal(words.threshold64, paper.threshold64)
    np.testing.assert_array_equal(words.threshold32, paper.threshold32)


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
    np.testing.assert_array_equal(np.unique(layout.missing.node), right)


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
