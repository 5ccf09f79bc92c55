# cython: language_level=3
"""UBJSON, the binary form of JSON in which XGBoost saves models by default.

A decoder for untrusted bytes: every count is checked against the bytes that are left before
anything is allocated, nesting is bounded, and every error says at which byte it lies. Typed
arrays of numbers become NumPy arrays. Compiled, so that a file of many tiny values takes no longer than others.
"""

cimport numpy as cnp
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

import numpy as np

from gpuqs.errors import ModelFormatError

#: Deepest nesting accepted; XGBoost's own models need nine levels.
MAX_NESTING = 64

cdef int _MAX_NESTING = MAX_NESTING
#: By marker of a number type: its size, NumPy's number of the type, and an empty array.
cdef int[128] _SIZES
cdef int[128] _TYPES
cdef dict _NONE = {}
for _marker, _dtype in zip(b"iUIlLdD", map(np.dtype, "i1 u1 i2 i4 i8 f4 f8".split())):
    _SIZES[_marker], _TYPES[_marker], _NONE[_marker] = _dtype.itemsize, _dtype.num, np.empty(0, _dtype)

cnp.import_array()


def decode(data, condensed=None):
    """Decode one UBJSON value.

    Parameters
    ----------
    data : bytes-like
    condensed : callable, optional
        Called with every object as soon as it is read; returns what is kept of it.

    Returns
    -------
    object
        dict, list, str, int, float, bool, None; a typed array of numbers is a NumPy array.

    Raises
    ------
    ModelFormatError
        The bytes are not exactly one well-formed value, or repeat a key.
    """
    data = memoryview(data).cast("B")
    cdef _Decoder decoder = _Decoder(data, condensed)
    value = decoder.value(decoder.marker(), 0)
    decoder.skip_no_ops()
    if decoder.left():
        decoder.fail(f"{decoder.left()} bytes follow the end of the model")
    return value


cdef void to_native(const unsigned char* source, char* target, Py_ssize_t count, int size) noexcept:
    """Convert big-endian numbers of 1, 2, 4 or 8 bytes to the machine's byte order."""
    cdef Py_ssize_t i
    cdef int byte
    cdef uint64_t bits
    if size == 1:
        memcpy(target, source, count)
    elif size == 2:
        for i in range(count):
            (<uint16_t*>target)[i] = <uint16_t>(source[2 * i] << 8 | source[2 * i + 1])
    elif size == 4:
        for i in range(count):
            (<uint32_t*>target)[i] = (
                <uint32_t>source[4 * i] << 24 | <uint32_t>source[4 * i + 1] << 16
                | <uint32_t>source[4 * i + 2] << 8 | <uint32_t>source[4 * i + 3]
            )
    else:
        for i in range(count):
            bits = 0
            for byte in range(8):
                bits = bits << 8 | source[8 * i + byte]
            (<uint64_t*>target)[i] = bits


