# CatBoost's hashes of categories, as other modules see them.
from libc.stdint cimport uint32_t

cdef int write_hash(value, uint32_t* to) except -1
