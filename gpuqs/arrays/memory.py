"""The memory that documents are copied from, chunk by chunk: writing to it meanwhile changes the chunks to come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gpuqs.arrays.arrow_tables import arrow_table
from gpuqs.arrays.columns import columns_of
from gpuqs.arrays.dense import array_of
from gpuqs.arrays.pandas_frames import is_frame, labels_of
from gpuqs.forest import Forest


def memory_of(X: Any, forest: Forest) -> Iterator[np.ndarray]:
    """Arrays that cover all memory of ``X`` from which chunks of `gpuqs.arrays.as_documents` are copied.

    Lists have none, as they are copied at once. Columns that are not features of the forest are left out.
    """
    forest = forest.given
    if isinstance(X, (list, tuple)):
        return
    if is_frame(X):
        take = columns_of(*labels_of(X, forest), forest)
        for at in range(X.shape[1]) if take is None else take:
            yield from _of_column(X.iloc[:, at])
    elif hasattr(X, "column_names") and hasattr(X, "slice"):
        yield from _of_table(X, forest)
    elif hasattr(X, "__arrow_c_stream__"):
        yield from _of_table(arrow_table(X), forest)
    elif hasattr(X, "tocsr"):  # in CSR and CSC; others are copied at once
        yield from (np.asarray(getattr(X, name)) for name in ("indptr", "indices", "data") if hasattr(X, name))
    else:
        yield array_of(X, forest)


def _of_column(column: Any) -> Iterator[np.ndarray]:
    """The memory of a column of a pandas frame; memory of strings or other objects cannot hold scores."""
    array, dtype = column.array, column.dtype
    if hasattr(dtype, "pyarrow_dtype"):
        yield from _of_arrow(array.__arrow_array__())
    elif hasattr(column, "cat"):
        yield column.cat.codes.to_numpy()
    elif hasattr(array, "sp_values"):
        yield array.sp_values
    elif hasattr(dtype, "numpy_dtype"):  # masked: pandas has no public name for values or mask
        yield from (array._data, array._mask)
    elif isinstance(dtype, np.dtype):
        yield column.to_numpy()


def _of_table(table: Any, forest: Forest) -> Iterator[np.ndarray]:
    take = columns_of(list(table.column_names), True, forest)
    for at in range(table.num_columns) if take is None else take:
        yield from _of_arrow(table.column(at))


def _of_arrow(column: Any) -> Iterator[np.ndarray]:
    for part in column.chunks if hasattr(column, "chunks") else [column]:
        yield from (np.frombuffer(buffer, np.uint8) for buffer in part.buffers() if buffer)
