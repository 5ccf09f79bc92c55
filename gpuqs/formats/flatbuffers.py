"""Tables of FlatBuffers in untrusted bytes: each access is checked, and one outside is a `ModelFormatError`.

A table begins with the distance back to its vtable, which holds the place of each field in the table. Strings, vectors
and tables in it are stored as distances ahead, and a vector begins with its length. Parts may be shared: a small file
could cause one to be read a million times, so the total that is read of a buffer is bounded by the buffer's size.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gpuqs.errors import ModelFormatError

_UINT16: Final = struct.Struct("<H")
_INT32: Final = struct.Struct("<i")
_UINT32: Final = struct.Struct("<I")

#: Upper limit of bytes of vectors and strings that are read per byte of a buffer.
_MAX_SHARED: Final = 16


class Table:
    """A table in a buffer; its fields are numbered as its schema lists them.

    Parameters
    ----------
    data : memoryview
        The buffer.
    at : int, optional
        Where the table is; by default it is the root.
    left : list of int, optional
        How many bytes of the buffer may still be read: one number, which all of its tables share.
    """

    def __init__(self, data: memoryview, at: int | None = None, left: list[int] | None = None) -> None:
        self._data = data
        self._left = [_MAX_SHARED * (len(data) + 1024)] if left is None else left
        self._at = self._read(_UINT32, 0) if at is None else at
        self._vtable = self._at - self._read(_INT32, self._at)
        self._vtable_size = self._read(_UINT16, self._vtable)
        if self._vtable_size % 2:  # readers differ in what they make of it
            raise ModelFormatError("is damaged: a table would have half a field")

    def number(self, field: int, kind: str, default: Any) -> Any:
        """A number; ``kind`` is its format in `struct`."""
        at = self._field(field)
        return default if at is None else self._read(struct.Struct("<" + kind), at)

    def text(self, field: int) -> str:
        """A string; empty if it is absent."""
        at = self._field(field)
        if at is None:
            return ""
        return self._text(at + self._read(_UINT32, at))

    def table(self, field: int) -> Table | None:
        """A table; None if it is absent."""
        at = self._field(field)
        return None if at is None else Table(self._data, at + self._read(_UINT32, at), self._left)

    def numbers(self, field: int, dtype: npt.DTypeLike) -> np.ndarray:
        """A vector of numbers, or of structs; empty if it is absent."""
        start, n = self._vector(field)
        dtype = np.dtype(dtype)
        if start + n * dtype.itemsize > len(self._data):
            raise self._outside()
        self._count(n * dtype.itemsize)
        return np.frombuffer(self._data, dtype, n, start)

    def tables(self, field: int) -> list[Table]:
        """A vector of tables; empty if it is absent."""
        return [Table(self._data, at, self._left) for at in self._places(field)]

    def texts(self, field: int) -> list[str]:
        """A vector of strings; empty if it is absent."""
        return [self._text(at) for at in self._places(field)]

    def _places(self, field: int) -> list[int]:
        start, _ = self._vector(field)
        ahead = self.numbers(field, "<u4")
        return [start + 4 * number + distance for number, distance in enumerate(ahead.tolist())]

    def _vector(self, field: int) -> tuple[int, int]:
        """Where a vector's items begin, and how many there are."""
        at = self._field(field)
        if at is None:
            return 0, 0
        at += self._read(_UINT32, at)
        return at + 4, self._read(_UINT32, at)

    def _text(self, at: int) -> str:
        n = self._read(_UINT32, at)
        if at + 4 + n > len(self._data):
            raise self._outside()
        self._count(n)
        return str(self._data[at + 4 : at + 4 + n], "utf-8", "replace")

    def _count(self, n_bytes: int) -> None:
        self._left[0] -= n_bytes
        if self._left[0] < 0:
            raise ModelFormatError("is damaged: too many of its parts share the same bytes")

    def _field(self, field: int) -> int | None:
        at = 4 + 2 * field
        ahead = self._read(_UINT16, self._vtable + at) if at + 2 <= self._vtable_size else 0
        return self._at + ahead if ahead else None

    def _read(self, kind: struct.Struct, at: int) -> Any:
        if at < 0 or at + kind.size > len(self._data):
            raise self._outside()
        return kind.unpack_from(self._data, at)[0]

    @staticmethod
    def _outside() -> ModelFormatError:
        return ModelFormatError("is damaged, or cut short: a part of it would lie outside the file")
