# cython: language_level=3, boundscheck=False, wraparound=False
"""Nested lists of Python numbers as documents: the result of `numpy.asarray`, in a fraction of its time.

Anything else is not read here, but left to NumPy.
"""

import numpy as np

cimport numpy as cnp
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_CheckExact
from cpython.ref cimport PyObject
from cython cimport critical_section
from libc.math cimport NAN

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


cdef int read_row(PyObject** items, Py_ssize_t n, double* to) noexcept:
    """Write numbers to ``to``; return what there is besides integers, as the bits above, or -1 for anything else."""
    cdef int kinds = 0, overflows = 0
    cdef long long integer
    for at in range(n):
        item = <object>items[at]
        if PyFloat_CheckExact(item):
            to[at] = PyFloat_AS_DOUBLE(item)
            kinds |= FRACTION
        elif item is None:
            to[at] = NAN
            kinds |= MISSING
        elif PyLong_CheckExact(item) or item is True or item is False:
            integer = PyLong_AsLongLongAndOverflow(item, &overflows)
            if overflows or not -(1LL << EXACT_BITS) <= integer <= 1LL << EXACT_BITS:
                return -1
            to[at] = <double>integer
        elif type(item) is float64:
            to[at] = PyFloat_AS_DOUBLE(item)
            kinds |= FRACTION
        else:
            return -1
    return kinds


cpdef rows_of(X, Py_ssize_t n_columns, bint single):
    """Lists or tuples of floats, integers, bools and None, in a list or tuple, as float64 [rows, n_columns].

    The result is float32 if ``single``, and there is no float or there is a None among the items, as the libraries
    cast what NumPy makes of such lists. It is None if there is anything else, or a row of another length.
    """
    cdef tuple rows = tuple(X)  # another thread may change a list meanwhile
    cdef Py_ssize_t n = len(rows), length, at
    cdef cnp.npy_intp[2] shape
    cdef cnp.ndarray out, rounded
    cdef int kinds = 0, of_row
    cdef double* to
    cdef double* numbers
    cdef float* singles
    cdef CDefaultFloatMode mode
    if n == 0 or n_columns == 0 or not (type(rows[0]) is list or type(rows[0]) is tuple) or len(rows[0]) != n_columns:
        return None
    shape[0], shape[1] = n, n_columns
    out = cnp.PyArray_EMPTY(2, shape, cnp.NPY_DOUBLE, False)
    numbers = to = <double*>cnp.PyArray_DATA(out)
    for row in rows:
        if type(row) is not list and type(row) is not tuple:
            return None
        with critical_section(row):
            length = len(row)
            of_row = read_row(PySequence_Fast_ITEMS(<PyObject*>row), n_columns, to) if length == n_columns else -1
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
