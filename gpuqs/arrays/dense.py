"""Dense arrays as documents: floats stay as they are, other numbers are cast as the source library does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpuqs.arrays.coding import Coder, Column, Kind, coders_of, distinct_objects
from gpuqs.arrays.refusals import trained_on
from gpuqs.cpu_fallback import lists
from gpuqs.errors import InputError
from gpuqs.forest import ZERO_THRESHOLD, Forest

#: If an array has more than WIDE columns for each tested one, only the tested columns are cast.
WIDE = 4
#: Types that engines read as they are.
_NATIVE = (np.dtype(np.float32), np.dtype(np.float64))
#: Types of the rows of nested lists. Other objects are not asked for their length, as some refuse (sparse matrices).
_ROWS = (list, tuple, np.ndarray)


class Documents(NamedTuple):
    """Rows to score.

    Parameters
    ----------
    n : int
        Number of documents.
    chunk : callable
        ``chunk(start, stop)`` gives rows as float32 or float64 [stop - start, n_features]; a
        view of the caller's memory where possible.
    narrow : bool
        Chunks hold only the columns `Forest.tested`, as `Forest.narrowed` expects.
    copied : bool
        Whether chunks are copies, which take memory.
    own : callable, optional
        ``own(chunk, n_threads)`` adds the columns of the forest's CTRs, which the chunk lacks.
    """

    n: int
    chunk: Callable[[int, int], np.ndarray]
    narrow: bool = False
    copied: bool = True
    own: Callable[[np.ndarray, int], np.ndarray] | None = None

    def rows(self, start: int, stop: int, n_threads: int = 1) -> np.ndarray:
        """A chunk as the forest's trees test it."""
        chunk = self.chunk(start, stop)
        return chunk if self.own is None else self.own(chunk, n_threads)


def coded_rows(rows: np.ndarray) -> Documents:
    """Documents of float32 or float64 rows [D, n_features] whose categories are codes, whatever the schema expects."""
    return Documents(len(rows), lambda start, stop: rows[start:stop], copied=False)


def with_ctrs(documents: Documents, forest: Forest) -> Documents:
    """Documents with the columns of the forest's CTRs added to those that users give."""
    ctrs = forest.ctrs
    return documents if ctrs is None else documents._replace(narrow=False, copied=True, own=ctrs.documents)


def with_zeros(documents: Documents) -> Documents:
    """Documents whose near-zero numbers become zero, as LightGBM reads everything except CSR matrices and Arrow tables.

    Tests of nodes give the same results for both; linear models of leaves do not.
    """

    def chunk(start: int, stop: int) -> np.ndarray:
        rows = documents.chunk(start, stop)
        near = np.abs(rows) <= ZERO_THRESHOLD
        return np.where(near, rows.dtype.type(0), rows) if near.any() else rows

    return documents._replace(chunk=chunk, copied=True)


def with_missing(documents: Documents, forest: Forest) -> Documents:
    """Documents in which the schema's number for missing values becomes NaN; both are rounded to float32 first."""
    missing = forest.schema.missing
    if missing is None:
        return documents
    narrows = not documents.narrow and tests_few(forest)
    with np.errstate(over="ignore"):
        number = np.float32(missing)

    def chunk(start: int, stop: int) -> np.ndarray:
        rows = documents.chunk(start, stop)
        with np.errstate(over="ignore"):
            single = (rows[:, forest.tested] if narrows else rows).astype(np.float32)
        np.putmask(single, single == number, np.float32(np.nan))
        return single

    return documents._replace(chunk=chunk, narrow=documents.narrow or narrows, copied=True)


def tests_few(forest: Forest) -> bool:
    """Whether so few columns are tested that only they are cast."""
    return forest.n_features > WIDE * len(forest.tested)


def without_history(X: Any) -> Any:
    """A PyTorch tensor that records gradients, detached, as scores have none; anything else as it is."""
    return X.detach() if getattr(X, "requires_grad", False) else X


