"""Category sets side by side: a row for each code of a feature, with a bit for each set: does the code go right?

The row of a document's code holds its ranks on all columns of the feature's sets, one bit each. The rows of 64
documents, transposed, are 64 bits of each column's plane.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuqs.forest import ALL_ROUTING, CATEGORICAL, NEGATIVE_FRACTION_IS_ZERO, SET_RIGHT, WHOLE_CODES
from gpuqs.layout.columns import Columns

#: The C++ `CategoryTable`. `row_words` 64-bit words a row; rows: the codes, then "no code", then "missing".
CATEGORY_TABLE = np.dtype(
    [("feature", "i4"), ("routing", "i4"), ("n_columns", "i4"), ("n_codes", "i4"), ("row_words", "i8"),
     ("columns", "i8"), ("rows", "i8")]
)  # fmt: skip
#: Most bytes of a forest's tables: codes that are few but large numbers would take any amount.
MAX_BYTES = 16 << 20


@dataclass(frozen=True)
class CategoryTables:
    """The tables of a forest's categorical columns.

    Parameters
    ----------
    tables : CATEGORY_TABLE [features x ways in which values are read as codes]
        `columns` and `rows` say where each table's columns and rows start below.
    columns : int32 [...]
        Columns in the order of a row's bits, from the lowest bit of the first word.
    rows : uint64 [...]
    """

    tables: np.ndarray
    columns: npt.NDArray[np.int32]
    rows: npt.NDArray[np.uint64]


def table_bytes(columns: Columns) -> int:
    """Bytes that the tables of these columns take."""
    sizes = (
        (32 * int(np.diff(columns.set_offsets)[members].max()) + 2) * -(-len(members) // 64) * 8
        for members in _groups(columns)
    )
    return sum(sizes)


def build_category_tables(columns: Columns) -> CategoryTables:
    """Tables of all categorical columns; at most `MAX_BYTES`."""
    tables, members_of, rows = [], [np.zeros(0, np.int32)], [np.zeros(0, np.uint64)]
    for members in _groups(columns):
        table = np.zeros((), CATEGORY_TABLE)
        starts, ends = columns.set_offsets[members], columns.set_offsets[members + 1]
        n_codes = 32 * int((ends - starts).max())
        goes_right = np.zeros((n_codes + 2, -(-len(members) // 64) * 64), bool)
        word = starts[:, None] + np.arange(n_codes // 32)
        words = np.where(word < ends[:, None], columns.set_words[np.minimum(word, ends[:, None] - 1)], np.uint32(0))
        goes_right[:n_codes, : len(members)] = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little").T
        goes_right[: n_codes + 1, : len(members)] ^= (columns.routing[members] & SET_RIGHT) == 0
        goes_right[n_codes + 1] = True  # a missing value ranks above all thresholds
        packed = np.packbits(goes_right, axis=1, bitorder="little").view(np.uint64)
        table["feature"] = columns.feature[members[0]]
        table["routing"] = columns.routing[members[0]] & (NEGATIVE_FRACTION_IS_ZERO | WHOLE_CODES)
        table["n_columns"], table["n_codes"], table["row_words"] = len(members), n_codes, packed.shape[1]
        table["columns"], table["rows"] = sum(map(len, members_of)), sum(map(len, rows))
        tables.append(table)
        members_of.append(members.astype(np.int32))
        rows.append(packed.ravel())
    return CategoryTables(
        np.array(tables, CATEGORY_TABLE), np.concatenate(members_of), np.concatenate(rows)
    )


def _groups(columns: Columns) -> list[npt.NDArray[np.int64]]:
    """Categorical columns by feature and by how its values are read as codes."""
    categorical = np.flatnonzero(columns.routing & CATEGORICAL)
    how = columns.routing[categorical] & (NEGATIVE_FRACTION_IS_ZERO | WHOLE_CODES)
    features = columns.feature[categorical]
    key = np.ravel_multi_index((features, how), (int(features.max(initial=0)) + 1, ALL_ROUTING + 1))
    return [categorical[key == value] for value in sorted(set(key.tolist()))]