cdef class _Decoder:
    """A position in the bytes, and one method for each kind of value.

    Single bytes are read through a typed view, which checks every index, and runs of bytes after `need` or `length`.
    """

    cdef const unsigned char[::1] data
    cdef Py_ssize_t position
    cdef object condensed

    def __init__(self, data, condensed):
        self.data = data
        self.position = 0
        self.condensed = condensed

    cdef Py_ssize_t left(self):
        return self.data.shape[0] - self.position

    cdef int fail(self, problem) except -1:
        raise ModelFormatError(f"UBJSON, byte {self.position}: {problem}")

    cdef int need(self, Py_ssize_t n_bytes) except -1:
        if n_bytes > self.left():
            self.fail(f"{n_bytes} bytes announced, {self.left()} left: the file is truncated or damaged")
        return 0

    cdef int peek(self) except -1:
        self.need(1)
        return self.data[self.position]

    cdef int skip_no_ops(self) except -1:
        while self.position < self.data.shape[0] and self.data[self.position] == b"N":
            self.position += 1
        return 0

    cdef int marker(self) except -1:
        """The next type marker, past no-ops."""
        self.skip_no_ops()
        cdef int marker = self.peek()
        self.position += 1
        return marker

    cdef uint64_t bits(self, int n_bytes) except? 0:
        cdef uint64_t bits = 0
        cdef int i
        self.need(n_bytes)
        for i in range(n_bytes):
            bits = bits << 8 | self.data[self.position + i]
        self.position += n_bytes
        return bits

    cdef int64_t whole(self, int marker) except? -1:
        """An integer; its marker must be that of one."""
        if marker == b"i":
            return <int8_t>self.bits(1)
        if marker == b"U":
            return <int64_t>self.bits(1)
        if marker == b"I":
            return <int16_t>self.bits(2)
        if marker == b"l":
            return <int32_t>self.bits(4)
        return <int64_t>self.bits(8)

    cdef float single(self) except? 0:
        cdef uint32_t bits = <uint32_t>self.bits(4)
        cdef float number
        memcpy(&number, &bits, sizeof(number))
        return number

    cdef double double_(self) except? 0:
        cdef uint64_t bits = self.bits(8)
        cdef double number
        memcpy(&number, &bits, sizeof(number))
        return number

    cdef Py_ssize_t length(self) except -1:
        """A count of things, each of which takes at least a byte."""
        cdef int marker = self.peek()
        if marker not in (b"i", b"U", b"I", b"l", b"L"):
            self.fail(f"marker {chr(marker)!r} where a length should be")
        self.position += 1
        cdef int64_t length = self.whole(marker)
        if not 0 <= length <= self.left():
            self.fail(f"length {length}, but {self.left()} bytes left: the file is truncated or damaged")
        return length

    cdef object text(self):
        cdef Py_ssize_t length = self.length()  # no more than what is left
        if length == 0:
            return ""
        cdef const char* begin = <const char*>&self.data[self.position]
        try:
            value = begin[:length].decode("utf-8")
        except UnicodeDecodeError:
            self.fail("text is not UTF-8")
        self.position += length
        return value

    cdef object value(self, int marker, int depth):
        if marker in (b"i", b"U", b"I", b"l", b"L"):
            return self.whole(marker)
        if marker == b"d":
            return self.single()
        if marker == b"D":
            return self.double_()
        if marker == b"{":
            return self.object(depth + 1)
        if marker == b"[":
            return self.array(depth + 1)
        if marker == b"S":
            return self.text()
        if marker == b"Z":
            return None
        if marker == b"T":
            return True
        if marker == b"F":
            return False
        if marker == b"C":
            code = self.peek()
            self.position += 1
            return chr(code)
        self.position -= 1
        self.fail(f"unknown type marker {chr(marker)!r}")

    cdef int header(self, int depth, int* kind, Py_ssize_t* count) except -1:
        """The optional element type and count of a container; -1 where they are absent."""
        if depth > _MAX_NESTING:
            self.fail(f"nested more than {_MAX_NESTING} deep")
        kind[0] = count[0] = -1
        if self.peek() == b"$":
            self.position += 1
            kind[0] = self.peek()
            self.position += 1
            # Elements without bytes would not be bounded by the bytes that are left.
            if kind[0] in (b"Z", b"T", b"F") or self.peek() != b"#":
                self.fail("a typed container without a count, or of constants")
        if self.peek() == b"#":
            self.position += 1
            count[0] = self.length()
        return 0

    cdef object array(self, int depth):
        cdef int kind, marker, dtype_number
        cdef Py_ssize_t count, size
        cdef cnp.npy_intp shape
        cdef cnp.ndarray values
        self.header(depth, &kind, &count)
        if 0 <= kind < 128 and _SIZES[kind]:
            if count == 0:
                return _NONE[kind]
            size, dtype_number = _SIZES[kind], _TYPES[kind]
            self.need(count * size)
            shape = count
            values = cnp.PyArray_SimpleNew(1, &shape, dtype_number)
            to_native(&self.data[self.position], <char*>cnp.PyArray_DATA(values), count, size)
            self.position += count * size
            return values
        cdef list items = []
        while count < 0 or len(items) < count:
            marker = self.marker() if kind < 0 else kind
            if count < 0 and marker == b"]":
                break
            items.append(self.value(marker, depth))
        return items

    cdef object object(self, int depth):
        cdef int kind
        cdef Py_ssize_t count, start
        self.header(depth, &kind, &count)
        cdef dict items = {}
        while count < 0 or len(items) < count:
            self.skip_no_ops()
            if count < 0 and self.peek() == b"}":
                self.position += 1
                break
            start = self.position
            key = self.text()
            if key in items:
                self.position = start
                self.fail(f"key {key[:100]!r} appears twice")
            items[key] = self.value(self.marker() if kind < 0 else kind, depth)
        return items if self.condensed is None else self.condensed(items)