def array_of(X: Any, forest: Forest) -> np.ndarray:
    """An array-like object or a nested list as an array; values of lists keep their types if some are categories."""
    X = without_history(X)
    is_list = isinstance(X, (list, tuple))
    try:
        if not hasattr(X, "__array__") and hasattr(X, "__dlpack__"):
            return np.from_dlpack(X)
        by_value = is_list and forest.schema.arrays_hold_values
        if is_list and not by_value:
            rows: np.ndarray | None = lists.rows_of(X, forest.n_features, forest.integer_dtype == "float32")
            if rows is not None:
                return rows
        array = np.asarray(X, object if by_value else None)
    except (ValueError, TypeError, RuntimeError, BufferError) as error:
        raise _no_array(X, (is_list and _uneven(X)) or error) from error
    if is_list and array.ndim == 1 and len(array) == forest.n_features > 1 and not _nested(X):
        asked = f"X must be 2-dimensional [documents, {forest.n_features}], not 1-dimensional"
        raise InputError(f"{asked}; pass [X] to score one document")
    if is_list and array.dtype == object and array.ndim == 1 and (uneven := _uneven(X)):
        raise _no_array(X, uneven)  # NumPy refuses that from 1.24 on
    return array


def _no_array(X: Any, why: object) -> InputError:
    return InputError(f"X, a {type(X).__name__}, cannot be read as an array of numbers: {why}")


def _nested(X: Any) -> bool:
    return any(isinstance(row, _ROWS) for row in X)


def _uneven(X: Any) -> str:
    """Say which row of a list differs in length from the first, or is a single value; empty if there is none."""
    lengths = [len(row) if isinstance(row, _ROWS) and getattr(row, "ndim", True) else None for row in X]
    odd = next((at for at, n in enumerate(lengths) if n != lengths[0]), None)
    if odd is None:
        return ""
    if lengths[0] is None or lengths[odd] is None:
        lone, row = (0, odd) if lengths[0] is None else (odd, 0)
        return f"item {lone} is one value ({type(X[lone]).__name__}), item {row} a row"
    return f"rows 0 and {odd} differ in length: {lengths[0]} and {lengths[odd]}"


def from_array(X: np.ndarray, forest: Forest, *, listed: bool = False) -> Documents:
    """A NumPy array as documents: floats as they are, uncopied; other numbers as the source library casts them.

    Parameters
    ----------
    X : array [D, n_features]
        Of float32, float64, integers, bool or Python's numbers, with any strides. Category columns hold codes, or the
        categories themselves if the schema says so (`Schema.arrays_hold_values`): integers, and strings in arrays of
        objects.
    forest : Forest
    listed : bool
        X was made from something other than an array of objects, such as a list.

    Raises
    ------
    InputError
        The array is structured, has a wrong number of dimensions or features, or holds something other than numbers.
    """
    if X.dtype.names is not None:
        raise InputError("X is a structured array; pass pandas.DataFrame(X), whose columns go by name")
    if X.ndim != 2:
        hint = ""
        if X.shape == (0,):
            hint = f"; pass X of shape (0, {forest.n_features}) to score no documents"
        elif X.ndim == 1 and forest.n_features == 1:
            hint = "; pass X.reshape(-1, 1) to score its values"
        elif X.ndim == 1:
            hint = "; pass X.reshape(1, -1) to score one document"
        raise InputError(f"X must be 2-dimensional [documents, {forest.n_features}], not {X.ndim}-dimensional{hint}")
    if X.shape[1] != forest.n_features:
        raise InputError(f"X has {X.shape[1]} features; {trained_on(forest, X.shape[1])}")
    if forest.schema.arrays_hold_values:
        return _by_value(X, forest)
    if X.dtype == object:
        as_float64 = forest.schema.objects_as_float64 and not listed
        return coded_rows(numbers_of_objects(X, forest, np.float64 if as_float64 else forest.integer_dtype))
    dtype = X.dtype if X.dtype in _NATIVE else document_dtype(X.dtype, forest)
    if X.dtype == dtype and X.flags.aligned:
        return Documents(len(X), lambda start, stop: X[start:stop], copied=False)
    if tests_few(forest):
        tested = forest.tested
        return Documents(len(X), lambda start, stop: X[start:stop, tested].astype(dtype), narrow=True)
    return Documents(len(X), lambda start, stop: X[start:stop].astype(dtype))


