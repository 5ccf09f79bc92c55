# cython: language_level=3, boundscheck=False, wraparound=False
"""CatBoost's statistics of categories (CTRs), and the hashes by which it identifies categories, without the GIL."""

import numpy as np

from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.pycapsule cimport PyCapsule_GetPointer
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libcpp.vector cimport vector

from gpuqs.cpu_fallback.scorer import SHARE_OUT

cdef extern from "driver/threads.hpp" namespace "gpuqs":
    void share_out_by(void* other)

share_out_by(PyCapsule_GetPointer(SHARE_OUT, NULL))

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

    cdef cppclass CtrOfGroup:
        const CtrElement* tests
        int64_t n_tests
        int32_t at
        int32_t n_ctrs
        int32_t first

    cdef cppclass CtrGroup:
        CtrProjection category
        const CtrOfGroup* members
        int64_t n_members
        const float* values
        int64_t size

    void fill_ctrs(const double* given, const CtrProjection* projections, int64_t n_projections, const CtrGroup* groups,
                   int64_t n_groups, int64_t n, float* out, int n_threads) except +


def text_hashes(texts):
    """CatBoost's hashes of strings, uint32 [n]: the low bits of CityHash64 of their UTF-8; 0 for None."""
    cdef Py_ssize_t at, length
    cdef const char* start
    hashes = np.zeros(len(texts), np.uint32)
    cdef uint32_t[::1] out = hashes
    for at, text in enumerate(texts):
        if text is not None:
            start = PyUnicode_AsUTF8AndSize(text, &length)
            out[at] = <uint32_t>city_hash_64(start, length)
    return hashes


cdef uint32_t hash_of_number(uint64_t magnitude, bint negative) noexcept nogil:
    """The hash of a number's decimal string."""
    cdef char text[21]
    cdef int at = 21
    while True:
        at -= 1
        text[at] = 48 + <char>(magnitude % 10)
        magnitude //= 10
        if magnitude == 0:
            break
    if negative:
        at -= 1
        text[at] = 45
    return <uint32_t>city_hash_64(text + at, 21 - at)


cdef uint32_t hash_of_integer(int64_t number) noexcept nogil:
    return hash_of_number(-<uint64_t>number if number < 0 else <uint64_t>number, number < 0)


cdef int write_hash(value, uint32_t* to) except -1:
    """Write the hash of a string or an integer, and return 1; 0 for anything else."""
    cdef Py_ssize_t length
    cdef int overflows = 0
    cdef long long number
    cdef const char* start
    if type(value) is int:
        number = PyLong_AsLongLongAndOverflow(value, &overflows)
        if not overflows:
            to[0] = hash_of_integer(number)
            return 1
        value = str(value)
    elif type(value) is not str:
        return 0
    start = PyUnicode_AsUTF8AndSize(value, &length)
    to[0] = <uint32_t>city_hash_64(start, length)
    return 1


def object_hashes(values):
    """The hashes of an array of strings and integers, uint32 [n]; None if anything else is among them."""
    cdef Py_ssize_t at
    cdef list items = values.tolist()
    hashes = np.empty(len(items), np.uint32)
    cdef uint32_t[::1] out = hashes
    for at, value in enumerate(items):
        if not write_hash(value, &out[at]):
            return None
    return hashes


def integer_hashes(values):
    """The hashes of an array of integers, or of booleans (as 1 and 0), uint32 [n]."""
    cdef Py_ssize_t at
    cdef const int64_t[:] signed
    cdef const uint64_t[:] unsigned
    hashes = np.empty(len(values), np.uint32)
    cdef uint32_t[::1] out = hashes
    if values.dtype.kind == "u":
        unsigned = values.astype(np.uint64)
        with nogil:
            for at in range(out.shape[0]):
                out[at] = hash_of_number(unsigned[at], False)
    else:
        signed = values.astype(np.int64)
        with nogil:
            for at in range(out.shape[0]):
                out[at] = hash_of_integer(signed[at])
    return hashes


ctypedef fused place:
    int32_t
    int64_t


def buffer_hashes(const place[::1] offsets, const uint8_t[::1] text):
    """The hashes of strings, uint32 [n], of which each is ``text[offsets[i]:offsets[i + 1]]``.

    Raises
    ------
    ValueError
        The offsets do not rise within the text.
    """
    cdef int64_t at, n = offsets.shape[0] - 1, end = text.shape[0]
    hashes = np.empty(max(n, 0), np.uint32)
    cdef uint32_t[::1] out = hashes
    cdef const uint8_t* first = &text[0] if end else NULL
    for at in range(n):
        if not 0 <= offsets[at] <= offsets[at + 1] <= end:
            raise ValueError("offsets do not rise within the text")
    with nogil:
        for at in range(n):
            out[at] = <uint32_t>city_hash_64(<const char*>first + offsets[at], offsets[at + 1] - offsets[at])
    return hashes


