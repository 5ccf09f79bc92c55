"""Lossless rank coding: a document's value on a column becomes the number of thresholds below it.

A node that tests the column's i-th distinct threshold is false iff ``rank(x) > i``, so ranks decide
every test as the values themselves do. A column of n thresholds needs ``bit_length(n)`` bits; a
missing value ranks above all thresholds (all bits set), and columns where some test sends missing
values left carry one more bit that marks them.

The search for a rank compares with one threshold per bit, from the highest bit down. The l answers so far index level
l's table of thresholds, with the first answer in bit 0, so that one instruction adds an answer. The answers of level l
are bit ``n_bits - 1 - l`` of the ranks. If levels have many thresholds, it is cheaper to answer three levels at once,
by looking up one row with their seven thresholds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from math import log

import numpy as np
import numpy.typing as npt

from gpuqs.cpu_fallback.making import distinct, flagged
from gpuqs.forest import NAN_LEFT, Forest
from gpuqs.kept import once_each
from gpuqs.layout.columns import Columns, find_columns, round_down
from gpuqs.layout.ready import ARRAYS, kept_ranks

#: Upper limit of thresholds in a column, so that ranks fit 16 bits.
MAX_THRESHOLDS = (1 << 16) - 1
#: Entries of a level's table are padded to whole 512-bit registers.
REGISTER_FLOATS = 16
#: Upper limit of levels in a column that have tables of their own. Kernels search as many levels by tables as is best
#: for their instruction set.
MAX_LEVELS = 8
#: Columns of up to this many levels have only tables, no rows.
NO_ROWS = 6
#: Up to `_COUNTED_EACH` nodes, distinct tests are counted exactly; with more, estimated with `_HASHES` hash values.
_COUNTED_EACH = 1 << 15
_HASHES = 1 << 22


@dataclass(frozen=True)
class RankTables:
    """How to rank documents; C columns, P distinct (column, threshold) pairs, N nodes.

    Parameters
    ----------
    columns : Columns
    offsets : int64 [C + 1]
        Column c's distinct thresholds are ``threshold[offsets[c]:offsets[c + 1]]``, ascending.
    threshold : float64 [P]
    n_bits : uint8 [C]
        Bits of the column's ranks, 1 to 16.
    marks_missing : uint8 [C]
        1 where ranks carry the bit that marks missing values.
    level_offsets : int64 [C]
        Where the column's search tables start in `levels`.
    levels : float32 [...]
        Level l of a column: ``2**l`` thresholds, rounded down, padded to `REGISTER_FLOATS`; at most `MAX_LEVELS`
        levels. Columns of more than `NO_ROWS` bits then have rows of eight for three levels each, down to the last:
        seven ascending thresholds, and infinity. The answers so far index rows as they index level tables.
    of_node : int32 [N]
        Position of each node's threshold among its column's.
    """

    columns: Columns
    offsets: npt.NDArray[np.int64]
    threshold: npt.NDArray[np.float64]
    n_bits: npt.NDArray[np.uint8]
    marks_missing: npt.NDArray[np.uint8]
    level_offsets: npt.NDArray[np.int64]
    levels: npt.NDArray[np.float32]
    of_node: npt.NDArray[np.int32]

    def part(self, nodes: slice) -> RankTables:
        """The same tables for a range of the forest's nodes: documents have the same ranks."""
        columns = replace(
            self.columns, of_node=self.columns.of_node[nodes], threshold=self.columns.threshold[nodes]
        )
        return replace(self, columns=columns, of_node=self.of_node[nodes])

    @property
    def plane_offsets(self) -> npt.NDArray[np.int32]:
        """First bit plane of each column, int32 [C + 1]: its rank's bits from the lowest, then its mark."""
        planes = self.n_bits.astype(np.int32) + self.marks_missing
        return np.concatenate([[0], np.cumsum(planes)]).astype(np.int32)


def max_thresholds(columns: Columns) -> int:
    """Upper bound on a column's distinct thresholds; exact only for columns with more than `MAX_THRESHOLDS` nodes."""
    n_nodes = columns.n_nodes
    crowded = np.flatnonzero(n_nodes > MAX_THRESHOLDS)
    distinct = [len(np.unique(columns.threshold[columns.of_node == column])) for column in crowded]
    return max([*distinct, *n_nodes[n_nodes <= MAX_THRESHOLDS].tolist()], default=0)


@once_each
def count_tests(forest: Forest) -> int:
    """Distinct tests, of numbers or categories, of the forest's nodes; if there are many nodes, within some percent."""
    columns = find_columns(forest)
    if forest.n_nodes <= _COUNTED_EACH:
        return len(distinct(columns.threshold, columns.of_node)[0])
    bits = columns.threshold.view(np.uint64) ^ columns.of_node.astype(np.uint64) * np.uint64(0xBF58476D1CE4E5B9)
    met = np.zeros(_HASHES, bool)
    hashes = (bits ^ bits >> np.uint64(32)) * np.uint64(0x94D049BB133111EB)
    met[hashes >> np.uint64(64 - _HASHES.bit_length() + 1)] = True
    # Tests may share a hash: this many are expected to leave as many hashes unused (linear counting).
    return round(_HASHES * log(_HASHES / max(_HASHES - np.count_nonzero(met), 1)))


