# Sums to raw scores or values, as other modules see it.
from libc.stdint cimport int32_t, int64_t
from libcpp cimport bool as cbool


cdef extern from "driver/links.hpp" namespace "gpuqs" nogil:
    cdef cppclass CLink "gpuqs::Link":
        pass

    cdef cppclass Finish:
        const CLink* link
        cbool is_double
        int32_t n_outputs
        const double* last
        double divisor
        double scale
        double step
        const double* base

    const CLink* find_link(const char* name)
    cbool gives_one(const CLink*)
    void c_finish "gpuqs::finish"(const Finish&, const void* sums, int64_t n, void* out, int n_threads) except +


cdef class Link:
    cdef Finish c
    cdef object last, base

    cdef int fill(self, const Finish& finish, const void* sums, int64_t n, void* out, int n_threads) except -1 nogil
