"""Category sets side by side: a row for each code of a feature, with a bit for each set: does the code go right?

The row of a document's code holds its ranks on all columns of the feature's sets, one bit each. The rows of 64
documents, transposed, are 64 bits of each column's plane. Codes that no set holds share one row.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from gpuqs.forest import ALL_ROUTING, CATEGORICAL, NEGATIVE_FRACTION_IS_ZERO, SET_RIGHT, WHOLE_CODES

#: The C++ `CategoryTable`. Rows: those of codes that some set holds, then "no code" and "missing".
CATEGORY_TABLE = np.dtype(
    [("feature", "i4"), ("routing", "i4"), ("first_column", "i4"), ("n_columns", "i4"), ("n_codes", "i4"),
     ("n_rows", "i4"), ("codes", "i8"), ("rows", "i8")]
)  # fmt: skip
#: Most bytes of a forest's tables: so many, or so many times what the sets themselves take.
MAX_BYTES, TIMES_SETS = 16 << 20, 4
#: Bits of a routing that say which values are codes.
READING: Final = NEGATIVE_FRACTION_IS_ZERO | WHOLE_CODES
#: Bits of sets that are unpacked at a time, a byte each.
_AT_ONCE: Final = 1 << 24


@dataclass(frozen=True)
class CategoryTables:
    """The tables of a forest's categorical columns.

    Parameters
    ----------
    n_bytes : int
        What the tables take. There are none where that is too much: each set is looked up by itself.
    tables : CATEGORY_TABLE [features x ways in which values are read as codes]
        `codes` and `rows` say where each table's begin below. Its columns follow each other.
    row_of_code : int32 [...]
        The row of each code.
    rows : uint64 [...]
        A table's columns, 64 a word, from the lowest bit of the first.
    """

    n_bytes: int
    tables: np.ndarray
    row_of_code: npt.NDArray[np.int32]
    rows: npt.NDArray[np.uint64]


def build_category_tables(
    feature: npt.NDArray[np.int32],
    routing: npt.NDArray[np.uint8],
    set_offsets: npt.NDArray[np.int64],
    set_words: npt.NDArray[np.uint32],
) -> CategoryTables:
    """Tables of all categorical columns, given as `gpuqs.layout.columns.Columns` holds them."""
    groups, most = _groups(feature, routing), max(MAX_BYTES, TIMES_SETS * set_words.nbytes)
    n_bytes = sum(4 * 32 * int(np.diff(set_offsets[a : b + 1]).max()) for a, b in groups)
    held = []
    for a, b in groups if n_bytes <= most else ():
        held.append(_codes_held(set_words[set_offsets[a] : set_offsets[b]], set_offsets[a : b + 1] - set_offsets[a]))
        n_bytes += 8 * (int(held[-1].sum()) + 2) * -(-(b - a) // 64)
    if n_bytes > most:
        groups, held = [], []
    tables = np.zeros(len(groups), CATEGORY_TABLE)
    codes, rows = [np.zeros(0, np.int32)], [np.zeros(0, np.uint64)]
    for table, (a, b), of_sets in zip(tables, groups, held, strict=True):
        n_rows = int(of_sets.sum()) + 2
        table["feature"], table["routing"] = feature[a], routing[a] & READING
        table["first_column"], table["n_columns"] = a, b - a
        table["n_codes"], table["n_rows"] = len(of_sets), n_rows
        table["codes"], table["rows"] = sum(map(len, codes)), sum(map(len, rows))
        row_of_code = np.where(of_sets, np.cumsum(of_sets) - 1, n_rows - 2).astype(np.int32)
        codes.append(row_of_code)
        rows.append(_rows(row_of_code, n_rows, routing[a:b], set_offsets[a : b + 1], set_words))
    return CategoryTables(n_bytes, tables, np.concatenate(codes), np.concatenate(rows))


def _groups(feature: npt.NDArray[np.int32], routing: npt.NDArray[np.uint8]) -> list[tuple[int, int]]:
    """Where the categorical columns of each feature begin and end that read its values alike."""
    first = int(np.count_nonzero((routing & CATEGORICAL) == 0))  # they come last
    key = feature[first:].astype(np.int64) * (ALL_ROUTING + 1) + (routing[first:] & READING)
    bounds = [*np.flatnonzero(np.diff(key, prepend=-1)), len(key)]
    return [(first + int(a), first + int(b)) for a, b in pairwise(bounds)]


def _codes_held(words: npt.NDArray[np.uint32], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which codes are in one of these sets; as many as the longest has bits."""
    held = np.zeros(int(np.diff(offsets).max()), np.uint32)
    some = np.flatnonzero(words)
    place = some - offsets[np.searchsorted(offsets, some, side="right") - 1]
    order = np.argsort(place, kind="stable")
    starts = np.flatnonzero(np.diff(place[order], prepend=-1))
    if len(starts):
        held[place[order][starts]] = np.bitwise_or.reduceat(words[some[order]], starts)
    return np.unpackbits(held.view(np.uint8), bitorder="little").astype(bool)


def _rows(
    row_of_code: npt.NDArray[np.int32],
    n_rows: int,
    routing: npt.NDArray[np.uint8],
    offsets: npt.NDArray[np.int64],
    set_words: npt.NDArray[np.uint32],
) -> npt.NDArray[np.uint64]:
    """The rows of a table, uint64 [n_rows * words of a row]."""
    n_columns = len(routing)
    packed = np.zeros((n_rows, -(-n_columns // 64)), np.uint64)
    step = max(_AT_ONCE // n_rows // 64, 1) * 64
    for first in range(0, n_columns, step):
        last = min(first + step, n_columns)
        begin, end = offsets[first], offsets[last]
        some = np.flatnonzero(set_words[begin:end])
        bits = np.unpackbits(set_words[begin:end][some].view(np.uint8), bitorder="little").reshape(-1, 32)
        at, bit = np.nonzero(bits)
        place = some[at] + begin
        column = np.searchsorted(offsets, place, side="right") - 1
        goes_right = np.zeros((n_rows, -(-(last - first) // 64) * 64), bool)
        goes_right[row_of_code[32 * (place - offsets[column]) + bit], column - first] = True
        goes_right[:, : last - first] ^= (routing[first:last] & SET_RIGHT) == 0
        goes_right[n_rows - 1] = True  # a missing value ranks above all thresholds
        packed[:, first // 64 : -(-last // 64)] = np.packbits(goes_right, axis=1, bitorder="little").view(np.uint64)
    return packed.ravel()
