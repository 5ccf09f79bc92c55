# cython: language_level=3, boundscheck=False, wraparound=False
"""Sparse matrices into dense blocks of their tested columns, without the GIL."""

cimport numpy as cnp
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.vector cimport vector


cdef extern from "readers/sparse.hpp" namespace "gpuqs" nogil:
    cdef cppclass SparseResult:
        int problem
        int64_t at
        int64_t index

    SparseResult scatter_rows[Index, Value, Out](
        const int64_t*, const Index*, const Value*, int64_t, int64_t, int64_t, int64_t, const int32_t*, int64_t,
        int64_t*, cbool, double, Out*)
    SparseResult check_columns[Index](const int64_t*, const Index*, int64_t, int64_t, int64_t)
    SparseResult scatter_columns[Index, Value, Out](
        const int64_t*, const Index*, const Value*, int64_t, int64_t, int64_t, cbool, double, Out*)

    int _BOUNDS "gpuqs::SPARSE_BOUNDS"
    int _OUTSIDE "gpuqs::SPARSE_OUTSIDE"
    int _TWICE "gpuqs::SPARSE_TWICE"
    int _UNSORTED "gpuqs::SPARSE_UNSORTED"
    int _REFUSED "gpuqs::SPARSE_REFUSED"

cnp.import_array()

cdef enum:
    MOST_ENTRIES = 1 << 17  # of a matrix of few rows

BOUNDS = _BOUNDS
OUTSIDE = _OUTSIDE
TWICE = _TWICE
UNSORTED = _UNSORTED
REFUSED = _REFUSED

ctypedef fused index_t:
    int32_t
    int64_t

ctypedef fused value_t:
    int8_t
    int16_t
    int32_t
    int64_t
    uint8_t
    uint16_t
    uint32_t
    uint64_t
    float
    double

ctypedef fused out_t:
    float
    double


def scatter_csr(const int64_t[::1] bounds, const index_t[::1] indices, const value_t[::1] data, int64_t start,
                const int32_t[::1] column_of, int64_t[::1] seen, refused, out_t[:, ::1] out):
    """Put rows of CSR into ``out`` [rows, tested columns], which holds what absent entries are.

    Parameters
    ----------
    bounds : int64 [rows + 1]
        The rows' part of ``indptr``.
    indices, data
        The whole matrix's.
    start : int
        The number of the first row.
    column_of : int32 [columns]
        The place of a column among those tested, or -1.
    seen : int64 [tested columns]
        Scratch; holds numbers of no row from ``start`` on.
    refused : float or None
        A value that is not taken.

    Returns
    -------
    problem, at, index : int
        0 where all is well; else what is wrong, in which row, and the index at fault.
    """
    cdef SparseResult result
    cdef int64_t n = out.shape[0], tested = out.shape[1], columns = column_of.shape[0]
    cdef int64_t entries = min(indices.shape[0], data.shape[0])
    cdef cbool refuses = refused is not None
    cdef double value = refused if refuses else 0.0
    if bounds.shape[0] != n + 1 or seen.shape[0] != tested:
        raise ValueError("bounds or seen do not fit the rows")
    if n == 0 or entries == 0 or tested == 0 or columns == 0:
        return _empty(bounds, entries, start) if tested == 0 or columns == 0 or entries == 0 else (0, 0, 0)
    with nogil:
        result = scatter_rows(&bounds[0], &indices[0], &data[0], entries, start, n, columns, &column_of[0], tested,
                              &seen[0], refuses, value, &out[0, 0])
    return result.problem, result.at, result.index


cdef _empty(const int64_t[::1] bounds, int64_t entries, int64_t start):
    """The outcome where nothing can be put anywhere: only whether the rows' bounds are right."""
    cdef int64_t row
    for row in range(bounds.shape[0] - 1):
        if not 0 <= bounds[row] <= bounds[row + 1] <= entries:
            return _BOUNDS, start + row, 0
    return 0, 0, 0


def check_csc(const int64_t[:, ::1] bounds, const index_t[::1] indices, int64_t n_rows):
    """Whether columns' entries, from and up to ``bounds`` [columns, 2], are rows in strictly ascending order.

    Returns
    -------
    problem, at, index : int
        As from `scatter_csr`; ``at`` is a number of ``bounds``.
    """
    cdef SparseResult result
    cdef int64_t columns = bounds.shape[0], entries = indices.shape[0]
    cdef const int64_t* first = &bounds[0, 0] if columns else NULL
    cdef const index_t* all_indices = &indices[0] if entries else NULL
    with nogil:
        result = check_columns(first, all_indices, entries, n_rows, columns)
    return result.problem, result.at, result.index