def numbers_of_objects(
    X: np.ndarray, forest: Forest, dtype: npt.DTypeLike, first: int = 0, features: Sequence[int] | None = None
) -> np.ndarray:
    """Objects [documents, features] as numbers: Python numbers, or None for missing, rounded once as in the libraries.

    Parameters
    ----------
    X : object array
    forest : Forest
    dtype : {"float64", "float32"}
    first : int
        The number of the first document, for messages.
    features : sequence of int, optional
        Numbers of the features, if these are not all.

    Raises
    ------
    InputError
        An object is neither a number nor a missing value, or is a number that no float holds.
    """
    from decimal import Decimal  # here, as few documents hold objects

    known = (Real, Decimal, np.bool_, type(None))
    others = [
        kind
        for kind in set(map(type, X.ravel().tolist()))
        if not issubclass(kind, known) or issubclass(kind, np.timedelta64)  # which Python counts as integers
    ]
    if any(_is_pandas_na(kind) for kind in others):
        others = [kind for kind in others if not _is_pandas_na(kind)]
        na = next(value for value in X.flat if _is_pandas_na(type(value)))  # there is only one
        X = np.array([None if value is na else value for value in X.flat], object).reshape(X.shape)

    def named(row: int, at: int) -> str:
        return f"document {first + row:,}, feature {forest.schema.name_of(at if features is None else features[at])}"

    if others:
        place = next(place for place, value in np.ndenumerate(X) if type(value) in others)
        raise InputError(
            f"X holds a {type(X[place]).__name__} in {named(*place)}: {X[place]!r:.60}; "
            "documents hold numbers, and None or NaN where values are missing (encode text and categories as in "
            "training, in the same order of columns, or pass a frame if the model knows its categories)"
        )
    try:
        with np.errstate(over="ignore"):
            return X.astype(dtype)
    except (ArithmeticError, ValueError, TypeError) as error:  # too large, or changed meanwhile
        places = (named(*place) for place, value in np.ndenumerate(X) if not _is_float(value))
        raise InputError(f"X holds a number in {next(places, 'some document')} that fits no float: {error}") from None


def _is_pandas_na(kind: type) -> bool:
    return kind.__name__ == "NAType" and kind.__module__.partition(".")[0] == "pandas"


def _is_float(value: Any) -> bool:
    try:
        float(0 if value is None else value)
    except (ArithmeticError, ValueError, TypeError):
        return False
    return True


def _by_value(X: np.ndarray, forest: Forest) -> Documents:
    """Documents of an array whose integers and strings are categories by value."""
    of_objects = X.dtype == object
    if not of_objects:
        check_values(X.dtype, forest)
    first = np.dtype(forest.integer_dtype) if of_objects else document_dtype(X.dtype, forest)
    dtype = np.dtype(np.float64) if forest.schema.hashed else first
    coders = _coders_by_value(X.dtype, forest)
    numbers = [feature for feature, coder in enumerate(coders) if coder is None]
    read = _reader_of_values(coders, forest) if of_objects else None

    def chunk(start: int, stop: int) -> np.ndarray:
        rows = X[start:stop]
        if read is not None and (ordinary := read(rows.tolist())) is not None:
            return ordinary
        out = np.empty(rows.shape, dtype, order="F")
        if of_objects:
            out[:, numbers] = numbers_of_objects(rows[:, numbers], forest, first, start, numbers)
        else:
            out[:, numbers] = rows[:, numbers].astype(first)
        for feature, coder in enumerate(coders):
            if coder is None:
                continue
            column = rows[:, feature]
            if not of_objects:
                out[:, feature] = coder.codes_of_integers(column)
            elif (codes := coder.codes_of_objects(column)) is not None:
                out[:, feature] = codes
            else:
                try:
                    values, places = distinct_objects(column)
                except TypeError as error:
                    name = coder.column.name
                    raise InputError(f"column {name!r} holds a value that cannot be a category: {error}") from None
                out[:, feature] = coder.codes(values, places)
        return out

    return Documents(len(X), chunk)


