"""Arrow tables and their exporters (polars and others) as documents: columns by name, categories as in training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpuqs.arrays.coding import Coder, Column, Kind, coders_of
from gpuqs.arrays.columns import columns_of
from gpuqs.arrays.dense import Documents, number_dtype, table_dtype
from gpuqs.cpu_fallback import ArrowTable
from gpuqs.cpu_fallback.ctrs import buffer_hashes, integer_hashes
from gpuqs.errors import InputError
from gpuqs.forest import Forest

_EXPORTED = (("Table", "pyarrow"), ("RecordBatch", "pyarrow"), ("DataFrame", "polars"))

#: Arrow's number types that `ArrowTable` reads.
_PLAIN = ("double", "float", "bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))
#: Arrow's name of a number type -> NumPy's, for types that both have.
_NUMPY_TYPES = {name: name for name in _PLAIN} | {"halffloat": "float16", "float": "float32", "double": "float64"}

#: Arrow types of contiguous strings -> the type of the offsets between the strings.
_OFFSETS = {"string": np.int32, "large_string": np.int64}


class TableCoding:
    """How columns of an Arrow table, or of the batches of a file, become documents.

    Parameters
    ----------
    names : list of str
        Names of the columns that are the model's features, in the order of the features.
    types : list of pyarrow.DataType
    forest : Forest

    Attributes
    ----------
    dtype : numpy.dtype
        Type of the documents.

    Raises
    ------
    InputError
        A column is not numeric and cannot be coded, or the category columns are not the model's.
    """

    def __init__(self, names: Sequence[str], types: Sequence[Any], forest: Forest) -> None:
        columns = [Column(name, "type", kind, kind_of_arrow(kind)) for name, kind in zip(names, types, strict=True)]
        self._coders = coders_of(columns, forest)
        numbers = [kind for kind, coder in zip(types, self._coders, strict=True) if coder is None]
        self.dtype = table_dtype(map(_numpy_type, numbers), forest)
        self._rounded = number_dtype(self.dtype, forest)
        #: Whether `ArrowTable` reads all columns.
        self.plain = len(numbers) == len(types) and all(str(kind) in _PLAIN for kind in numbers)

    def rows(self, columns: Sequence[Any]) -> np.ndarray:
        """Documents from (chunked) arrays of equal length, one for each feature."""
        # Feature-major: each column is copied once, as it lies.
        out = np.empty((len(columns[0]) if columns else 0, len(columns)), self.dtype, order="F")
        with np.errstate(over="ignore"):
            for feature, (column, coder) in enumerate(zip(columns, self._coders, strict=True)):
                if coder is None:
                    fill_numbers(out[:, feature], column, self._rounded)
                else:
                    out[:, feature] = arrow_codes(column, coder)
        return out


def arrow_table(X: Any) -> Any:
    """The table that ``X`` holds or exports, as a pyarrow table.

    Parameters
    ----------
    X : object
        A polars frame, a batch of records, or any object with ``__arrow_c_stream__``.

    Returns
    -------
    pyarrow.Table

    Raises
    ------
    InputError
        pyarrow is not installed, or cannot read ``X``; the message names the column of a polars frame that is at fault.
    """
    try:
        import pyarrow
    except ImportError as error:
        raise InputError(f"reading a {type(X).__name__} needs pyarrow: pip install pyarrow") from error
    if _is_batch(X):
        return pyarrow.Table.from_arrays(X.columns, schema=X.schema)
    try:
        if hasattr(X, "to_arrow") and not (hasattr(X, "__arrow_c_stream__") and _knows_views(pyarrow)):
            return X.to_arrow()
        return pyarrow.table(X)
    except (pyarrow.ArrowException, TypeError, ValueError) as error:
        for name, kind in dict(getattr(X, "schema", {})).items():
            try:
                pyarrow.table(X[[name]])
            except (pyarrow.ArrowException, TypeError, ValueError):
                raise InputError(
                    f"column {name!r} has type {kind}, which Arrow does not have; cast it, say to Int64 or Float64"
                ) from error
        raise InputError(f"X, a {type(X).__name__}, cannot be read as an Arrow table: {error}") from error


class _Plan(NamedTuple):
    """What follows from a table's schema: where the features are among its columns, and how they become documents."""

    columns: npt.NDArray[np.int64]
    coding: TableCoding

    def rows(self, table: ArrowTable, start: int, stop: int) -> np.ndarray:
        out = np.empty((stop - start, len(self.columns)), self.coding.dtype, order="F")
        table.fill(self.columns, start, out)
        return out


def from_table(X: Any, forest: Forest) -> Documents:
    """Documents of an Arrow table, or of an object that exports one."""
    exported = _exported(X)
    key = None if exported is None else exported.key
    plan: _Plan | None = None if key is None else forest.table_plans.find(key)
    table = None
    if plan is None:
        table = _pyarrow_table(X)
        plan = _plan_of(table, forest)
        if key is not None:
            forest.table_plans.keep(key, plan)
    if exported is not None and key is not None and plan.coding.plain and exported.read():
        return Documents(len(exported), partial(plan.rows, exported))
    table, coding = _pyarrow_table(X) if table is None else table, plan.coding
    columns = [table.column(at) for at in plan.columns.tolist()]
    return Documents(table.num_rows, lambda start, stop: coding.rows([c.slice(start, stop - start) for c in columns]))


