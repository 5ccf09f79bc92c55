"""GPU-QuickScorer's layout in words: a (slot, mask) tuple for each word of leaves that tests of one threshold clear.

A tree's bitvector of leaves is cut into words of 32 (or 64) bits; leaf 0 is the most significant
bit of the first. A false test clears the leaves of its left subtree: usually in one word, so a
tuple per word costs little more than a tuple per node, any number of leaves fits, and every AND is a
32-bit one, which GPUs do in one instruction. Words with as many bits as the largest tree has leaves
give the tuples of paper 000, one per node.

Two things improve on the paper. Tests of one column and one threshold are false together, so those
that clear the same word are one tuple. Their order is free, so it is chosen so that neighbouring
lanes of a warp use different banks of shared memory.
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

#: Upper limit of words in a tree block: slots are uint16, and no GPU's shared memory holds more words.
MAX_SLOTS = 1 << 16

#: Lanes of a warp, and banks of shared memory.
WARP = 32
#: Tuples whose slots fill a sector of 32 bytes; no column begins inside a sector.
ALIGNMENT = 16


@dataclass(frozen=True)
class WordTuples:
    """Tests by (tree block, column), one entry for each word and threshold; M entries, B blocks, C columns.

    Parameters
    ----------
    offsets : int64 [B, C + 1]
        Column c of block b is ``offsets[b, c]:offsets[b, c + 1]``.
    node : int64 [M]
        One of the nodes that each entry stands for; all of them have the same column and threshold.
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


@dataclass(frozen=True)
class PackedTuples:
    """Tuples as the kernels read them: a column's tests, then its missing list, each from a multiple of `ALIGNMENT`.

    Parameters
    ----------
    runs : int32 [B, C, 4]
        First tuple of the tests, first of the missing list, length of the missing list, 0.
    slot : uint16 [...]
        Where the word lies; see `interleave`.
    mask : uint32 or uint64 [...]
    """

    runs: npt.NDArray[np.int32]
    slot: npt.NDArray[np.uint16]
    mask: np.ndarray