cdef class CtrTable:
    """Projections with the values of their CTRs, ready for documents.

    Parameters
    ----------
    projections : sequence of gpuqs.ctrs.Projection
        Checked, and immutable.
    groups : sequence of gpuqs.ctr_groups.Group
        Groups of some of the projections.
    n_given : int
        Columns of the documents, categories as hashes; the CTRs' columns follow them.
    """

    cdef vector[vector[CtrElement]] _elements
    cdef vector[CtrProjection] _alone
    cdef vector[vector[CtrOfGroup]] _members
    cdef vector[CtrGroup] _groups
    cdef list _arrays
    cdef readonly int64_t n_given, n_columns

    def __cinit__(self, projections, groups, int64_t n_given):
        cdef CtrProjection made
        cdef Py_ssize_t at
        self.n_given, self.n_columns, self._arrays = n_given, n_given, []
        in_groups = {number for group in groups for number, _ in group.members}
        first = []
        self._elements.resize(len(projections) + len(groups))
        for at, projection in enumerate(projections):
            self._add_elements(self._elements[at], projection.categories, projection.above, projection.equals)
            first.append(self.n_columns)
            self.n_columns += projection.values.shape[1]
            if at not in in_groups:
                self._look_up(&made, self._elements[at], projection.keys)
                self._hold(&made, projection.values)
                made.first = first[at]
                self._alone.push_back(made)
        self._members.resize(len(groups))
        for at, group in enumerate(groups):
            self._add_elements(self._elements[len(projections) + at], (group.column,), (), ())
            self._add_group(at, group, projections, first)

    cdef _add_elements(self, vector[CtrElement]& elements, categories, above, equals):
        cdef CtrElement element
        for column in categories:
            element.kind, element.column = CTR_CATEGORY, column
            element.border, element.nan_above, element.hash = 0, 0, 0
            elements.push_back(element)
        for column, border, nan_above in above:
            element.kind, element.column, element.border, element.nan_above = CTR_ABOVE, column, border, nan_above
            elements.push_back(element)
        for column, value in equals:
            element.kind, element.column, element.hash = CTR_EQUALS, column, value
            elements.push_back(element)
        cdef uint64_t factor = CTR_FACTOR
        cdef int64_t e
        for e in range(<int64_t>elements.size() - 1, -1, -1):
            factor *= CTR_FACTOR
            elements[e].factor = factor

    cdef _look_up(self, CtrProjection* made, vector[CtrElement]& elements, all_keys):
        """Fill in the arrays by which keys are looked up."""
        cdef const uint64_t[::1] keys
        cdef const uint32_t[::1] starts
        bits = min(max(1, len(all_keys).bit_length() - 2), 31)  # on average 2 to 4 keys per value of the upper bits
        # The first key of each group of keys whose upper bits are the same.
        ends = np.searchsorted(all_keys, np.arange(1, 1 << bits, dtype=np.uint64) << np.uint64(64 - bits))
        padded = np.concatenate([all_keys, np.full(CTR_WINDOW, -1).astype(np.uint64)])
        begin = np.concatenate([[0], ends, [len(all_keys)]]).astype(np.uint32)
        self._arrays += [padded, begin]
        keys, starts = padded, begin
        made.elements, made.n_elements = elements.data(), elements.size()
        made.keys, made.starts, made.n_keys, made.bits = &keys[0], &starts[0], len(all_keys), bits

    cdef _hold(self, CtrProjection* made, all_values):
        cdef const float[:, ::1] values = all_values
        self._arrays.append(all_values)
        made.values, made.n_ctrs = &values[0, 0], values.shape[1]

    cdef _add_group(self, Py_ssize_t at, group, projections, first):
        cdef CtrGroup made
        cdef CtrOfGroup member
        cdef vector[CtrElement]* elements
        cdef const float[:, ::1] values = group.values
        if not group.members:
            return
        self._look_up(&made.category, self._elements[len(projections) + at], group.keys)
        made.category.values, made.category.n_ctrs, made.category.first = &values[0, 0], 1, 0
        for number, place in group.members:
            elements = &self._elements[number]
            member.tests, member.n_tests = elements.data() + 1, elements.size() - 1
            member.at, member.n_ctrs, member.first = place, projections[number].values.shape[1], first[number]
            self._members[at].push_back(member)
        self._arrays.append(group.values)
        made.members, made.n_members = self._members[at].data(), self._members[at].size()
        made.values, made.size = &values[0, 0], values.shape[1]
        self._groups.push_back(made)

    def fill(self, const double[::1, :] given, float[::1, :] out, int n_threads=1):
        """Fill the CTRs' columns of ``out`` [D, n_columns], which already holds the numbers of ``given`` [D,
        n_given]."""
        cdef int64_t n = given.shape[0]
        if given.shape[1] != self.n_given or out.shape[0] != n or out.shape[1] != self.n_columns:
            raise ValueError("documents do not fit the columns")
        if n == 0 or self.n_columns == self.n_given:
            return
        with nogil:
            fill_ctrs(&given[0, 0], self._alone.data(), self._alone.size(), self._groups.data(), self._groups.size(), n,
                      &out[0, 0], n_threads)
