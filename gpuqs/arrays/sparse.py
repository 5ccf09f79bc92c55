"""scipy.sparse matrices and frames of Sparse columns as documents: only tested columns of a chunk become dense."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpuqs.arrays.dense import Documents, document_dtype
from gpuqs.arrays.refusals import trained_on
from gpuqs.cpu_fallback import sparse
from gpuqs.errors import InputError
from gpuqs.forest import ZERO_THRESHOLD, Forest

#: Type codes of values that are read as they lie in memory; others are cast first.
_READ = "bhilqBHILQfd"
#: Upper limit of the values in rows that are made at once.
_FEW_VALUES = 1 << 17


class _Matrix(NamedTuple):
    """A CSR or CSC matrix whose arrays are read as they lie in memory."""

    n_rows: int
    indptr: npt.NDArray[np.int64]
    indices: np.ndarray
    data: np.ndarray
    dtype: np.dtype  # of the dense documents
    refused: float | None  # a value that is an error


def from_sparse(X: Any, forest: Forest) -> Documents:
    """A scipy.sparse matrix or array; formats other than CSR and CSC become CSR first, as in the source libraries.

    Raises
    ------
    InputError
        As `gpuqs.arrays.as_documents`; or the matrix is inconsistent, or holds two entries for one place. A chunk
        raises it if it meets such rows.
    """
    if len(X.shape) != 2 or X.shape[1] != forest.n_features:
        shape = f"shape {tuple(X.shape)}" if len(X.shape) != 2 else f"{X.shape[1]} features"
        mend = ""
        if len(X.shape) == 2 and X.shape[1] < forest.n_features:  # as made by readers of svmlight files
            mend = f"; if the last ones are empty, X.resize(X.shape[0], {forest.n_features}) adds them"
        raise InputError(f"X has {shape}; {trained_on(forest, X.shape[-1])}{mend}")
    if hasattr(X, "get") and type(X).__module__.startswith("cupyx"):
        raise InputError("X is a sparse matrix on a GPU; pass X.get(), which copies it to the host")
    if forest.schema.arrays_hold_values:
        raise InputError(
            f"X is a sparse matrix, but {forest.schema.library} models with categories take only dense documents; "
            "pass a frame with the columns as in training, or X.toarray() if all its values are integers"
        )
    X = _compressed(X)
    if not X.dtype.isnative:
        raise InputError(
            f"X holds {X.dtype.str} values, which are in another byte order than this machine's, and which some "
            f"libraries misread; pass X.astype({X.dtype.newbyteorder('=').name!r})"
        )
    indptr, indices, data = _arrays(X)
    if len(indptr) and indptr[0] != 0:
        raise InputError(f"X is an inconsistent {X.format.upper()} matrix: indptr starts at {indptr[0]}, not at 0")
    _check_missing(data, forest, "X.toarray()")
    dtype = data.dtype if data.dtype in (np.float32, np.float64) else document_dtype(data.dtype, forest)
    if data.dtype.char not in _READ:
        data = data.view(np.uint8) if data.dtype == bool else data.astype(dtype)
    make = _from_csr if X.format == "csr" else _from_csc
    return make(_Matrix(X.shape[0], indptr, indices, data, dtype, _refused(forest)), forest)


def reader_of_few(forest: Forest, max_rows: int) -> Callable[[Any], np.ndarray | None] | None:
    """A fast reader of ordinary CSR matrices of few rows: `from_sparse` takes longer than a small forest's scoring.

    Returns
    -------
    callable or None
        Takes a CSR matrix and returns the columns `Forest.tested` of its rows, or None if `from_sparse` must read it or
        say what is wrong with it. None instead of a callable: this forest's matrices cannot be read this way.
    """
    if forest.ctrs is not None or not forest.schema.arrays_as_they_are or forest.schema.library == "scikit-learn":
        return None
    n_features, n_tested, place_of = forest.n_features, len(forest.tested), forest.place_of
    absent, refused, most = forest.schema.absent, _refused(forest), min(max_rows, _FEW_VALUES // max(n_tested, 1))

    def read(X: Any) -> np.ndarray | None:
        shape = X.shape
        if len(shape) != 2 or shape[1] != n_features or shape[0] > most:
            return None
        rows: np.ndarray | None = sparse.rows_of_csr(
            X.indptr, X.indices, X.data, shape[0], place_of, n_tested, absent, refused
        )
        return rows

    return read


def _refused(forest: Forest) -> float | None:
    """The one value that LightGBM reads as it is in CSR, but as zero in CSC and dense rows."""
    return -ZERO_THRESHOLD if forest.library == "LightGBM" else None


def _check_missing(values: np.ndarray, forest: Forest, dense: str) -> None:
    if forest.schema.library == "scikit-learn" and values.dtype.kind == "f" and np.isnan(values).any():
        raise InputError(
            "X is sparse and holds NaN, which scikit-learn's trees refuse or do not treat as missing there; "
            f"pass {dense}"
        )


def _from_csr(X: _Matrix, forest: Forest) -> Documents:
    n, indptr, indices, data, dtype, refused = X
    if len(indptr) != n + 1:
        raise InputError(f"X is an inconsistent CSR matrix: indptr has length {len(indptr)}, not {n + 1}")
    tested = forest.tested

    def chunk(start: int, stop: int) -> np.ndarray:
        out, seen = np.empty((stop - start, len(tested)), dtype), np.empty(len(tested), np.int64)
        out.fill(forest.schema.absent)
        seen.fill(-1)
        bounds = indptr[start : stop + 1].astype(np.int64, copy=False)
        problem, row, column = sparse.scatter_csr(bounds, indices, data, start, forest.place_of, seen, refused, out)
        if problem:
            raise _error(problem, row, column, "CSR", "row", forest.n_features)
        return out

    return Documents(n, chunk, narrow=True)


def _from_csc(X: _Matrix, forest: Forest) -> Documents:
    n, indptr, indices, data, dtype, refused = X
    tested, n_columns = forest.tested, forest.n_features
    if len(indptr) != n_columns + 1:
        raise InputError(f"X is an inconsistent CSC matrix: indptr has length {len(indptr)}, not {n_columns + 1}")
    n_entries = min(len(indices), len(data))
    indices, data = indices[:n_entries], data[:n_entries]
    bounds = np.stack([indptr[tested], indptr[tested + 1]], axis=1).astype(np.int64)
    problem, at, index = sparse.check_csc(bounds, indices, n)
    if problem == sparse.UNSORTED:
        if forest.schema.library == "LightGBM":
            raise InputError(
                f"X is a CSC matrix whose column {tested[at]} has its rows out of order; LightGBM skips entries there: "
                "call X.sort_indices() first"
            )
        bounds, indices, data = _sorted_columns(bounds, indices, data)
        problem, at, index = sparse.check_csc(bounds, indices, n)
        if problem == sparse.UNSORTED:
            problem = sparse.TWICE
    if problem:
        raise _error(problem, int(tested[at]), index, "CSC", "column", n)

    def chunk(start: int, stop: int) -> np.ndarray:
        out = np.full((len(tested), stop - start), forest.schema.absent, dtype)
        problem, at, row = sparse.scatter_csc(bounds, indices, data, start, refused, out)
        if problem:
            raise _error(problem, row, int(tested[at]), "CSC", "row", n)
        rows: np.ndarray = out.T
        return rows

    return Documents(n, chunk, narrow=True)


def _sorted_columns(
    bounds: npt.NDArray[np.int64], indices: np.ndarray, data: np.ndarray
) -> tuple[npt.NDArray[np.int64], np.ndarray, np.ndarray]:
    """A copy of only the columns in ``bounds``, each one's entries in ascending order; wrong bounds stay wrong."""
    if ((bounds < 0) | (bounds > len(indices))).any() or (bounds[:, 0] > bounds[:, 1]).any():
        return np.full_like(bounds, -1), indices, data
    entries = [np.arange(first, end) for first, end in bounds.tolist()]
    entries = [part[np.argsort(indices[part], kind="stable")] for part in entries]
    ends = np.cumsum([len(part) for part in entries])
    take = np.concatenate([np.zeros(0, np.int64), *entries])
    return np.stack([ends - np.diff(bounds, axis=1)[:, 0], ends], axis=1), indices[take], data[take]


