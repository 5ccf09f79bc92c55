"""Arrow tables, and what exports them (polars and others), as documents: columns by name, categories as in training."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from gpuqs.arrays.categories import arrow_codes
from gpuqs.arrays.columns import columns_of
from gpuqs.arrays.dense import Documents
from gpuqs.errors import InputError
from gpuqs.forest import Forest

#: Arrow's types of numbers, by name; NumPy would read numbers into text and times, too.
_ARROW_NUMBER = re.compile(r"bool|u?int\d+|halffloat|float|double|decimal\d+\(.*\)|null")


def arrow_table(X: Any) -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise InputError(f"reading a {type(X).__name__} needs pyarrow: pip install pyarrow") from error
    return pyarrow.table(X)


def _is_number(arrow_type: Any) -> bool:
    return _ARROW_NUMBER.fullmatch(str(arrow_type)) is not None


def from_table(X: Any, forest: Forest) -> Documents:
    names = list(X.column_names)
    take = columns_of(names, True, forest)
    indices = range(len(names)) if take is None else take
    coded = {}
    for feature, index in enumerate(indices):
        kind = X.schema.field(index).type
        codes = arrow_codes(X.column(index), _is_number, forest, feature)
        if codes is not None:
            coded[feature] = codes
        elif not _is_number(kind):
            raise InputError(f"column {names[index]!r} has type {kind}, not a number")

    def chunk(start: int, stop: int) -> np.ndarray:
        rows = X.slice(start, stop - start)
        out = np.empty((stop - start, forest.n_features), np.float64)
        for to, index in enumerate(indices):
            if to in coded:
                out[:, to] = coded[to](start, stop)
                continue
            column = rows.column(index)
            out[:, to] = column.to_numpy() if hasattr(column, "chunks") else column.to_numpy(False)
        return out

    return Documents(X.num_rows, chunk)
