"""Documents in: whatever holds rows of features becomes float32 or float64 chunks, uncopied if it can.

What a source library does with other types is kept: integers become what `Forest.integer_dtype`
says; float32 and float64 stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gpuqs.categories import arrow_codes, pandas_codes
from gpuqs.errors import InputError
from gpuqs.forest import Forest

#: Names that LightGBM and XGBoost make up for features that have none.
_MADE_UP_NAME = re.compile(r"(Column_|f|feature_)\d+")
#: What engines read as it is.
_NATIVE = (np.dtype(np.float32), np.dtype(np.float64))
#: Arrow's types of numbers, by name; NumPy would read numbers into text and times, too.
_ARROW_NUMBER = re.compile(r"bool|u?int\d+|halffloat|float|double|decimal\d+\(.*\)|null")


class Documents(NamedTuple):
    """Rows to score.

    Parameters
    ----------
    n : int
        Number of documents.
    chunk : callable
        ``chunk(start, stop)`` gives rows as float32 or float64 [stop - start, n_features]; a
        view where the caller's own memory serves.
    """

    n: int
    chunk: Callable[[int, int], np.ndarray]


def as_documents(X: Any, forest: Forest) -> Documents:
    """Check ``X`` against the forest and make it readable in chunks.

    Parameters
    ----------
    X : array-like [D, n_features]
        NumPy array (float32, float64, integers, bool; any strides), nested list, pandas frame,
        Arrow table or polars frame (columns by name where the model's names are real ones, else by position).

    Raises
    ------
    InputError
        Wrong number of dimensions or features, missing columns, a type that holds no numbers.
    """
    if type(X) is np.ndarray:
        return _from_array(X, forest)
    if hasattr(X, "iloc") and hasattr(X, "columns"):
        return _from_frame(X, forest)
    if hasattr(X, "column_names") and hasattr(X, "slice"):
        return _from_table(X, forest)
    if hasattr(X, "__arrow_c_stream__"):  # polars and others
        return _from_table(_arrow_table(X), forest)
    if isinstance(X, np.ma.MaskedArray):
        raise InputError("X is a masked array; pass X.filled(np.nan), or with another value for what is masked")
    if hasattr(X, "tocsr"):
        raise InputError("X is a sparse matrix; pass X.toarray(), or dense batches of it")
    try:
        array = np.asarray(X)
    except (ValueError, TypeError) as error:
        raise InputError(f"X cannot be read as an array of numbers: {error}") from error
    return _from_array(array, forest)


def _arrow_table(X: Any) -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise InputError(f"reading a {type(X).__name__} needs pyarrow: pip install pyarrow") from error
    return pyarrow.table(X)


def _from_array(X: np.ndarray, forest: Forest) -> Documents:
    if X.ndim != 2:
        hint = "; pass X.reshape(1, -1) to score one document" if X.ndim == 1 else ""
        raise InputError(f"X must be 2-dimensional [documents, {forest.n_features}], not {X.ndim}-dimensional{hint}")
    if X.shape[1] != forest.n_features:
        raise InputError(f"X has {X.shape[1]} features; the model was trained on {forest.n_features}")
    dtype = X.dtype if X.dtype in _NATIVE else _score_dtype(X.dtype, forest)
    if X.dtype == dtype and X.flags.aligned:
        return Documents(len(X), lambda start, stop: X[start:stop])
    return Documents(len(X), lambda start, stop: X[start:stop].astype(dtype))


def _score_dtype(dtype: np.dtype, forest: Forest) -> np.dtype:
    """The type in which documents of ``dtype`` are scored."""
    if dtype.kind == "f" and dtype.itemsize <= 8:
        return np.dtype(np.float32 if dtype.itemsize <= 4 else np.float64)
    if dtype.kind in "iubf":  # long doubles: the source libraries cast them as they cast integers
        return np.dtype(forest.integer_dtype)
    raise InputError(
        f"X has dtype {dtype}; documents are floating-point or integer numbers "
        "(convert with X.astype(np.float64), or encode text and categories as in training)"
    )


def _from_frame(X: Any, forest: Forest) -> Documents:
    take = columns_of([str(c) for c in X.columns], all(isinstance(c, str) for c in X.columns), forest)
    frame = X if take is None else X.iloc[:, take]
    dtypes, coded = [], {}
    for feature, (name, dtype) in enumerate(zip(frame.columns, frame.dtypes, strict=True)):
        plain = getattr(dtype, "numpy_dtype", dtype)
        numeric = isinstance(plain, np.dtype) and plain.kind in "fiub"
        codes = pandas_codes(frame.iloc[:, feature], numeric, forest, feature)
        if codes is not None:
            coded[feature] = codes
        elif numeric:
            dtypes.append(plain)
        else:
            raise InputError(f"column {name!r} has dtype {dtype}; documents hold numbers only")
    # As LightGBM does: the type that holds every column and float32.
    dtype = _score_dtype(np.result_type(np.float32, *dtypes), forest)
    uncoded = [feature for feature in range(frame.shape[1]) if feature not in coded]
    numbers = frame.iloc[:, uncoded] if coded else frame

    def chunk(start: int, stop: int) -> np.ndarray:
        rows = numbers.iloc[start:stop].to_numpy(dtype=dtype, na_value=np.nan)
        if not coded:
            return rows
        out = np.empty((stop - start, frame.shape[1]), dtype)
        out[:, uncoded] = rows
        for feature, codes in coded.items():
            out[:, feature] = codes(start, stop)
        return out

    return Documents(len(X), chunk)


def _is_number(arrow_type: Any) -> bool:
    return _ARROW_NUMBER.fullmatch(str(arrow_type)) is not None


def _from_table(X: Any, forest: Forest) -> Documents:
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


def columns_of(names: list[str], named: bool, forest: Forest, what: str = "X") -> list[int] | None:
    """Positions of the model's features among ``names``; None to take all as they come.

    Parameters
    ----------
    names : list of str
    named : bool
        Whether the names are real ones, not positions.
    forest : Forest
    what : str
        What has these columns, for error messages.

    Raises
    ------
    InputError
        The model's features are not among them.
    """
    wanted = forest.feature_names
    position: dict[str, int] = {}
    for at, name in enumerate(names):
        for spelling in (name, name.replace(" ", "_")):  # LightGBM stores blanks as underscores
            position.setdefault(spelling, at)
    missing = [name for name in wanted if name not in position]
    if wanted and not missing:
        take = [position[name] for name in wanted]
        return None if take == list(range(len(names))) else take
    real = named and wanted and not all(_MADE_UP_NAME.fullmatch(name) for name in wanted)
    if real:
        shown = ", ".join(repr(name) for name in missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise InputError(
            f"{what} lacks {len(missing)} of the model's {len(wanted)} features: {shown}; "
            "rename its columns, or give an array without names to go by position"
        )
    if len(names) != forest.n_features:
        raise InputError(f"{what} has {len(names)} columns; the model was trained on {forest.n_features} features")
    return None