def all_columns(documents: Documents, forest: Forest, start: int, stop: int) -> np.ndarray:
    """A chunk with every column; untested columns that were left out are filled with the value of absent entries."""
    chunk = documents.rows(start, stop)
    if not documents.narrow:
        return chunk
    out = np.full((stop - start, forest.n_features), forest.schema.absent, chunk.dtype)
    out[:, forest.tested] = chunk
    return out


def checked_matrix(X: Any) -> Any:
    """A sparse matrix as CSR or CSC, checked completely, as other libraries may trust what it holds.

    Raises
    ------
    InputError
    """
    X = _compressed(X)
    try:
        X.check_format(full_check=True)
    except ValueError as error:
        raise InputError(f"X is an inconsistent {X.format.upper()} matrix: {error}") from error
    return X


def _compressed(X: Any) -> Any:
    """The matrix as CSR, or unchanged if it is CSC."""
    kind = getattr(X, "format", None)
    if kind in ("csr", "csc"):
        return X
    try:
        # scipy's own conversion trusts what the matrix holds.
        if kind == "coo":
            coords = X.coords if hasattr(X, "coords") else (X.row, X.col)  # before scipy 1.13
            if any(len(c) != len(X.data) for c in coords) or any(
                c.min() < 0 or c.max() >= size for c, size in zip(coords, X.shape, strict=True) if len(c)
            ):
                raise InputError("X is an inconsistent COO matrix: coordinates lie outside its shape")
        elif kind == "bsr":
            X.check_format(full_check=True)
        elif kind == "dia" and (X.data.ndim != 2 or len(X.data) != len(X.offsets)):
            raise InputError("X is an inconsistent DIA matrix: data and offsets differ in length")
        made = X.tocsr()
    except (ValueError, TypeError, IndexError) as error:
        raise InputError(f"X cannot be read as a sparse matrix: {error}") from error
    if getattr(made, "format", None) != "csr":
        raise InputError(f"X is a {type(X).__name__}, not a matrix of scipy.sparse; pass scipy.sparse.csr_matrix(X)")
    return made


