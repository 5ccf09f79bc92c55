# cython: language_level=3
"""JSON text of models, mostly long arrays of numbers: these become NumPy arrays, without an object for each number.

A subset of JSON is read, with the same results as from Python's ``json``. Anything else, including invalid JSON, only
raises `Odd` here: ``json`` then reads the whole text.
"""

cimport numpy as cnp
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t
from libc.string cimport memcpy
from libcpp cimport bool as cbool
from libcpp.vector cimport vector

from json.decoder import scanstring

cdef extern from "readers/json_numbers.hpp" namespace "gpuqs" nogil:
    cdef cppclass JsonNumber:
        const char* end
        cbool whole
        cbool fits
        int64_t integer
        double real

    JsonNumber read_json_number(const char*, const char*)
    cbool is_halfway_between_floats(double)
    const char* read_json_numbers(const char*, const char*, cbool, vector[int64_t]&, vector[double]&) except +

cdef enum:
    MAX_NESTING = 64  # models need fewer levels

cnp.import_array()


class Odd(ValueError):
    """The text is not in the subset of JSON that is read here."""


def decode(bytes data not None, condensed=None, arrays=frozenset(), bint single=False):
    """Decode JSON text (UTF-8); an object may hold no key twice.

    Parameters
    ----------
    data : bytes
    condensed : callable, optional
        Called with every object as soon as it is read; returns what is kept of it.
    arrays : collection of str
        Keys of objects. An array of only numbers that is the value of such a key becomes int64 [n], or float64 [n] if
        any number has a point or an exponent. All other arrays become lists.
    single : bool
        Fractions will be rounded to float32. A fraction whose nearest float64 lies halfway between two float32
        numbers is not read here.

    Raises
    ------
    Odd
        The text is not read here.
    """
    cdef _Decoder decoder = _Decoder(data, condensed, arrays, single)
    value = decoder.value(False, 0)
    decoder.next()
    if decoder.at != decoder.end:
        raise Odd
    return value


def is_halfway(double value):
    """Whether a number lies halfway between two float32 numbers."""
    return is_halfway_between_floats(value)


cdef class _Decoder:
    """A position in the text, and a method for each kind of value. Python keeps a zero byte after the text."""

    cdef bytes data
    cdef const char* at
    cdef const char* end
    cdef object condensed, arrays
    cdef dict keys  # one object for each distinct key
    cdef bint single
    cdef vector[int64_t] integers
    cdef vector[double] reals

    def __init__(self, bytes data, condensed, arrays, bint single):
        self.single = single
        self.data, self.condensed, self.arrays, self.keys = data, condensed, arrays, {}
        self.at = data
        self.end = self.at + len(data)

    cdef char next(self) noexcept:
        """The next byte that is not whitespace; 0 at the end of the text."""
        while self.at[0] == b" " or self.at[0] == b"\n" or self.at[0] == b"\r" or self.at[0] == b"\t":
            self.at += 1
        return self.at[0]

    cdef object value(self, bint array, int depth):
        cdef char first = self.next()
        if first == b"{":
            return self.object(depth + 1)
        if first == b"[":
            found = self.numbers() if array else None
            return self.list(depth + 1) if found is None else found
        if first == b'"':
            return self.text()
        if first == b"t":
            return self.word(b"true", True)
        if first == b"f":
            return self.word(b"false", False)
        if first == b"n":
            return self.word(b"null", None)
        return self.number()

    cdef object word(self, bytes word, value):
        cdef Py_ssize_t size = len(word)
        if self.end - self.at < size or self.at[:size] != word:
            raise Odd
        self.at += size
        return value

    cdef object number(self):
        cdef JsonNumber found = read_json_number(self.at, self.end)
        cdef const char* begin = self.at
        if found.end == NULL:
            raise Odd
        self.at = found.end
        if self.single and not found.whole and (not found.fits or is_halfway_between_floats(found.real)):
            raise Odd
        if found.fits:
            return found.integer if found.whole else found.real
        try:
            return int(begin[:self.at - begin]) if found.whole else float(begin[:self.at - begin])
        except ValueError:  # thousands of digits
            raise Odd from None

    cdef object text(self):
        """A string, which begins here."""
        cdef const char* begin = self.at + 1
        cdef const char* close = begin
        cdef bint escapes = False
        while close[0] != b'"':
            if <unsigned char>close[0] < 0x20:  # this includes the end of the text
                raise Odd
            if close[0] == b"\\":
                escapes = True
                close += 1
                if <unsigned char>close[0] < 0x20:
                    raise Odd
            close += 1
        try:
            value = (scanstring(begin[:close + 1 - begin].decode(), 0)[0] if escapes
                     else PyUnicode_DecodeUTF8(begin, close - begin, NULL))
        except ValueError:
            raise Odd from None
        self.at = close + 1
        return value

    cdef object numbers(self):
        """An array of only numbers; None if it holds anything else, and then the position is unchanged."""
        cdef const char* behind = read_json_numbers(self.at + 1, self.end, self.single, self.integers, self.reals)
        cdef bint whole = self.reals.empty()
        cdef cnp.npy_intp n = self.integers.size() if whole else self.reals.size()
        cdef cnp.ndarray values
        if behind == NULL:
            return None
        self.at = behind
        values = cnp.PyArray_SimpleNew(1, &n, cnp.NPY_INT64 if whole else cnp.NPY_DOUBLE)
        memcpy(cnp.PyArray_DATA(values), <const void*>self.integers.data() if whole else <const void*>self.reals.data(), 8 * n)
        return values

    cdef object list(self, int depth):
        cdef list items = []
        if depth > MAX_NESTING:
            raise Odd
        self.at += 1
        if self.next() == b"]":
            self.at += 1
            return items
        while True:
            items.append(self.value(False, depth))
            if self.closes(b"]"):
                return items

    cdef bint closes(self, char bracket) except -1:
        """Whether the array or object ends here, after one of its values; if not, another value follows."""
        cdef char found = self.next()
        if found != bracket and found != b",":
            raise Odd
        self.at += 1
        return found == bracket

    cdef object object(self, int depth):
        cdef dict items = {}
        if depth > MAX_NESTING:
            raise Odd
        self.at += 1
        if self.next() == b"}":
            self.at += 1
        else:
            while True:
                if self.next() != b'"':
                    raise Odd
                key = self.text()
                key = self.keys.setdefault(key, key)
                if key in items or self.next() != b":":
                    raise Odd
                self.at += 1
                items[key] = self.value(key in self.arrays, depth)
                if self.closes(b"}"):
                    break
        return items if self.condensed is None else self.condensed(items)
