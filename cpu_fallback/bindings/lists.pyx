# cython: language_level=3, boundscheck=False, wraparound=False
"""Nested lists of Python's numbers as documents: what `numpy.asarray` makes of them, in a fraction of its time.

Of all else nothing is said here but that it is not read: NumPy has it then.
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
    EXACT_BITS = 53  # of a whole number that a double holds

cnp.import_array()

cdef object float64 = np.float64  # a kind of Python's float


cdef int read_row(PyObject** items, Py_ssize_t n, double* to) noexcept:
    """Numbers into ``to``; what they are beside whole ones, as the bits above, or -1: there is something else among them."""
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
    """Rows of a list or tuple of these, whose items are floats, whole numbers, bools or None: float64 [rows, n_columns].

    Float32 where ``single``, and there is no float among them, or a None, as the libraries cast what NumPy makes of such.
    None: there is anything else, or a row of another length.
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
