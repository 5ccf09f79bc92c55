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

from gpuqs.cpu_fallback.making import mark_rows, unite_sets
from gpuqs.forest import CATEGORICAL, NEGATIVE_FRACTION_IS_ZERO, SET_RIGHT, WHOLE_CODES
from gpuqs.forest_checks import ALL_ROUTING

#: The C++ `CategoryTable`. Rows: those of codes that some set holds, then "no code" and "missing".
CATEGORY_TABLE = np.dtype(
    [("feature", "i4"), ("routing", "i4"), ("first_column", "i4"), ("n_columns", "i4"), ("n_codes", "i4"),
     ("n_rows", "i4"), ("codes", "i8"), ("rows", "i8")]
)  # fmt: skip
#: Upper limit of the bytes of a forest's tables: `MAX_BYTES`, or `TIMES_SETS` times the sets' bytes if that is more.
MAX_BYTES, TIMES_SETS = 16 << 20, 4
#: Bits of a routing that say which values are codes.
READING: Final = NEGATIVE_FRACTION_IS_ZERO | WHOLE_CODES


@dataclass(frozen=True)
class CategoryTables:
    """The tables of a forest's categorical columns.

    Parameters
    ----------
    n_bytes : int
        Bytes of the tables. If that is too much, there are no tables, and each set is looked up by itself.
    tables : CATEGORY_TABLE [features x ways in which values are read as codes]
        `codes` and `rows`: where a table begins in `row_of_code` and in `rows`. Its columns are consecutive.
    row_of_code : int32 [...]
        The row of each code.
    rows : uint64 [...]
        A table's columns, 64 per word, from the lowest bit of the first word.
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
    if not (routing & CATEGORICAL).any():
        return CategoryTables(0, np.zeros(0, CATEGORY_TABLE), np.zeros(0, np.int32), np.zeros(0, np.uint64))
    groups, most = _groups(feature, routing), max(MAX_BYTES, TIMES_SETS * set_words.nbytes)
    longest = np.maximum.reduceat(np.diff(set_offsets), [a for a, _ in groups]) if groups else np.zeros(0, np.int64)
    n_bytes = 4 * 32 * int(longest.sum())
    held = []
    for a, b in groups if n_bytes <= most else ():
        codes = unite_sets(set_words, set_offsets[a : b + 1])
        held.append(np.unpackbits(codes.view(np.uint8), bitorder="little").astype(bool))
        n_bytes += 8 * (int(held[-1].sum()) + 2) * -(-(b - a) // 64)
    if n_bytes > most:
        groups, held = [], []
    tables = np.zeros(len(groups), CATEGORY_TABLE)
    codes, rows = [np.zeros(0, np.int32)], [np.zeros(0, np.uint64)]
    n_codes = n_words = 0
    for table, (a, b), of_sets in zip(tables, groups, held, strict=True):
        n_rows = int(of_sets.sum()) + 2
        row_of_code = np.where(of_sets, np.cumsum(of_sets) - 1, n_rows - 2).astype(np.int32)
        made = np.zeros((n_rows, -(-(b - a) // 64)), np.uint64)
        mark_rows(set_words, set_offsets[a : b + 1], row_of_code, made)
        in_set_is_left = np.zeros(64 * made.shape[1], bool)
        in_set_is_left[: b - a] = (routing[a:b] & SET_RIGHT) == 0
        made ^= np.packbits(in_set_is_left, bitorder="little").view(np.uint64)
        made[n_rows - 1] = np.iinfo(np.uint64).max  # a missing value ranks above all thresholds
        table["feature"], table["routing"] = feature[a], routing[a] & READING
        table["first_column"], table["n_columns"] = a, b - a
        table["n_codes"], table["n_rows"] = len(of_sets), n_rows
        table["codes"], table["rows"] = n_codes, n_words
        codes.append(row_of_code)
        rows.append(made.ravel())
        n_codes, n_words = n_codes + len(row_of_code), n_words + made.size
    return CategoryTables(n_bytes, tables, np.concatenate(codes), np.concatenate(rows))


def _groups(feature: npt.NDArray[np.int32], routing: npt.NDArray[np.uint8]) -> list[tuple[int, int]]:
    """Begin and end of each run of categorical columns that read the same feature in the same way."""
    first = int(np.count_nonzero((routing & CATEGORICAL) == 0))  # categorical columns come last
    key = feature[first:].astype(np.int64) * (ALL_ROUTING + 1) + (routing[first:] & READING)
    bounds = [*np.flatnonzero(np.diff(key, prepend=-1)).tolist(), len(key)]
    return [(first + a, first + b) for a, b in pairwise(bounds)]