def words_per_tree(forest: Forest, word_bits: int) -> npt.NDArray[np.int64]:
    """Words that each tree's leaves take, int64 [T]."""
    return -(-np.diff(forest.leaf_offsets) // word_bits)


def count_tuples(forest: Forest, ranges: LeafRanges, word_bits: int) -> int:
    """Upper limit of the entries that the layout would have; long left chains have many per node."""
    return int(_words_touched(ranges, slice(None), word_bits).sum())


def cut_tree_blocks(words: npt.NDArray[np.int64], max_trees: int, max_slots: int) -> npt.NDArray[np.int32]:
    """Cut trees into blocks of at most ``max_trees`` trees and ``max_slots`` words.

    Parameters
    ----------
    words : int64 [T]
        Words of each tree, at most ``max_slots``.

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

    def tuples(nodes: np.ndarray, threshold: np.ndarray) -> WordTuples:
        tests = sort_tests(forest, columns, block_offsets, nodes)
        entries, mask = _split_words(tests, threshold, ranges, block_offsets, slot_offsets, word_bits)
        return _spread_over_banks(*_merge(entries, mask), tests.offsets)

    tests = tuples(np.arange(forest.n_nodes), columns.threshold)
    threshold = np.ascontiguousarray(columns.threshold[tests.node])
    return WordLayout(
        columns=columns,
        ranges=ranges,
        block_offsets=block_offsets,
        slot_offsets=slot_offsets,
        tests=tests,
        missing=tuples(nan_right(forest), np.zeros(forest.n_nodes)),
        threshold64=threshold,
        threshold32=round_down(threshold),
    )


def _words_touched(ranges: LeafRanges, nodes: np.ndarray | slice, word_bits: int) -> npt.NDArray[np.int64]:
    last = (ranges.middle[nodes].astype(np.int64) - 1) // word_bits
    return last - ranges.first[nodes] // word_bits + 1


@dataclass(frozen=True)
class _Entries:
    """Entries of `WordTuples` with their run, the number of (tree block, column), and group, that of the threshold."""

    run: npt.NDArray[np.int64]
    group: npt.NDArray[np.int64]
    node: npt.NDArray[np.int64]
    slot: npt.NDArray[np.int64]

    def taken(self, which: np.ndarray) -> _Entries:
        return _Entries(self.run[which], self.group[which], self.node[which], self.slot[which])


def _split_words(
    tests: SortedTests,
    threshold: np.ndarray,
    ranges: LeafRanges,
    block_offsets: np.ndarray,
    slot_offsets: np.ndarray,
    word_bits: int,
) -> tuple[_Entries, np.ndarray]:
    """One entry for each word of leaves ``[first, middle)`` of every test, in the tests' order; and their masks."""
    touched = _words_touched(ranges, tests.node, word_bits)
    starts = np.concatenate([[0], np.cumsum(touched)])
    test = np.repeat(np.arange(len(touched)), touched)
    node = tests.node[test]
    word = ranges.first[node] // word_bits + np.arange(starts[-1]) - starts[test]
    low = np.maximum(ranges.first[node] - word * word_bits, 0).astype(np.uint64)
    high = np.minimum(ranges.middle[node] - word * word_bits, word_bits).astype(np.uint64)
    lengths = np.diff(tests.offsets, axis=1)
    block = np.repeat(np.arange(len(tests.offsets)), lengths.sum(axis=1))[test]
    run = np.repeat(np.arange(lengths.size), lengths.ravel())
    first_tree = block_offsets[block]
    slot = slot_offsets[first_tree + tests.tree[test]] - slot_offsets[first_tree] + word
    group = _count_changes(run, threshold[tests.node])
    return _Entries(run[test], group[test], node, slot), _clear_bits(low, high, word_bits)


def _count_changes(*keys: np.ndarray) -> npt.NDArray[np.int64]:
    """For each entry: how many entries up to and including it differ in some key from the entry before them."""
    differs = np.zeros(len(keys[0]), bool)
    for key in keys:
        differs[1:] |= key[1:] != key[:-1]
    return np.cumsum(differs)


def _merge(entries: _Entries, mask: np.ndarray) -> tuple[_Entries, np.ndarray]:
    """Merge the entries of one group and one word; order them by group and word."""
    order = np.lexsort((entries.slot, entries.group))
    entries, mask = entries.taken(order), mask[order]
    firsts = np.flatnonzero(np.diff(_count_changes(entries.group, entries.slot), prepend=-1))
    return entries.taken(firsts), np.bitwise_and.reduceat(mask, firsts) if len(firsts) else mask


def _spread_over_banks(entries: _Entries, mask: np.ndarray, offsets: np.ndarray) -> WordTuples:
    """Order every group in rounds: a word of each bank that it has, then second words of banks, and so on."""
    bank = entries.slot % WARP
    order = np.lexsort((bank, entries.group))
    of_bank = _count_changes(entries.group[order], bank[order])
    nth = np.empty(len(order), np.int64)
    nth[order] = np.arange(len(order)) - np.searchsorted(of_bank, of_bank)
    order = np.lexsort((bank, nth, entries.group))
    entries, mask = entries.taken(order), mask[order]
    n_blocks, n_columns = offsets.shape[0], offsets.shape[1] - 1
    starts = np.searchsorted(entries.run, np.arange(n_blocks * n_columns + 1))
    return WordTuples(
        offsets=starts[np.arange(n_blocks)[:, None] * n_columns + np.arange(n_columns + 1)],
        node=entries.node,
        slot=entries.slot.astype(np.uint16),
        mask=mask,
    )


def interleave(slot: np.ndarray, documents: int) -> np.ndarray:
    """Where a word of the first of ``documents`` documents lies; the others' follow `WARP` words apart."""
    places: np.ndarray = slot // WARP * (WARP * documents) + slot % WARP
    return places


def interleaved_words(n_slots: int, documents: int) -> int:
    """Words that the leaves of ``documents`` documents take."""
    return -(-n_slots // WARP) * WARP * documents


def pack_tuples(layout: WordLayout, documents: int) -> PackedTuples:
    """A layout's tuples for thread blocks with ``documents`` documents' leaves in their shared memory."""
    both = (layout.tests, layout.missing)
    counts = np.stack([np.diff(tuples.offsets, axis=1) for tuples in both], axis=-1)
    room = -(-counts // ALIGNMENT) * ALIGNMENT
    begins = np.cumsum(room).reshape(counts.shape) - room
    total = int(room.sum())
    if total >= 1 << 31:
        raise OverflowError(f"{total:,} tuples and what lies between them are more than 32-bit indices count")
    slot, mask = np.zeros(total, np.uint16), np.zeros(total, layout.tests.mask.dtype)
    for kind, tuples in enumerate(both):
        shift = begins[..., kind] - tuples.offsets[:, :-1]
        at = np.arange(len(tuples.slot)) + np.repeat(shift.ravel(), counts[..., kind].ravel())
        slot[at] = interleave(tuples.slot.astype(np.int64), documents)
        mask[at] = tuples.mask
    runs = np.stack([begins[..., 0], begins[..., 1], counts[..., 1], np.zeros_like(begins[..., 0])], axis=-1)
    return PackedTuples(runs.astype(np.int32), slot, mask)


def _clear_bits(low: np.ndarray, high: np.ndarray, bits: int) -> np.ndarray:
    """Ones except at positions ``[low, high)``, counted from the most significant bit."""
    width, full = np.uint64(bits), np.uint64((1 << bits) - 1)
    from_low = full >> low
    beyond = np.where(high < width, full >> np.minimum(high, width - np.uint64(1)), np.uint64(0))
    words: np.ndarray = full ^ from_low ^ beyond
    return words.astype(WORD_DTYPES[bits])
