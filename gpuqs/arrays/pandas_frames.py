"""pandas frames as documents: columns by name, categories coded as in training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpuqs.arrays.arrow_tables import arrow_codes, kind_of_arrow
from gpuqs.arrays.coding import Coder, Column, Kind, coders_of, plain
from gpuqs.arrays.columns import columns_of
from gpuqs.arrays.dense import Documents, table_dtype
from gpuqs.arrays.sparse import from_sparse_frame, plain_dtype
from gpuqs.errors import InputError
from gpuqs.forest import Forest

#: The kind of values of each of NumPy's kinds of types; columns of objects are texts, if anything.
_KINDS = {"i": Kind.WHOLE, "u": Kind.WHOLE, "f": Kind.FRACTION, "b": Kind.TRUTH, "O": Kind.TEXT, "U": Kind.TEXT}


def from_frame(X: Any, forest: Forest) -> Documents:
    take = columns_of(*labels_of(X, forest), forest)
    frame = X if take is None else X.iloc[:, take]
    if not forest.schema.has_categories and (documents := from_sparse_frame(frame, forest)) is not None:
        return documents
    kinds = {dtype: _kind_of(dtype) for dtype in set(frame.dtypes)}
    columns = [
        Column(str(name), "dtype", dtype, kinds[dtype]) for name, dtype in zip(frame.columns, frame.dtypes, strict=True)
    ]
    coders = coders_of(columns, forest)
    coded = {
        feature: _codes(frame.iloc[:, feature], coder) for feature, coder in enumerate(coders) if coder is not None
    }
    uncoded = [feature for feature in range(frame.shape[1]) if feature not in coded]
    numbers = frame.iloc[:, uncoded] if coded else frame
    dtypes = [plain_dtype(getattr(dtype, "numpy_dtype", dtype)) for dtype in numbers.dtypes]
    dtypes = [dtype if dtype.kind in "fiub" else np.dtype(np.float64) for dtype in dtypes]  # Arrow's decimals
    dtype = table_dtype(dtypes, forest)
    first = dtype
    if forest.schema.rules.common_type and all(isinstance(kind, np.dtype) for kind in numbers.dtypes):
        common = np.result_type(*dtypes) if dtypes else dtype
        first = common if common.kind == "f" else dtype

    def chunk(start: int, stop: int) -> np.ndarray:
        with np.errstate(over="ignore"):
            rows: np.ndarray = numbers.iloc[start:stop].to_numpy(dtype=first, na_value=np.nan)
            rows = rows.astype(dtype, copy=False)
        if not coded:
            return rows if rows.flags.aligned else rows.copy()
        out = np.empty((stop - start, frame.shape[1]), dtype)
        out[:, uncoded] = rows
        for feature, codes in coded.items():
            out[:, feature] = codes(start, stop)
        return out

    return Documents(len(X), chunk)


def labels_of(X: Any, forest: Forest) -> tuple[list[str], bool]:
    """Names of a frame's columns, and whether somebody gave them: 0, 1, ... are pandas's own."""
    labels = list(X.columns)
    names = [str(label) for label in labels]
    if getattr(X.columns, "nlevels", 1) > 1 and not set(forest.schema.names) <= set(names):
        names = [" ".join(map(str, label)) for label in labels]  # as XGBoost calls them
    counted = all(isinstance(label, (int, np.integer)) for label in labels) and labels == [*range(len(labels))]
    return names, not counted


def _kind_of(dtype: Any) -> Kind:
    if hasattr(dtype, "pyarrow_dtype"):
        return kind_of_arrow(dtype.pyarrow_dtype)
    if hasattr(dtype, "categories") and hasattr(dtype, "ordered"):
        return Kind.CATEGORY
    if hasattr(dtype, "storage"):  # pandas's type of texts
        return Kind.TEXT
    number = plain_dtype(getattr(dtype, "numpy_dtype", dtype))
    return _KINDS.get(number.kind, Kind.OTHER) if isinstance(number, np.dtype) else Kind.OTHER


def _codes(column: Any, coder: Coder) -> Callable[[int, int], np.ndarray]:
    """Rows [start, stop) of a column as category codes."""
    if hasattr(column.dtype, "pyarrow_dtype"):
        array = column.array.__arrow_array__()
        return lambda start, stop: arrow_codes(array.slice(start, stop - start), coder)
    if hasattr(column, "cat"):
        levels = plain(column.cat.categories)
        return lambda start, stop: coder.codes(levels, column.iloc[start:stop].cat.codes.to_numpy())

    def codes(start: int, stop: int) -> np.ndarray:
        try:
            places, values = column.iloc[start:stop].factorize()
        except TypeError as error:
            raise InputError(f"column {coder.column.name!r} holds what is no category: {error}") from None
        return coder.codes(plain(values), places)

    return codes