def scatter_csc(const int64_t[:, ::1] bounds, const index_t[::1] indices, const value_t[::1] data, int64_t start,
                refused, out_t[:, ::1] out):
    """Put rows of columns for which `check_csc` has nothing to say into ``out`` [columns, rows].

    Parameters and results as of `scatter_csr`, ``bounds`` as of `check_csc`; ``data`` is as long as ``indices``.
    """
    cdef SparseResult result
    cdef int64_t columns = out.shape[0], n = out.shape[1]
    cdef cbool refuses = refused is not None
    cdef double value = refused if refuses else 0.0
    if bounds.shape[0] != columns or data.shape[0] < indices.shape[0]:
        raise ValueError("bounds or data do not fit the columns")
    if columns == 0 or n == 0 or indices.shape[0] == 0:
        return 0, 0, 0
    with nogil:
        result = scatter_columns(&bounds[0, 0], &indices[0], &data[0], start, n, columns, refuses, value, &out[0, 0])
    return result.problem, result.at, result.index


cdef int scatter_all(const int32_t* indptr, const int32_t* indices, const out_t* data, int64_t entries, int64_t n,
                     const int32_t[::1] column_of, int64_t tested, double absent, refused, out_t* out) except -1:
    """All rows into ``out`` [n, tested]; what is wrong with them, or 0."""
    cdef vector[int64_t] bounds, seen
    cdef int64_t at
    cdef cbool refuses = refused is not None
    bounds.resize(n + 1)
    for at in range(n + 1):
        bounds[at] = indptr[at]
    seen.resize(tested)
    for at in range(tested):
        seen[at] = -1
    for at in range(n * tested):
        out[at] = <out_t>absent
    return scatter_rows(bounds.data(), indices, data, entries, 0, n, column_of.shape[0], &column_of[0], tested, seen.data(),
                        refuses, <double>refused if refuses else 0.0, out).problem


def rows_of_csr(indptr, indices, data, int64_t n, const int32_t[::1] column_of, int64_t tested, double absent, refused):
    """The tested columns of a small CSR matrix as rows [n, tested]; ``absent`` is what absent entries are, the rest as above.

    None: it is not as most are (indices of 32 bits, data of native floats), has many entries, or something is wrong with it.
    """
    cdef cnp.npy_intp[2] shape
    cdef cnp.ndarray out
    cdef const int32_t* bounds
    cdef const int32_t* columns
    cdef const void* values
    cdef void* to
    cdef int64_t entries
    cdef int problem
    if not (type(indptr) is type(indices) is type(data) is cnp.ndarray and n > 0 and tested > 0 and column_of.shape[0] > 0):
        return None
    for array, kinds in ((indptr, (cnp.NPY_INT32,)), (indices, (cnp.NPY_INT32,)), (data, (cnp.NPY_FLOAT, cnp.NPY_DOUBLE))):
        if cnp.PyArray_NDIM(array) != 1 or cnp.PyArray_TYPE(array) not in kinds or not cnp.PyArray_ISCARRAY_RO(array):
            return None
    bounds, columns = <const int32_t*>cnp.PyArray_DATA(indptr), <const int32_t*>cnp.PyArray_DATA(indices)
    if cnp.PyArray_DIM(indptr, 0) != n + 1 or bounds[0] != 0:
        return None
    entries = min(cnp.PyArray_DIM(indices, 0), cnp.PyArray_DIM(data, 0))
    if entries > MOST_ENTRIES:  # Python's lock is kept
        return None
    shape[0], shape[1] = n, tested
    out = cnp.PyArray_EMPTY(2, shape, cnp.PyArray_TYPE(data), False)
    values, to = cnp.PyArray_DATA(data), cnp.PyArray_DATA(out)
    if cnp.PyArray_TYPE(data) == cnp.NPY_FLOAT:
        problem = scatter_all(bounds, columns, <const float*>values, entries, n, column_of, tested, absent, refused, <float*>to)
    else:
        problem = scatter_all(bounds, columns, <const double*>values, entries, n, column_of, tested, absent, refused, <double*>to)
    return None if problem else out
