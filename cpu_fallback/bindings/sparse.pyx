# cython: language_level=3, boundscheck=False, wraparound=False
"""Write sparse matrices into dense blocks of their tested columns, without the GIL."""

cimport numpy as cnp
from libc.stdint cimport int32_t, int64_t
from libcpp cimport bool as cbool
from libcpp.vector cimport vector


cdef extern from "readers/sparse.hpp" namespace "gpuqs" nogil:
    cdef cppclass SparseResult:
        int problem
        int64_t at
        int64_t index

    struct Numbers:
        const void* first
        char kind
        int bytes

    struct SparseEntries:
        Numbers indices
        Numbers data
        int64_t n
        cbool refuses
        double refused

    struct DenseRows:
        void* first
        cbool is_double
        int64_t n
        int64_t n_tested

    SparseResult scatter_rows(
        const int64_t*, const SparseEntries&, int64_t, int64_t, const int32_t*, int64_t*, const DenseRows&)
    SparseResult check_columns(const int64_t*, const Numbers&, int64_t, int64_t, int64_t)
    SparseResult scatter_columns(const int64_t*, const SparseEntries&, int64_t, const DenseRows&)

    int _BOUNDS "gpuqs::SPARSE_BOUNDS"
    int _OUTSIDE "gpuqs::SPARSE_OUTSIDE"
    int _TWICE "gpuqs::SPARSE_TWICE"
    int _UNSORTED "gpuqs::SPARSE_UNSORTED"
    int _REFUSED "gpuqs::SPARSE_REFUSED"
    int _UNREAD "gpuqs::SPARSE_UNREAD"

cnp.import_array()

cdef enum:
    MAX_ENTRIES = 1 << 17  # of a matrix that is read with the GIL held

BOUNDS = _BOUNDS
OUTSIDE = _OUTSIDE
TWICE = _TWICE
UNSORTED = _UNSORTED
REFUSED = _REFUSED


cdef Numbers numbers_of(cnp.ndarray array) except *:
    cdef Numbers numbers
    if cnp.PyArray_NDIM(array) != 1 or not cnp.PyArray_ISCARRAY_RO(array):
        raise ValueError("an array has several dimensions, or does not lie as it is read")
    numbers.first, numbers.bytes = cnp.PyArray_DATA(array), cnp.PyArray_ITEMSIZE(array)
    numbers.kind = array.descr.kind
    return numbers


cdef SparseEntries entries_of(cnp.ndarray indices, cnp.ndarray data, refused) except *:
    cdef SparseEntries entries
    entries.indices, entries.data = numbers_of(indices), numbers_of(data)
    entries.n = min(cnp.PyArray_DIM(indices, 0), cnp.PyArray_DIM(data, 0))
    entries.refuses = refused is not None
    entries.refused = <double>refused if entries.refuses else 0.0
    return entries


cdef DenseRows rows_to(cnp.ndarray out, int64_t n, int64_t n_tested) except *:
    cdef DenseRows rows
    if cnp.PyArray_NDIM(out) != 2 or cnp.PyArray_TYPE(out) not in (cnp.NPY_FLOAT, cnp.NPY_DOUBLE) or not cnp.PyArray_ISCARRAY(out):
        raise ValueError("rows are no array of float32 or float64 of two dimensions that can be written")
    rows.first, rows.is_double = cnp.PyArray_DATA(out), cnp.PyArray_TYPE(out) == cnp.NPY_DOUBLE
    rows.n, rows.n_tested = n, n_tested
    return rows


cdef outcome(SparseResult result):
    if result.problem == _UNREAD:
        raise TypeError("indices are neither int32 nor int64, or data no integers, float32 or float64")
    return result.problem, result.at, result.index


def scatter_csr(const int64_t[::1] bounds, cnp.ndarray indices not None, cnp.ndarray data not None, int64_t start,
                const int32_t[::1] column_of, int64_t[::1] seen, refused, cnp.ndarray out not None):
    """Put rows of CSR into ``out`` [rows, tested columns], which already holds the value of absent entries.

    Parameters
    ----------
    bounds : int64 [rows + 1]
        The rows' part of ``indptr``.
    indices, data
        The whole matrix's.
    start : int
        The number of the first row.
    column_of : int32 [columns]
        The place of a column among the tested ones, or -1.
    seen : int64 [tested columns]
        Scratch; must not hold the number of any row from ``start`` on.
    refused : float or None
        A value that is an error.

    Returns
    -------
    problem, at, index : int
        0 if all is well; else what is wrong, in which row, and the index at fault.
    """
    cdef SparseResult result
    cdef int64_t n = out.shape[0], tested = out.shape[1], columns = column_of.shape[0]
    cdef SparseEntries entries = entries_of(indices, data, refused)
    cdef DenseRows rows = rows_to(out, n, tested)
    if bounds.shape[0] != n + 1 or seen.shape[0] != tested:
        raise ValueError("bounds or seen do not fit the rows")
    if n == 0 or entries.n == 0 or tested == 0 or columns == 0:
        return _empty(bounds, entries.n, start) if n else (0, 0, 0)
    with nogil:
        result = scatter_rows(&bounds[0], entries, start, columns, &column_of[0], &seen[0], rows)
    return outcome(result)