def is_table(X: Any) -> bool:
    """Whether `from_table` reads it."""
    # xarray's arrays export one row per value.
    exports = hasattr(X, "__arrow_c_stream__") and not hasattr(X, "dims")
    return exports or _is_table(X) or _is_batch(X) or _is_old_polars(X)


def _is_table(X: Any) -> bool:
    return hasattr(X, "column_names") and hasattr(X, "slice")


def _is_batch(X: Any) -> bool:
    """Whether it is a record batch: before pyarrow 13 these lack ``column_names``, which `_is_table` needs."""
    return hasattr(X, "num_columns") and hasattr(X, "schema") and hasattr(X, "slice")


def _is_old_polars(X: Any) -> bool:
    """Whether it is a frame of polars before 1.3, which does not export itself."""
    return hasattr(X, "to_arrow") and hasattr(X, "columns")


def _knows_views(pyarrow: Any) -> bool:
    """Whether this pyarrow reads all strings that polars exports; older ones read what polars' ``to_arrow`` returns."""
    return int(pyarrow.__version__.partition(".")[0]) >= 16


def is_exported(kind: type) -> bool:
    """Whether tables of this class can be exported repeatedly; other libraries' streams may be read only once."""
    return (kind.__name__, kind.__module__.partition(".")[0]) in _EXPORTED and hasattr(kind, "__arrow_c_stream__")


def _exported(X: Any) -> ArrowTable | None:
    """The exported table; None if the export fails: reading it with pyarrow then says why."""
    try:
        return ArrowTable(X.__arrow_c_stream__()) if is_exported(type(X)) else None
    except Exception:
        return None


def _pyarrow_table(X: Any) -> Any:
    return X if _is_table(X) else arrow_table(X)


def _plan_of(table: Any, forest: Forest) -> _Plan:
    names = list(table.column_names)
    take = columns_of(names, True, forest)
    indices = range(len(names)) if take is None else take
    coding = TableCoding([names[at] for at in indices], [table.schema.field(at).type for at in indices], forest)
    return _Plan(np.array(indices, np.int64), coding)


def kind_of_arrow(arrow_type: Any) -> Kind:
    """The kind of an Arrow type's values; NumPy would read strings and times as numbers, too."""
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


#: Chunks of strings below _SMALL bytes on average are joined before they are hashed, if the column has fewer than _MOST
#: bytes, which one array of strings certainly holds.
_SMALL, _MOST = 4096, 1 << 30


def arrow_codes(column: Any, coder: Coder) -> np.ndarray:
    """A (chunked) Arrow array as category codes."""
    coded = [np.zeros(0)]
    chunks = getattr(column, "num_chunks", 1)
    if coder.by_hash and str(column.type) in _OFFSETS and chunks > 1 and column.nbytes < min(chunks * _SMALL, _MOST):
        column = column.combine_chunks()  # faster than hashing the chunks one by one
    for part in _parts(column):
        if coder.by_hash and not part.null_count and (hashes := _hashes(part)) is not None:
            coded.append(coder.codes_of_hashes(hashes))
            continue
        encoded = part if kind_of_arrow(part.type) is Kind.CATEGORY else part.dictionary_encode()
        places = np.full(len(part), -1, np.int64)
        there = _there(encoded.indices)
        places[there] = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)[there]
        coded.append(coder.codes(encoded.dictionary.to_pylist(), places))
    return np.concatenate(coded)


def _hashes(values: Any) -> np.ndarray | None:
    """The hashes of an Arrow array of contiguous strings, integers or booleans, without nulls; None for other types."""
    if kind_of_arrow(values.type) in (Kind.WHOLE, Kind.TRUTH):
        numbers: np.ndarray = integer_hashes(values.to_numpy(zero_copy_only=False))
        return numbers
    if str(values.type) not in _OFFSETS:
        return None
    _, offsets, data = values.buffers()
    places = np.frombuffer(offsets, _OFFSETS[str(values.type)])[values.offset : values.offset + len(values) + 1]
    text = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    hashes: np.ndarray = buffer_hashes(places, text)
    return hashes


def fill_numbers(out: np.ndarray, column: Any, rounded: np.dtype | None = None) -> None:
    """Fill ``out`` with a (chunked) Arrow array of numbers, rounded to ``rounded`` first; NaN where it is null.

    Decimals become float64 before that.
    """
    if rounded is not None and rounded != out.dtype:
        first = np.empty(len(out), rounded)
        fill_numbers(first, column)
        out[:] = first
        return
    start = 0
    for part in _parts(column):
        rows = out[start : start + len(part)]
        start += len(part)
        if part.null_count == len(part):
            rows[:] = np.nan
        elif not part.null_count or kind_of_arrow(part.type) is Kind.FRACTION:
            rows[:] = part.to_numpy(zero_copy_only=False)
        else:  # NumPy would get integers with nulls as float64
            filler = False if kind_of_arrow(part.type) is Kind.TRUTH else 0
            rows[:] = part.fill_null(filler).to_numpy(zero_copy_only=False)
            rows[~_there(part)] = np.nan


def _parts(column: Any) -> Iterator[Any]:
    yield from column.chunks if hasattr(column, "chunks") else [column]


def _there(array: Any) -> np.ndarray:
    return np.asarray(array.is_valid())


def _numpy_type(arrow_type: Any) -> np.dtype:
    """NumPy's type for one of Arrow's number types; float64 if it has none."""
    return np.dtype(_NUMPY_TYPES.get(str(arrow_type), "float64"))  # pyarrow before 26 would ask pandas