def _arrays(X: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The three arrays of a CSR or CSC matrix in the forms that are read; not copied if they have them already."""
    arrays = []
    for name in ("indptr", "indices", "data"):
        array = np.asarray(getattr(X, name))
        if array.ndim != 1 or (name != "data" and array.dtype.kind not in "iu"):
            raise InputError(
                f"X is an inconsistent sparse matrix: {name} is {array.dtype} of {array.ndim} dimensions"
            )
        kind = array.dtype.newbyteorder("=")
        if name == "indices" and kind not in (np.int32, np.int64):
            kind = np.dtype(np.int64)
        flags = array.flags
        as_is = array.dtype == kind and flags.c_contiguous and flags.aligned
        arrays.append(array if as_is else np.require(array, kind, ["C_CONTIGUOUS", "ALIGNED"]))
    return arrays[0], arrays[1], arrays[2]


def _error(problem: int, at: int, index: int, kind: str, what: str, size: int) -> InputError:
    if problem == sparse.TWICE:
        where = f"row {at} holds two entries of column {index}" if what == "row" else f"column {at} holds a row twice"
        return InputError(
            f"X is a {kind} matrix whose {where}, which libraries read in different ways; call X.sum_duplicates() first"
        )
    if problem == sparse.REFUSED:
        return InputError(
            f"X holds {-ZERO_THRESHOLD!r} in row {at}, column {index}, which LightGBM reads as zero only in some "
            "sparse formats; store 0 instead"
        )
    if problem == sparse.OUTSIDE:
        return InputError(f"X is an inconsistent {kind} matrix: {what} {at} holds index {index}, not in [0, {size})")
    return InputError(
        f"X is an inconsistent {kind} matrix: indptr decreases at {what} {at}, or exceeds the number of entries"
    )


def plain_dtype(dtype: Any) -> Any:
    """The NumPy type of the values of a pandas Sparse column; other columns' types as they are."""
    return dtype.subtype if _is_sparse(dtype) else dtype


def all_sparse(dtypes: Collection[Any]) -> bool:
    """Whether these are the types of a pandas frame of Sparse columns of numbers."""
    return bool(dtypes) and all(_is_sparse(dtype) and dtype.subtype.kind in "fiub" for dtype in dtypes)


def from_sparse_frame(frame: Any, forest: Forest) -> Documents:
    """Documents of a pandas frame of features that are `all_sparse`; absent entries are a column's fill value."""
    subtypes = {dtype.subtype for dtype in frame.dtypes}  # pandas takes long to compare its own types
    dtype = document_dtype(np.result_type(np.float32, *subtypes), forest)
    tested = forest.tested.tolist()
    columns = [frame.iloc[:, feature].array for feature in tested]
    places = [column.sp_index.indices for column in columns]
    for column in columns:
        _check_missing(column.sp_values, forest, "X.sparse.to_dense()")

    def chunk(start: int, stop: int) -> np.ndarray:
        out = np.empty((len(tested), stop - start), dtype)
        for to, column, place in zip(out, columns, places, strict=True):
            first, end = np.searchsorted(place, [start, stop])
            to[:] = column.fill_value
            to[place[first:end] - start] = column.sp_values[first:end]
        rows: np.ndarray = out.T
        return rows

    return Documents(len(frame), chunk, narrow=True)


def _is_sparse(dtype: Any) -> bool:
    return hasattr(dtype, "fill_value") and hasattr(dtype, "subtype")