cdef _empty(const int64_t[::1] bounds, int64_t entries, int64_t start):
    """The outcome if there is nothing to put anywhere: it only says whether the rows' bounds are right."""
    cdef int64_t row
    for row in range(bounds.shape[0] - 1):
        if not 0 <= bounds[row] <= bounds[row + 1] <= entries:
            return _BOUNDS, start + row, 0
    return 0, 0, 0


def check_csc(const int64_t[:, ::1] bounds, cnp.ndarray indices not None, int64_t n_rows):
    """Check that columns' entries, from and up to ``bounds`` [columns, 2], are rows in strictly ascending order.

    Returns
    -------
    problem, at, index : int
        As from `scatter_csr`; ``at`` is an index into ``bounds``.
    """
    cdef SparseResult result
    cdef int64_t columns = bounds.shape[0]
    cdef int64_t entries = indices.shape[0]
    cdef Numbers numbers = numbers_of(indices)
    cdef const int64_t* first = &bounds[0, 0] if columns else NULL
    with nogil:
        result = check_columns(first, numbers, entries, n_rows, columns)
    return outcome(result)


def scatter_csc(const int64_t[:, ::1] bounds, cnp.ndarray indices not None, cnp.ndarray data not None, int64_t start,
                refused, cnp.ndarray out not None):
    """Put rows of columns that passed `check_csc` into ``out`` [columns, rows].

    Parameters and results are as in `scatter_csr`, ``bounds`` as in `check_csc`; ``data`` is as long as ``indices``.
    """
    cdef SparseResult result
    cdef int64_t columns = out.shape[0], n = out.shape[1]
    cdef SparseEntries entries = entries_of(indices, data, refused)
    cdef DenseRows rows = rows_to(out, n, columns)
    if bounds.shape[0] != columns or data.shape[0] < indices.shape[0]:
        raise ValueError("bounds or data do not fit the columns")
    if columns == 0 or n == 0 or entries.n == 0:
        return 0, 0, 0
    with nogil:
        result = scatter_columns(&bounds[0, 0], entries, start, rows)
    return outcome(result)


def rows_of_csr(indptr, indices, data, int64_t n, const int32_t[::1] column_of, int64_t tested, double absent, refused):
    """The tested columns of a small CSR matrix as rows [n, tested]; ``absent`` is the value of absent entries, the
    rest as above.

    None if it is not as most are (32-bit indices, data of native floats), has many entries, or is invalid.
    """
    cdef cnp.npy_intp[2] shape
    cdef cnp.ndarray out
    cdef vector[int64_t] bounds, seen
    cdef const int32_t* first_of
    cdef SparseEntries entries
    if not (type(indptr) is type(indices) is type(data) is cnp.ndarray and n > 0 and tested > 0 and column_of.shape[0] > 0):
        return None
    for array, kinds in ((indptr, (cnp.NPY_INT32,)), (indices, (cnp.NPY_INT32,)), (data, (cnp.NPY_FLOAT, cnp.NPY_DOUBLE))):
        if cnp.PyArray_NDIM(array) != 1 or cnp.PyArray_TYPE(array) not in kinds or not cnp.PyArray_ISCARRAY_RO(array):
            return None
    first_of = <const int32_t*>cnp.PyArray_DATA(indptr)
    entries = entries_of(indices, data, refused)
    if cnp.PyArray_DIM(indptr, 0) != n + 1 or first_of[0] != 0 or entries.n > MAX_ENTRIES:  # the GIL is held
        return None
    bounds.assign(first_of, first_of + n + 1)
    seen.assign(tested, <int64_t>-1)
    shape[0], shape[1] = n, tested
    out = cnp.PyArray_EMPTY(2, shape, cnp.PyArray_TYPE(data), False)
    cnp.PyArray_FillWithScalar(out, absent)
    if scatter_rows(bounds.data(), entries, 0, column_of.shape[0], &column_of[0], seen.data(), rows_to(out, n, tested)).problem:
        return None
    return out