def build_ranks(forest: Forest) -> RankTables:
    """Rank tables of a forest, at most `MAX_THRESHOLDS` thresholds a column."""
    columns = find_columns(forest)
    thresholds, offsets, of_node = kept_ranks(forest, columns) or _sorted(columns)
    n_bits = np.array([int(n).bit_length() for n in np.diff(offsets)], np.uint8)
    if n_bits.max(initial=0) > 16:
        raise ValueError(f"a column has more than {MAX_THRESHOLDS} thresholds")
    marks_missing = flagged(columns.of_node, forest.routing, NAN_LEFT, len(columns)).astype(np.uint8)
    levels, level_offsets = search_tables(thresholds, offsets, n_bits)
    return RankTables(
        columns=columns,
        offsets=offsets,
        threshold=thresholds,
        n_bits=n_bits,
        marks_missing=marks_missing,
        level_offsets=level_offsets,
        levels=levels,
        of_node=of_node,
    )


def _sorted(
    columns: Columns,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """``threshold``, ``offsets`` and ``of_node`` of `RankTables`."""
    first, place = distinct(columns.threshold, columns.of_node)
    offsets = np.searchsorted(columns.of_node[first], np.arange(len(columns) + 1)).astype(np.int64)
    return columns.threshold[first], offsets, place - offsets.astype(np.int32)[columns.of_node]


def to_keep(forest: Forest) -> dict[str, np.ndarray]:
    """What a forest's file may keep (`gpuqs.layout.ready`); nothing if its documents cannot be ranked."""
    if max_thresholds(find_columns(forest)) > MAX_THRESHOLDS:
        return {}
    ranks = build_ranks(forest)
    arrays: tuple[np.ndarray, ...] = (ranks.threshold, ranks.offsets, ranks.of_node)
    return {name: array.astype(ARRAYS[name]) for name, array in zip(ARRAYS, arrays, strict=True)}


def search_tables(
    threshold: npt.NDArray[np.float64], offsets: npt.NDArray[np.int64], n_bits: npt.NDArray[np.uint8]
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Each column's search tables, level by level, then rows for three levels each; and where each column's start."""
    return _tables(round_down(threshold), offsets, n_bits, _order_of_tables)


def _tables(
    threshold: np.ndarray,
    offsets: npt.NDArray[np.int64],
    n_bits: npt.NDArray[np.uint8],
    order: Callable[[int], npt.NDArray[np.int64]],
) -> tuple[np.ndarray, npt.NDArray[np.int64]]:
    """Each column's thresholds in the order of its bits, and where each column's start.

    Consecutive columns with equally many bits are made together: there may be thousands of category sets.
    """
    ends = (np.flatnonzero(np.diff(n_bits, append=0)) + 1).tolist()  # no column has 0 bits
    tables, sizes = [np.zeros(0, threshold.dtype)], np.zeros(len(n_bits), np.int64)
    first = 0
    for end in ends:
        bits = int(n_bits[first])
        padded = np.full((end - first, (1 << bits) + 1), np.inf, threshold.dtype)
        n = np.diff(offsets[first : end + 1])
        padded[:, :-1][np.arange(1 << bits) < n[:, None]] = threshold[offsets[first] : offsets[end]]
        padded[:, -1] = 0.0  # for entries that are never read
        tables.append(np.take(padded, order(bits), axis=1).ravel())
        sizes[first:end] = len(order(bits))
        first = end
    return np.concatenate(tables), np.cumsum(sizes) - sizes


@cache
def _order_of_tables(n_bits: int) -> npt.NDArray[np.int64]:
    """Index of each table entry's threshold; after a column's thresholds come infinities, and an unread 0."""
    threshold = np.arange(1 << n_bits)
    tables = []
    for level in range(min(n_bits, MAX_LEVELS)):
        table = np.full(max(1 << level, REGISTER_FLOATS), 1 << n_bits)
        table[: 1 << level] = _asked(level, n_bits)
        tables.append(table)
    for level in range(3 + n_bits % 3, n_bits, 3) if n_bits > NO_ROWS else ():
        rows = threshold[(1 << (n_bits - level - 3)) - 1 :: 1 << (n_bits - level - 3)].reshape(-1, 8)
        table = np.full(rows.shape, (1 << n_bits) - 1)
        table[_answers(level), :7] = rows[:, :7]
        tables.append(table.ravel())
    return np.concatenate(tables)


def level_tables(
    ranks: RankTables, dtype: npt.DTypeLike
) -> tuple[np.ndarray, npt.NDArray[np.int64]]:
    """The tables of all levels of all columns; each column has ``2**n_bits - 1`` entries.

    Level l of a column begins at entry ``2**l - 1``, and is indexed by the answers so far as `RankTables.levels` is.
    Infinities follow a column's thresholds.

    Parameters
    ----------
    ranks : RankTables
    dtype : {float32, float64}
        Type of the entries; float32 are rounded down.

    Returns
    -------
    array of ``dtype``, and int64 [C + 1]
        The tables, and where each column's begins.
    """
    threshold = round_down(ranks.threshold) if np.dtype(dtype) == np.float32 else ranks.threshold
    tables, starts = _tables(threshold, ranks.offsets, ranks.n_bits, _order_of_levels)
    return tables, np.append(starts, len(tables))


@cache
def _order_of_levels(n_bits: int) -> npt.NDArray[np.int64]:
    """Index of the threshold of each entry of all levels."""
    return np.concatenate([_asked(level, n_bits) for level in range(n_bits)])


def _asked(level: int, n_bits: int) -> npt.NDArray[np.int64]:
    """Indices of a level's thresholds, by the answers so far."""
    threshold = np.arange(1 << n_bits)
    asked = np.empty(1 << level, np.int64)
    asked[_answers(level)] = threshold[(1 << (n_bits - 1 - level)) - 1 :: 1 << (n_bits - level)]
    return asked


@cache
def _answers(level: int) -> npt.NDArray[np.int64]:
    """The bits of each path to a level in the order in which they were answered."""
    path = np.arange(1 << level)
    answers = np.zeros_like(path)
    for bit in range(level):
        answers |= (path >> bit & 1) << (level - 1 - bit)
    return answers
