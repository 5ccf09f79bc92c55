"""QuickScorer's layout in words: one (slot, mask) tuple for each word of leaves that a test touches.

A tree's bitvector of leaves is cut into words of 32 (or 64) bits; leaf 0 is the most significant
bit of the first. A false test clears the leaves of its left subtree: usually in one word, so a
tuple a word costs little more than a tuple a node, any number of leaves fits, and every AND is a
32-bit one, which GPUs do in one instruction. Words of as many bits as the largest tree has leaves
give the tuples of paper 000, one a node.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuqs.forest import Forest
from gpuqs.layout.columns import Columns, find_columns, round_down
from gpuqs.layout.leaves import LeafRanges, number_leaves
from gpuqs.layout.quickscorer import SortedTests, nan_right, sort_tests

WORD_DTYPES = {32: np.uint32, 64: np.uint64}

#: Slots are uint16: more words of one tree block than this fit no GPU's shared memory.
MAX_SLOTS = 1 << 16


@dataclass(frozen=True)
class WordTuples:
    """Tests by (tree block, column), one entry for each word they touch; M entries, B blocks, C columns.

    Parameters
    ----------
    offsets : int64 [B, C + 1]
        Column c of block b is ``offsets[b, c]:offsets[b, c + 1]``.
    node : int64 [M]
        The forest's node that each entry belongs to.
    slot : uint16 [M]
        The word, counted from the first word of the block's first tree.
    mask : uint32 or uint64 [M]
        Zeros at the leaves that a false test rules out.
    """

    offsets: npt.NDArray[np.int64]
    node: npt.NDArray[np.int64]
    slot: npt.NDArray[np.uint16]
    mask: np.ndarray


@dataclass(frozen=True)
class WordLayout:
    """A forest as GPU-QuickScorer reads it.

    Parameters
    ----------
    columns : Columns
    ranges : LeafRanges
    block_offsets : int32 [B + 1]
        First tree of each tree block.
    slot_offsets : int32 [T + 1]
        First word of each tree, counted over the whole forest.
    tests : WordTuples
        Every test, thresholds ascending inside a column.
    missing : WordTuples
        The tests that send a missing value right.
    threshold64, threshold32 : float64 [M], float32 [M]
        Thresholds of the entries of `tests`, as they are and rounded down.
    """

    columns: Columns
    ranges: LeafRanges
    block_offsets: npt.NDArray[np.int32]
    slot_offsets: npt.NDArray[np.int32]
    tests: WordTuples
    missing: WordTuples
    threshold64: npt.NDArray[np.float64]
    threshold32: npt.NDArray[np.float32]

    @property
    def n_blocks(self) -> int:
        return len(self.block_offsets) - 1

    @property
    def max_slots(self) -> int:
        """Words of the largest tree block."""
        return int(np.diff(self.slot_offsets[self.block_offsets]).max(initial=0))


def words_per_tree(forest: Forest, word_bits: int) -> npt.NDArray[np.int64]:
    """Words that each tree's leaves take, int64 [T]."""
    return -(-np.diff(forest.leaf_offsets) // word_bits)


def count_tuples(forest: Forest, ranges: LeafRanges, word_bits: int) -> int:
    """Entries that the layout would have; long left chains take many a node."""
    return int(_words_touched(ranges, slice(None), word_bits).sum())


def cut_tree_blocks(words: npt.NDArray[np.int64], max_trees: int, max_slots: int) -> npt.NDArray[np.int32]:
    """Cut trees into blocks of at most ``max_trees`` trees and ``max_slots`` words.

    Parameters
    ----------
    words : int64 [T]
        Words of each tree; none above ``max_slots``.

    Returns
    -------
    int32 [B + 1]
        First tree of each block, and T.
    """
    if words.max(initial=0) > max_slots:
        raise ValueError(f"a tree of {int(words.max())} words does not fit a block of {max_slots}")
    ends = np.concatenate([[0], np.cumsum(words)])
    offsets = [0]
    while offsets[-1] < len(words):
        first = offsets[-1]
        last = int(np.searchsorted(ends, ends[first] + max_slots, "right")) - 1
        offsets.append(min(last, first + max_trees))
    return np.array(offsets, np.int32)


def build_word_tuples(
    forest: Forest, block_offsets: npt.NDArray[np.int32], word_bits: int = 32
) -> WordLayout:
    """Lay a forest out in words.

    Parameters
    ----------
    forest : Forest
    block_offsets : int32 [B + 1]
        First tree of each tree block, and the number of trees; at most `MAX_SLOTS` words a block.
    word_bits : {32, 64}
    """
    columns, ranges = find_columns(forest), number_leaves(forest)
    slot_offsets = np.concatenate([[0], np.cumsum(words_per_tree(forest, word_bits))]).astype(np.int32)
    if np.diff(slot_offsets[block_offsets]).max(initial=0) > MAX_SLOTS:
        raise ValueError(f"a tree block holds more than {MAX_SLOTS} words; use smaller tree blocks")

    def tuples(nodes: np.ndarray) -> WordTuples:
        tests = sort_tests(forest, columns, block_offsets, nodes)
        return _split_words(tests, ranges, block_offsets, slot_offsets, word_bits)

    tests = tuples(np.arange(forest.n_nodes))
    threshold = np.ascontiguousarray(columns.threshold[tests.node])
    return WordLayout(
        columns=columns,
        ranges=ranges,
        block_offsets=block_offsets,
        slot_offsets=slot_offsets,
        tests=tests,
        missing=tuples(nan_right(forest)),
        threshold64=threshold,
        threshold32=round_down(threshold),
    )


def _words_touched(ranges: LeafRanges, nodes: np.ndarray | slice, word_bits: int) -> npt.NDArray[np.int64]:
    last = (ranges.middle[nodes].astype(np.int64) - 1) // word_bits
    return last - ranges.first[nodes] // word_bits + 1


def _split_words(
    tests: SortedTests,
    ranges: LeafRanges,
    block_offsets: np.ndarray,
    slot_offsets: np.ndarray,
    word_bits: int,
) -> WordTuples:
    """One entry for each word of leaves ``[first, middle)`` of every test, in the tests' order."""
    touched = _words_touched(ranges, tests.node, word_bits)
    starts = np.concatenate([[0], np.cumsum(touched)])
    test = np.repeat(np.arange(len(touched)), touched)
    node = tests.node[test]
    word = ranges.first[node] // word_bits + np.arange(starts[-1]) - starts[test]
    low = np.maximum(ranges.first[node] - word * word_bits, 0).astype(np.uint64)
    high = np.minimum(ranges.middle[node] - word * word_bits, word_bits).astype(np.uint64)
    block = np.repeat(np.arange(len(tests.offsets)), np.diff(tests.offsets[:, [0, -1]], axis=1)[:, 0])[test]
    first_tree = block_offsets[block]
    slot = slot_offsets[first_tree + tests.tree[test]] - slot_offsets[first_tree] + word
    return WordTuples(
        offsets=starts[tests.offsets],
        node=node,
        slot=slot.astype(np.uint16),
        mask=_clear_bits(low, high, word_bits),
    )


def _clear_bits(low: np.ndarray, high: np.ndarray, bits: int) -> np.ndarray:
    """Ones except at positions ``[low, high)``, counted from the most significant bit."""
    width, full = np.uint64(bits), np.uint64((1 << bits) - 1)
    from_low = full >> low
    beyond = np.where(high < width, full >> np.minimum(high, width - np.uint64(1)), np.uint64(0))
    return (full ^ from_low ^ beyond).astype(WORD_DTYPES[bits])