def reader_of_values(forest: Forest, max_rows: int) -> Callable[[Any], np.ndarray | None] | None:
    """A fast reader of ordinary documents whose categories are held by value: `from_array` takes longer than scoring.

    Returns
    -------
    callable or None
        Takes nested lists, or an array of objects, and returns the rows; or None, if `as_documents` must read them or
        say what is wrong with them. None instead of a callable: this forest's documents hold no categories by value.
    """
    if not forest.schema.arrays_hold_values:
        return None
    of_rows = _reader_of_values(_coders_by_value(np.dtype(object), forest), forest)

    def read(X: Any) -> np.ndarray | None:
        is_array = isinstance(X, np.ndarray)
        if of_rows is None or (is_array and (X.ndim != 2 or X.dtype != object)) or len(X) > max_rows:
            return None
        return of_rows(X.tolist() if is_array else X)

    return read


def _reader_of_values(coders: list[Coder | None], forest: Forest) -> Callable[[Any], np.ndarray | None] | None:
    """The same for nested lists only, by the features' coders."""
    if any(coder is not None and not coder.by_hash for coder in coders):
        return None
    dtype, schema = np.dtype(forest.integer_dtype), forest.schema
    is_category = np.array([coder is not None for coder in coders], np.uint8)

    def read(X: Any) -> np.ndarray | None:
        rows: np.ndarray | None = lists.rows_of_values(X, is_category, dtype == np.float32)
        if rows is None or schema.hashed:
            return rows
        out = rows.astype(dtype, order="F")
        for feature, coder in enumerate(coders):
            if coder is not None:
                out[:, feature] = coder.codes_of_hashes(rows[:, feature].astype(np.uint32))
        return out

    return read


def _coders_by_value(dtype: np.dtype, forest: Forest) -> list[Coder | None]:
    """The coders of an array's features, by the array's type; kept with the forest."""
    key = "array", dtype
    coders: list[Coder | None] | None = forest.table_plans.find(key)
    if coders is None:
        names = forest.schema.names or [str(feature) for feature in range(forest.n_features)]
        kind = Kind.TRUTH if dtype.kind == "b" else Kind.WHOLE
        of_known = Kind.TEXT if dtype.kind == "O" else kind
        kinds = [kind if known is None else of_known for known in forest.schema.categories]
        columns = [Column(name, "dtype", dtype, of) for name, of in zip(names, kinds, strict=True)]
        coders = coders_of(columns, forest)
        forest.table_plans.keep(key, coders)
    return coders


def check_values(dtype: np.dtype, forest: Forest) -> None:
    """Refuse arrays of types that cannot be categories by value.

    Raises
    ------
    InputError
    """
    if dtype.kind not in "iub":
        raise InputError(
            f"X has dtype {dtype}, but the model has categories; for such {forest.schema.library} models, gpuqs reads "
            "only arrays of integers or of objects; pass one of these, or a frame or an Arrow table with the columns "
            "as in training"
        )


def document_dtype(dtype: np.dtype, forest: Forest) -> np.dtype:
    """The type in which documents of ``dtype`` are scored."""
    if dtype.kind == "f" and dtype.itemsize <= 4:
        return np.dtype(np.float32)
    if dtype == np.float64:  # in this machine's byte order
        return dtype
    if dtype.kind in "iubf":  # source libraries cast long doubles and byte-swapped doubles like integers
        return np.dtype(forest.integer_dtype)
    mend = "pass their real parts, if you mean those" if dtype.kind == "c" else "convert with X.astype(np.float64)"
    raise InputError(
        f"X has dtype {dtype}; documents are floating-point or integer numbers "
        f"({mend}, or encode text and categories as in training)"
    )


def table_dtype(dtypes: Iterable[np.dtype], forest: Forest) -> np.dtype:
    """The type in which tables with columns of these types are scored."""
    if forest.schema.hashed:  # float32 cannot hold hashes
        return np.dtype(np.float64)
    if forest.input_dtype == "float32":  # the source library casts each column to it, rounding once
        return np.dtype(np.float32)
    # As LightGBM does: the type that holds every column and float32.
    return document_dtype(np.result_type(np.float32, *dtypes), forest)


def number_dtype(dtype: np.dtype, forest: Forest) -> np.dtype:
    """The type to which numbers of a table are first rounded, if the table is scored in ``dtype``."""
    return np.dtype(forest.input_dtype) if forest.schema.hashed else dtype
