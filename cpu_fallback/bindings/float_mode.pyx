# cython: language_level=3
"""The floating-point mode of a thread."""


cdef class DefaultFloatMode:
    """A context that rounds to nearest and keeps denormals, whatever this thread's mode is before and afterwards."""

    cdef CDefaultFloatMode* mode

    def __enter__(self):
        self.mode = new CDefaultFloatMode()

    def __exit__(self, *_):
        del self.mode
        self.mode = NULL
