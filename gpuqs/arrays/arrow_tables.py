"""Arrow tables, and what exports them (polars and others), as documents: columns by name, categories as in training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gpuqs.arrays.coding import Coder, Column, Kind, coders_of
from gpuqs.arrays.columns import columns_of
from gpuqs.arrays.dense import Documents, table_dtype
from gpuqs.errors import InputError
from gpuqs.forest import Forest


class TableCoding:
    """How columns of an Arrow table, or of the batches of a file, become documents.

    Parameters
    ----------
    names : list of str
        Of the columns that are the model's features, in the features' order.
    types : list of pyarrow.DataType
    forest : Forest

    Attributes
    ----------
    dtype : numpy.dtype
        Of the documents.

    Raises
    ------
    InputError
        A column is no number and cannot be coded, or the category columns are not the model's.
    """

    def __init__(self, names: Sequence[str], types: Sequence[Any], forest: Forest) -> None:
        columns = [Column(name, "type", kind, kind_of_arrow(kind)) for name, kind in zip(names, types, strict=True)]
        self._coders = coders_of(columns, forest)
        numbers = [kind for kind, coder in zip(types, self._coders, strict=True) if coder is None]
        self.dtype = table_dtype(map(_numpy_type, numbers), forest)

    def rows(self, columns: Sequence[Any]) -> np.ndarray:
        """Documents from (chunked) arrays of one length, one for each feature."""
        # Feature-major: each column is copied once, as it lies.
        out = np.empty((len(columns[0]) if columns else 0, len(columns)), self.dtype, order="F")
        with np.errstate(over="ignore"):
            for feature, (column, coder) in enumerate(zip(columns, self._coders, strict=True)):
                if coder is None:
                    fill_numbers(out[:, feature], column)
                else:
                    out[:, feature] = arrow_codes(column, coder)
        return out


def arrow_table(X: Any) -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise InputError(f"reading a {type(X).__name__} needs pyarrow: pip install pyarrow") from error
    try:
        return pyarrow.table(X)
    except (pyarrow.ArrowException, TypeError, ValueError) as error:
        for name, kind in dict(getattr(X, "schema", {})).items():
            try:
                pyarrow.table(X[[name]])
            except (pyarrow.ArrowException, TypeError, ValueError):
                raise InputError(
                    f"column {name!r} has type {kind}, which Arrow has not: cast it, as to Int64 or Float64"
                ) from error
        raise InputError(f"X, a {type(X).__name__}, cannot be read as an Arrow table: {error}") from error


def from_table(X: Any, forest: Forest) -> Documents:
    names = list(X.column_names)
    take = columns_of(names, True, forest)
    indices = range(len(names)) if take is None else take
    coding = TableCoding([names[at] for at in indices], [X.schema.field(at).type for at in indices], forest)
    columns = [X.column(at) for at in indices]
    return Documents(X.num_rows, lambda start, stop: coding.rows([c.slice(start, stop - start) for c in columns]))


def kind_of_arrow(arrow_type: Any) -> Kind:
    """The kind of an Arrow type's values; NumPy would read numbers into texts and times, too."""
    from pyarrow import types

    if types.is_dictionary(arrow_type):
        return Kind.CATEGORY
    if types.is_integer(arrow_type):
        return Kind.WHOLE
    if types.is_floating(arrow_type) or types.is_decimal(arrow_type) or types.is_null(arrow_type):
        return Kind.FRACTION
    if types.is_boolean(arrow_type):
        return Kind.TRUTH
    text = (types.is_string, types.is_large_string, getattr(types, "is_string_view", types.is_string))
    return Kind.TEXT if any(is_text(arrow_type) for is_text in text) else Kind.OTHER


def arrow_codes(column: Any, coder: Coder) -> np.ndarray:
    """A (chunked) Arrow array as category codes."""
    coded = [np.zeros(0)]
    for part in _parts(column):
        encoded = part if kind_of_arrow(part.type) is Kind.CATEGORY else part.dictionary_encode()
        places = np.full(len(part), -1, np.int64)
        there = _there(encoded.indices)
        places[there] = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)[there]
        coded.append(coder.codes(encoded.dictionary.to_pylist(), places))
    return np.concatenate(coded)


def fill_numbers(out: np.ndarray, column: Any) -> None:
    """Fill ``out`` with a (chunked) Arrow array of numbers, rounded once; NaN where it is null."""
    start = 0
    for part in _parts(column):
        rows = out[start : start + len(part)]
        start += len(part)
        if part.null_count == len(part):
            rows[:] = np.nan
        elif not part.null_count or kind_of_arrow(part.type) is Kind.FRACTION:
            rows[:] = part.to_numpy(zero_copy_only=False)
        else:  # NumPy would get them as float64
            filler = False if kind_of_arrow(part.type) is Kind.TRUTH else 0
            rows[:] = part.fill_null(filler).to_numpy(zero_copy_only=False)
            rows[~_there(part)] = np.nan


def _parts(column: Any) -> Iterator[Any]:
    yield from column.chunks if hasattr(column, "chunks") else [column]


def _there(array: Any) -> np.ndarray:
    return np.asarray(array.is_valid())


def _numpy_type(arrow_type: Any) -> np.dtype:
    """The type that NumPy has for an Arrow type of numbers; float64 where it has none."""
    try:
        dtype = np.dtype(arrow_type.to_pandas_dtype())
    except NotImplementedError:
        return np.dtype(np.float64)
    return dtype if dtype.kind in "fiub" else np.dtype(np.float64)
