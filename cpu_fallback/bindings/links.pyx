# cython: language_level=3
"""Sums to raw scores and values, without the GIL."""

from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_WRITABLE
from cpython.pycapsule cimport PyCapsule_GetPointer

import numpy as np

from gpuqs.cpu_fallback.scorer cimport Held

from gpuqs.cpu_fallback.scorer import SHARE_OUT


cdef extern from "driver/threads.hpp" namespace "gpuqs":
    void share_out_by(void* other)

cdef extern from "driver/exponentials.hpp" namespace "gpuqs":
    bint has_vector_exponentials()

share_out_by(PyCapsule_GetPointer(SHARE_OUT, NULL))

#: Whether vector code computes exponentials here, equal to the C library's.
VECTOR_EXPONENTIALS = bool(has_vector_exponentials())


cdef class Link:
    """Turns sums into raw scores or values: adds a base score to them, averages, and applies a link.

    Parameters
    ----------
    name : str
        One of `gpuqs.links.KERNELS`.
    dtype : str or dtype
        Type of the sums and of the results, float32 or float64.
    n_outputs : int
    scale : float
        Factor on raw scores inside the link.
    divisor : float
        The trees that sums are averaged over, or 1.
    last : ndarray [n_outputs], optional
        Added to the sums before they are averaged.
    step : float
        For fixed-point sums (int64), whose scores, of type ``dtype``, are ``step`` times the sum plus its base score.
        0: sums are not fixed-point.
    base : ndarray [n_outputs], optional
        Base scores of fixed-point sums.
    """

    def __init__(self, str name, dtype, int n_outputs, double scale=1.0, double divisor=1.0, last=None, double step=0.0,
                 base=None):
        dtype = np.dtype(dtype)
        self.c.link = find_link(name.encode())
        if self.c.link == NULL or dtype not in (np.float32, np.float64):
            raise ValueError(f"there is no link {name!r} of {dtype}")
        self.c.is_double, self.c.n_outputs, self.c.scale, self.c.divisor = dtype == np.float64, n_outputs, scale, divisor
        self.last = None if last is None else np.ascontiguousarray(last, np.float64)
        self.c.last = NULL
        if self.last is not None:
            if self.last.shape != (n_outputs,):
                raise ValueError(f"what is added last must be [{n_outputs}]")
            self.c.last = <const double*><size_t>self.last.ctypes.data
        self.base = np.ascontiguousarray(np.zeros(n_outputs) if base is None else base, np.float64)
        if self.base.shape != (n_outputs,):
            raise ValueError(f"base scores must be [{n_outputs}]")
        self.c.step, self.c.base = step, <const double*><size_t>self.base.ctypes.data

    cdef int fill(self, const Finish& finish, const void* sums, int64_t n, void* out, int n_threads) except -1 nogil:
        """Fill `out` as `finish` says: `c`, or a copy of it with other numbers."""
        c_finish(finish, sums, n, out, n_threads)
        return 0

    def apply(self, sums, out, int n_threads):
        """Fill `out` [documents, outputs] ([documents, 1] from "argmax") from `sums`; both in C order, and may be the
        same."""
        cdef char kind = b"d" if self.c.is_double else b"f"
        cdef Py_ssize_t width = 1 if gives_one(self.c.link) else self.c.n_outputs
        cdef Held held_sums = Held(sums, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)
        cdef Held held_out = Held(out, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | PyBUF_WRITABLE)
        cdef Py_buffer* read = &held_sums.view
        cdef Py_buffer* write = &held_out.view
        if (read.ndim != 2 or write.ndim != 2 or read.shape[1] != self.c.n_outputs or write.shape[1] != width
                or read.shape[0] != write.shape[0] or read.format[0] != kind or write.format[0] != kind):
            raise ValueError(f"sums must be [n, {self.c.n_outputs}], values [n, {width}], of format {chr(kind)!r}")
        with nogil:
            self.fill(self.c, read.buf, read.shape[0], write.buf, n_threads)
