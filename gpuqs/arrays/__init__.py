"""Input: anything that holds rows of features becomes float32 or float64 chunks, without a copy where possible.

Other types are cast as the source library does: integers become `Forest.integer_dtype`. Float32 and float64 stay as
they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuqs.arrays.arrow_tables import from_table, is_exported, is_table
from gpuqs.arrays.columns import columns_of
from gpuqs.arrays.dense import Documents, array_of, coded_rows, from_array, with_ctrs, with_missing, with_zeros
from gpuqs.arrays.pandas_frames import from_frame, is_frame
from gpuqs.arrays.refusals import refuse_other_tables, refuse_records, refuse_strangers
from gpuqs.arrays.sparse import from_sparse
from gpuqs.errors import InputError
from gpuqs.forest import Forest

__all__ = ["Documents", "as_documents", "coded_rows", "columns_of"]


def as_documents(X: Any, forest: Forest) -> Documents:
    """Check ``X`` against the forest and make it readable in chunks.

    Parameters
    ----------
    X : array-like [D, n_features]
        NumPy array (float32, float64, integers, bool; any strides), nested list or array of Python's numbers (None is
        missing), scipy.sparse matrix or array (absent entries are `Schema.absent`), pandas frame, Arrow table or
        polars frame (columns are found by name if all of the model's are there or its names are real ones, else by
        position), or a CPU array of another library.

    Raises
    ------
    InputError
        Wrong number of dimensions or features, missing columns, a type that holds no numbers, categories that are
        not the model's.
    """
    documents = with_missing(with_ctrs(_given(X, forest.given), forest), forest)
    return with_zeros(documents) if forest.has_linear_leaves and not _keeps_tiny(X) else documents


def _keeps_tiny(X: Any) -> bool:
    """Whether LightGBM reads near-zero numbers as they are: in Arrow tables, and sparse matrices other than CSC."""
    return not is_frame(X) and (is_table(X) or getattr(X, "format", None) not in (None, "csc"))


def _given(X: Any, forest: Forest) -> Documents:
    if type(X) is np.ndarray:
        return from_array(X, forest)
    if isinstance(X, Documents):  # made or read by gpuqs itself: already checked, categories coded
        return X
    if is_exported(type(X)):
        return from_table(X, forest)
    if isinstance(X, (list, tuple)):
        refuse_records(X)
    elif not isinstance(X, np.ndarray):
        refuse_strangers(X)
    if is_frame(X):
        return from_frame(X, forest)
    if is_table(X):
        return from_table(X, forest)
    if isinstance(X, np.ma.MaskedArray):
        raise InputError("X is a masked array; pass X.filled(np.nan), or with another value for what is masked")
    if hasattr(X, "tocsr"):
        return from_sparse(X, forest)
    refuse_other_tables(X)
    return from_array(array_of(X, forest), forest, listed=getattr(X, "dtype", None) != np.dtype(object))
