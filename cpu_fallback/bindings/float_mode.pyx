# distutils: language = c++
# cython: language_level=3
"""Calls that give the same bits in whatever floating-point mode their caller is."""

from functools import wraps

from numpy import errstate


cdef extern from "driver/float_mode.hpp" namespace "gpuqs":
    cdef cppclass DefaultFloatMode:
        pass


def in_default_float_mode(function):
    """A function that runs rounding to nearest, with denormals, and with no errors or warnings of NumPy's arithmetic."""
    @wraps(function)
    def settled(*args, **words):
        cdef DefaultFloatMode* mode = new DefaultFloatMode()
        try:
            with errstate(all="ignore"):
                return function(*args, **words)
        finally:
            del mode

    return settled
