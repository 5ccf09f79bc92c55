# cython: language_level=3, boundscheck=False, wraparound=False
"""Nested lists as documents: of Python numbers, the result of `numpy.asarray`, in a fraction of its time; and of numbers
and categories.

Anything else is not read here, but left to NumPy.
"""

import numpy as np

cimport numpy as cnp
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_CheckExact
from cpython.ref cimport PyObject
from cython cimport critical_section
from libc.math cimport NAN
from libc.stdint cimport uint8_t, uint32_t

from gpuqs.cpu_fallback.ctrs cimport write_hash
from gpuqs.cpu_fallback.float_mode cimport CDefaultFloatMode

cdef extern from "Python.h":
    PyObject** PySequence_Fast_ITEMS(PyObject*)

cdef enum:
    FRACTION = 1  # a float
    MISSING = 2  # None

cdef enum:
    EXACT_BITS = 53  # of integers that a double holds exactly

cnp.import_array()

cdef object float64 = np.float64  # a subclass of Python's float


cdef inline int read_number(PyObject* of, double* to) noexcept:
    """Write a number to ``to``; return 0 for integers, one of the bits above for others, or -1 for anything else."""
    cdef int overflows = 0
    cdef long long integer
    item = <object>of
    if PyFloat_CheckExact(item) or type(item) is float64:
        to[0] = PyFloat_AS_DOUBLE(item)
        return FRACTION
    if item is None:
        to[0] = NAN
        return MISSING
    if PyLong_CheckExact(item) or item is True or item is False:
        integer = PyLong_AsLongLongAndOverflow(item, &overflows)
        if overflows or not -(1LL << EXACT_BITS) <= integer <= 1LL << EXACT_BITS:
            return -1
        to[0] = <double>integer
        return 0
    return -1


cdef int read_row(PyObject** items, Py_ssize_t n, double* to) noexcept:
    """Write numbers to ``to``; return what there is besides integers, as the bits above, or -1 for anything else."""
    cdef int kinds = 0, kind
    cdef Py_ssize_t at
    for at in range(n):
        kind = read_number(items[at], to + at)
        if kind < 0:
            return -1
        kinds |= kind
    return kinds


cdef inline bint is_row(row, Py_ssize_t n_columns) noexcept:
    return (type(row) is list or type(row) is tuple) and len(row) == n_columns


cpdef rows_of(X, Py_ssize_t n_columns, bint single):
    """Lists or tuples of floats, integers, bools and None, in a list or tuple, as float64 [rows, n_columns].

    The result is float32 if ``single``, and there is no float or there is a None among the items, as the libraries
    cast what NumPy makes of such lists. It is None if there is anything else, or a row of another length.
    """
    cdef tuple rows = tuple(X)  # another thread may change a list meanwhile
    cdef Py_ssize_t n = len(rows), at
    cdef cnp.npy_intp[2] shape
    cdef cnp.ndarray out, rounded
    cdef int kinds = 0, of_row
    cdef double* to
    cdef double* numbers
    cdef float* singles
    cdef CDefaultFloatMode mode
    if n == 0 or n_columns == 0 or not is_row(rows[0], n_columns):
        return None
    shape[0], shape[1] = n, n_columns
    out = cnp.PyArray_EMPTY(2, shape, cnp.NPY_DOUBLE, False)
    numbers = to = <double*>cnp.PyArray_DATA(out)
    for row in rows:
        with critical_section(row):
            of_row = read_row(PySequence_Fast_ITEMS(<PyObject*>row), n_columns, to) if is_row(row, n_columns) else -1
        if of_row < 0:
            return None
        kinds |= of_row
        to += n_columns
    if not single or kinds == FRACTION:
        return out
    rounded = cnp.PyArray_EMPTY(2, shape, cnp.NPY_FLOAT, False)
    singles = <float*>cnp.PyArray_DATA(rounded)
    mode.hold()  # until this returns
    for at in range(n * n_columns):
        singles[at] = <float>numbers[at]
    return rounded


cdef int read_values(PyObject** items, const uint8_t[::1] is_category, Py_ssize_t stride, double* to) except -1:
    """Write a row, of which every ``stride``-th number of ``to`` is meant; return 0 if it holds anything else."""
    cdef uint32_t hashed = 0
    cdef Py_ssize_t at
    for at in range(is_category.shape[0]):
        if is_category[at]:
            if not write_hash(<object>items[at], &hashed):
                return 0
            to[at * stride] = hashed
        elif read_number(items[at], to + at * stride) < 0:
            return 0
    return 1


def rows_of_values(X, const uint8_t[::1] is_category not None, bint single):
    """Lists or tuples of numbers and categories, in a list or tuple, as float64 [rows, columns] in Fortran order.

    Categories are strings and integers, which become their hashes (`gpuqs.cpu_fallback.ctrs`); ``is_category`` says of
    each column whether it holds such. Numbers are rounded to float32 if ``single``. The result is None if there is
    anything else, or a row of another length.
    """
    cdef tuple rows = tuple(X)  # another thread may change a list meanwhile
    cdef Py_ssize_t n = len(rows), n_columns = is_category.shape[0], at, column
    cdef cnp.npy_intp[2] shape
    cdef cnp.ndarray out
    cdef double* numbers
    cdef int is_read
    cdef CDefaultFloatMode mode
    if n == 0 or n_columns == 0 or not is_row(rows[0], n_columns):
        return None
    shape[0], shape[1] = n, n_columns
    out = cnp.PyArray_EMPTY(2, shape, cnp.NPY_DOUBLE, True)
    numbers = <double*>cnp.PyArray_DATA(out)
    for at in range(n):
        row = rows[at]
        with critical_section(row):
            is_read = 0
            if is_row(row, n_columns):
                try:
                    is_read = read_values(PySequence_Fast_ITEMS(<PyObject*>row), is_category, n, numbers + at)
                except ValueError:  # a lone surrogate, or thousands of digits: refused with the column's name elsewhere
                    pass
        if not is_read:
            return None
    if single:
        mode.hold()  # until this returns
        for column in range(n_columns):
            if not is_category[column]:
                for at in range(column * n, (column + 1) * n):
                    numbers[at] = <float>numbers[at]
    return out
