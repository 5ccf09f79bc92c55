# cython: language_level=3
"""Bytes of files, read and checksummed by several threads."""

import os
import zlib

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libcpp.vector cimport vector

from gpuqs.cpu_fallback.processors import loading_threads
from gpuqs.cpu_fallback.scorer import SHARE_OUT


cdef extern from "readers/crc32.hpp" namespace "gpuqs" nogil:
    cdef cppclass FoldedPart:
        int64_t done
        uint8_t[16] folded

    void fold_parts(const uint8_t* data, const int64_t* ends, int64_t n_parts, uint32_t crc, FoldedPart* parts, int n_threads) except +
    uint32_t crc32_of_both(uint32_t first, uint32_t second, int64_t n)

cdef extern from "readers/file_pages.hpp" namespace "gpuqs" nogil:
    cdef cppclass FileBytes:
        int64_t n
        int error

    FileBytes c_read_file "gpuqs::read_file"(int descriptor, int64_t start, void* to, int64_t n, int n_threads) except +

cdef extern from "driver/threads.hpp" namespace "gpuqs":
    void share_out_by(void* other)

share_out_by(PyCapsule_GetPointer(SHARE_OUT, NULL))

#: Bytes of a part that a thread checksums, and bytes from which on several threads are used.
_PART, _LARGE = 1 << 20, 8 << 20


cdef int threads_for(int64_t n) except -1:
    return loading_threads() if n >= _LARGE else 1


def crc32(const uint8_t[::1] data, uint32_t value=0):
    """The result of `zlib.crc32`, several times as fast if the processor has carry-less multiplication."""
    cdef int64_t n = len(data), n_parts = max(1, n // _PART), p
    cdef int n_threads = threads_for(n)
    cdef vector[int64_t] ends
    cdef vector[FoldedPart] parts
    if n == 0:
        return value
    for p in range(1, n_parts):
        ends.push_back(p * _PART)
    ends.push_back(n)
    parts.resize(n_parts)
    with nogil:
        fold_parts(&data[0], ends.data(), n_parts, ~value, parts.data(), n_threads)
    cdef int64_t start = 0
    for p in range(n_parts):
        of_part = 0 if p else value
        if parts[p].done:
            of_part = zlib.crc32(<bytes>parts[p].folded[:16], 0xFFFFFFFF)  # a register of zeros
        of_part = zlib.crc32(data[start + parts[p].done : ends[p]], of_part)
        value = crc32_of_both(value, of_part, ends[p] - start) if p else of_part
        start = ends[p]
    return value


def read_file(int descriptor, int64_t start, uint8_t[::1] to):
    """Fill ``to`` from byte ``start`` of a seekable file; return how many bytes there were.

    Raises
    ------
    OSError
        As the system says.
    """
    cdef FileBytes read
    cdef int n_threads = threads_for(len(to))
    if len(to) == 0:
        return 0
    with nogil:
        read = c_read_file(descriptor, start, &to[0], len(to), n_threads)
    if read.error:
        raise OSError(read.error, os.strerror(read.error))
    return read.n
