# cython: language_level=3, boundscheck=False, wraparound=False
"""CatBoost's statistics of categories (CTRs), and the hashes by which it knows categories, without the GIL."""

import numpy as np

from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libcpp.vector cimport vector


cdef extern from "readers/city_hash.hpp" namespace "gpuqs" nogil:
    uint64_t city_hash_64(const char* text, uint64_t n)

cdef extern from "readers/ctr_columns.hpp" namespace "gpuqs" nogil:
    int32_t CTR_CATEGORY, CTR_ABOVE, CTR_EQUALS
    int64_t CTR_WINDOW
    uint64_t CTR_FACTOR

    cdef cppclass CtrElement:
        int32_t kind
        int32_t column
        float border
        int32_t nan_above
        uint32_t hash
        uint64_t factor

    cdef cppclass CtrProjection:
        const CtrElement* elements
        int64_t n_elements
        const uint64_t* keys
        const uint32_t* starts
        const float* values
        int64_t n_keys
        int32_t bits
        int32_t n_ctrs
        int32_t first

    void fill_ctrs(const double* given, int64_t given_step, const CtrProjection* projections, int64_t n_projections,
                   int64_t start, int64_t n, int64_t out_step, float* out)


def text_hashes(texts):
    """CatBoost's hashes of texts, uint32 [n]: the low bits of CityHash64 of their UTF-8; 0 for None."""
    cdef Py_ssize_t at, length
    cdef const char* start
    hashes = np.zeros(len(texts), np.uint32)
    cdef uint32_t[::1] out = hashes
    for at, text in enumerate(texts):
        if text is not None:
            start = PyUnicode_AsUTF8AndSize(text, &length)
            out[at] = <uint32_t>city_hash_64(start, length)
    return hashes


cdef class CtrTable:
    """Projections with the values of their CTRs, ready for documents.

    Parameters
    ----------
    projections : sequence of gpuqs.ctrs.Projection
        Checked, and immutable.
    n_given : int
        Columns of the documents, categories as hashes; the CTRs' columns follow them.
    """

    cdef vector[vector[CtrElement]] _elements
    cdef vector[CtrProjection] _projections
    cdef list _arrays
    cdef readonly int64_t n_given, n_columns

    def __cinit__(self, projections, int64_t n_given):
        cdef CtrProjection made
        cdef const uint64_t[::1] keys
        cdef const uint32_t[::1] starts
        cdef const float[:, ::1] values
        cdef Py_ssize_t at
        self.n_given, self.n_columns, self._arrays = n_given, n_given, []
        self._elements.resize(len(projections))
        for at, projection in enumerate(projections):
            self._add_elements(self._elements[at], projection)
            n_keys = len(projection.keys)
            bits = min(max(1, n_keys.bit_length() - 2), 31)  # two to four keys in a window's place
            # The first key of each group of keys whose upper bits are the same.
            ends = np.searchsorted(projection.keys, np.arange(1, 1 << bits, dtype=np.uint64) << np.uint64(64 - bits))
            made_arrays = (
                np.concatenate([projection.keys, np.full(CTR_WINDOW, -1).astype(np.uint64)]),
                np.concatenate([[0], ends, [n_keys]]).astype(np.uint32),
                projection.values,
            )
            self._arrays.append(made_arrays)
            keys, starts, values = made_arrays
            made.elements, made.n_elements = self._elements[at].data(), self._elements[at].size()
            made.keys, made.starts, made.values, made.n_keys = &keys[0], &starts[0], &values[0, 0], n_keys
            made.bits, made.n_ctrs, made.first = bits, values.shape[1], self.n_columns
            self.n_columns += values.shape[1]
            self._projections.push_back(made)

    cdef _add_elements(self, vector[CtrElement]& elements, projection):
        cdef CtrElement element
        for column in projection.categories:
            element.kind, element.column = CTR_CATEGORY, column
            element.border, element.nan_above, element.hash = 0, 0, 0
            elements.push_back(element)
        for column, border, nan_above in projection.above:
            element.kind, element.column, element.border, element.nan_above = CTR_ABOVE, column, border, nan_above
            elements.push_back(element)
        for column, value in projection.equals:
            element.kind, element.column, element.hash = CTR_EQUALS, column, value
            elements.push_back(element)
        cdef uint64_t factor = CTR_FACTOR
        cdef int64_t e
        for e in range(<int64_t>elements.size() - 1, -1, -1):
            factor *= CTR_FACTOR
            elements[e].factor = factor

    def fill(self, const double[::1, :] given, float[::1, :] out):
        """Fill the CTRs' columns of ``out`` [D, n_columns] for documents ``given`` [D, n_given]."""
        cdef int64_t n = given.shape[0]
        if given.shape[1] != self.n_given or out.shape[0] != n or out.shape[1] != self.n_columns:
            raise ValueError("documents do not fit the columns")
        if n == 0 or self._projections.empty():
            return
        with nogil:
            fill_ctrs(&given[0, 0], n, self._projections.data(), self._projections.size(), 0, n, n, &out[0, 0])
