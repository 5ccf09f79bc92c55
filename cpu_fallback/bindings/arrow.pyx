# cython: language_level=3, boundscheck=False, wraparound=False
"""Arrow tables of numbers to dense rows, by Arrow's C data interface: a few microseconds per table, not per
column."""

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int64_t
from libcpp cimport bool as cbool
from libcpp.string cimport string


cdef extern from "readers/arrow_table.hpp" namespace "gpuqs" nogil:
    cdef cppclass ArrowArrayStream:
        pass

    cdef cppclass Table "gpuqs::ArrowTable":
        cbool open(ArrowArrayStream*)
        cbool describe(string&) except +
        cbool read(ArrowArrayStream*) except +
        int64_t n_rows()
        int64_t n_columns()
        cbool fill[Out](int64_t, int64_t, int64_t, Out*)


ctypedef fused out_t:
    float
    double


cdef class ArrowTable:
    """A table that another library exports as a stream.

    Parameters
    ----------
    stream : PyCapsule
        From ``X.__arrow_c_stream__()``; nothing else may read it.

    Attributes
    ----------
    key : bytes or None
        Equal for tables whose columns have the same names and types in the same order. None if a column is nested, or
        of an extension type.
    """

    cdef Table table
    cdef object stream
    cdef readonly object key

    def __cinit__(self, stream):
        cdef string key
        self.stream = stream
        if self.table.open(self.source()) and self.table.describe(key):
            self.key = <bytes>key

    cdef ArrowArrayStream* source(self) except NULL:
        return <ArrowArrayStream*>PyCapsule_GetPointer(self.stream, b"arrow_array_stream")

    def read(self):
        """Take ownership of the rows, once; return whether they are a table's."""
        cdef ArrowArrayStream* source = self.source()
        cdef cbool read
        with nogil:
            read = self.table.read(source)
        self.stream = None
        return read

    def __len__(self):
        return self.table.n_rows()

    def fill(self, const int64_t[::1] columns, int64_t start, out_t[::1, :] out):
        """Fill ``out`` [rows, columns] with rows from ``start`` on of columns of plain numbers; nulls become NaN.

        Raises
        ------
        ValueError
            A column holds something else, or the table has fewer rows or columns.
        """
        cdef int64_t n = out.shape[0], at
        cdef cbool done = columns.shape[0] == out.shape[1] and 0 <= start <= start + n <= self.table.n_rows()
        for at in range(columns.shape[0]):
            done = done and 0 <= columns[at] < self.table.n_columns()
        if done and n and columns.shape[0]:
            with nogil:
                for at in range(columns.shape[0]):
                    done = done and self.table.fill(columns[at], start, start + n, &out[0, at])
        if not done:
            raise ValueError("no such rows of numbers")
