"""UBJSON, the binary form of JSON in which XGBoost saves models by default.

A decoder for untrusted bytes: every count is checked against the bytes that are left before
anything is allocated, nesting is bounded, and every error says at which byte it lies. Typed
arrays of numbers become NumPy arrays.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np

from gpuqs.errors import ModelFormatError

#: Deepest nesting accepted; XGBoost's own models need nine levels.
MAX_NESTING: Final = 64

_NUMBERS: Final = {
    ord(marker): (struct.Struct(">" + code), np.dtype(">" + dtype))
    for marker, code, dtype in (
        ("i", "b", "i1"),
        ("U", "B", "u1"),
        ("I", "h", "i2"),
        ("l", "i", "i4"),
        ("L", "q", "i8"),
        ("d", "f", "f4"),
        ("D", "d", "f8"),
    )
}
_LENGTHS: Final = frozenset(b"iUIlL")
_CONSTANTS: Final = {ord("Z"): None, ord("T"): True, ord("F"): False}
_NO_OP: Final = ord("N")


def decode(data: bytes | memoryview) -> Any:
    """Decode one UBJSON value.

    Parameters
    ----------
    data : bytes or memoryview

    Returns
    -------
    object
        dict, list, str, int, float, bool, None; a typed array of numbers is a NumPy array.

    Raises
    ------
    ModelFormatError
        Where the bytes are not exactly one well-formed value, or repeat a key.
    """
    decoder = _Decoder(memoryview(data).cast("B"))
    value = decoder.value(decoder.marker(), 0)
    while decoder.left and decoder.peek() == _NO_OP:
        decoder.position += 1
    if decoder.left:
        decoder.fail(f"{decoder.left} bytes follow the end of the model")
    return value


class _Decoder:
    """A position in the bytes, and one method for each kind of value."""

    __slots__ = ("data", "position")

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.position = 0

    @property
    def left(self) -> int:
        return len(self.data) - self.position

    def fail(self, problem: str) -> None:
        raise ModelFormatError(f"UBJSON, byte {self.position}: {problem}")

    def need(self, n_bytes: int) -> None:
        if n_bytes > self.left:
            self.fail(f"{n_bytes} bytes announced, {self.left} left: the file is truncated or damaged")

    def peek(self) -> int:
        self.need(1)
        return self.data[self.position]

    def marker(self) -> int:
        """The next type marker, past no-ops."""
        while True:
            marker = self.peek()
            self.position += 1
            if marker != _NO_OP:
                return marker

    def number(self, marker: int) -> int | float:
        form = _NUMBERS[marker][0]
        self.need(form.size)
        value = form.unpack_from(self.data, self.position)[0]
        self.position += form.size
        return value

    def length(self) -> int:
        """A count of things, each of which takes at least a byte."""
        marker = self.peek()
        if marker not in _LENGTHS:
            self.fail(f"marker {chr(marker)!r} where a length should be")
        self.position += 1
        length = self.number(marker)
        if not 0 <= length <= self.left:
            self.fail(f"length {length}, but {self.left} bytes left: the file is truncated or damaged")
        return int(length)

    def text(self) -> str:
        length = self.length()
        raw = self.data[self.position : self.position + length]
        try:
            value = str(raw, "utf-8")
        except UnicodeDecodeError:
            self.fail("text is not UTF-8")
        self.position += length
        return value

    def value(self, marker: int, depth: int) -> Any:
        if marker in _NUMBERS:
            return self.number(marker)
        if marker == ord("{"):
            return self.object(depth + 1)
        if marker == ord("["):
            return self.array(depth + 1)
        if marker == ord("S"):
            return self.text()
        if marker in _CONSTANTS:
            return _CONSTANTS[marker]
        if marker == ord("C"):
            code = self.peek()
            self.position += 1
            return chr(code)
        self.position -= 1
        return self.fail(f"unknown type marker {chr(marker)!r}")

    def header(self, depth: int) -> tuple[int | None, int | None]:
        """The optional element type and count of a container."""
        if depth > MAX_NESTING:
            self.fail(f"nested more than {MAX_NESTING} deep")
        kind = count = None
        if self.peek() == ord("$"):
            self.position += 1
            kind = self.peek()
            self.position += 1
            if kind in _CONSTANTS or self.peek() != ord("#"):  # elements without bytes: no bound on them
                self.fail("a typed container without a count, or of constants")
        if self.peek() == ord("#"):
            self.position += 1
            count = self.length()
        return kind, count

    def array(self, depth: int) -> list[Any] | np.ndarray:
        kind, count = self.header(depth)
        if kind in _NUMBERS and count is not None:
            dtype = _NUMBERS[kind][1]
            self.need(count * dtype.itemsize)
            values = np.frombuffer(self.data, dtype, count, self.position)
            self.position += count * dtype.itemsize
            return values.astype(dtype.newbyteorder("="))
        items: list[Any] = []
        while count is None or len(items) < count:
            marker = self.marker() if kind is None else kind
            if count is None and marker == ord("]"):
                break
            items.append(self.value(marker, depth))
        return items

    def object(self, depth: int) -> dict[str, Any]:
        kind, count = self.header(depth)
        items: dict[str, Any] = {}
        while count is None or len(items) < count:
            while self.peek() == _NO_OP:
                self.position += 1
            if count is None and self.peek() == ord("}"):
                self.position += 1
                break
            start = self.position
            key = self.text()
            if key in items:
                self.position = start
                self.fail(f"key {key[:100]!r} appears twice")
            items[key] = self.value(self.marker() if kind is None else kind, depth)
        return items
