"""Hand-made FlatBuffers whose parts may be referenced any number of times, as no builder writes them."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np


class Shared:
    """A part (string, array, list of parts, table) that is written once, after everything that references it."""

    def __init__(self, part: Any) -> None:
        self.part = part


class Number:
    """A number, with its `struct` type code."""

    def __init__(self, kind: str, value: float) -> None:
        self.data = struct.pack("<" + kind, value)


class Buffer:
    """A buffer with a root table; a table is a dict of fields by number."""

    def __init__(self, root: dict[int, Any]) -> None:
        self._bytes = bytearray(4)
        self._named: dict[Shared, list[int]] = {}
        place = self._table(root)
        struct.pack_into("<I", self._bytes, 0, place)
        for shared, places in self._named.items():
            place = self._part(shared.part)
            for at in places:
                struct.pack_into("<I", self._bytes, at, place - at)

    @property
    def data(self) -> bytes:
        return bytes(self._bytes)

    def _part(self, part: Any) -> int:
        """Write a part and return its offset. Offsets point forward, so referenced parts are written after it."""
        if isinstance(part, dict):
            return self._table(part)
        if isinstance(part, list):
            place = self._reserve(4 + 4 * len(part))
            struct.pack_into("<I", self._bytes, place, len(part))
            for number, item in enumerate(part):
                self._lead(place + 4 + 4 * number, item)
            return place
        data = part.encode() if isinstance(part, str) else np.ascontiguousarray(part).tobytes()
        place = self._reserve(4 + len(data))
        self._bytes[place:] = struct.pack("<I", len(data) if isinstance(part, str) else len(part)) + data
        return place

    def _table(self, fields: dict[int, Any]) -> int:
        n = max(fields, default=-1) + 1
        vtable = self._reserve(4 + 2 * n)
        place = self._reserve(4 + 8 * n)
        struct.pack_into("<HH", self._bytes, vtable, 4 + 2 * n, 4 + 8 * n)
        struct.pack_into("<i", self._bytes, place, place - vtable)
        for field, part in fields.items():
            at = 4 + 8 * field
            struct.pack_into("<H", self._bytes, vtable + 4 + 2 * field, at)
            if isinstance(part, Number):
                self._bytes[place + at : place + at + len(part.data)] = part.data
            else:
                self._lead(place + at, part)
        return place

    def _lead(self, at: int, part: Any) -> None:
        if isinstance(part, Shared):
            self._named.setdefault(part, []).append(at)
        else:
            struct.pack_into("<I", self._bytes, at, self._part(part) - at)

    def _reserve(self, size: int) -> int:
        place = len(self._bytes)
        self._bytes += bytes(size + -size % 4)
        return place
