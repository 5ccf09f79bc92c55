"""FlatBuffers tables: what builders write is read; parts outside the file, or read too often, are refused."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest

from gpuqs.errors import ModelFormatError
from gpuqs.formats.flatbuffers import Table


def root() -> bytes:
    """A table: field 0 is a number, 1 absent, 2 a string, 3 a vector of doubles, 4 one of two tables, 5 its first."""
    vtable = struct.pack("<8H", 16, 24, 4, 0, 8, 12, 16, 20)
    text = "grün".encode()
    # Offsets: 4 vtable, 20 table, 44 string, 56 vector, 76 vector of tables, 88 their vtable, 96 and 104 the tables.
    body = struct.pack("<I", 20) + vtable
    body += struct.pack("<iiIIII", 16, 7, 44 - 28, 56 - 32, 76 - 36, 96 - 40)
    body += struct.pack("<I", len(text)) + text + bytes(12 - 4 - len(text))
    body += struct.pack("<Idd", 2, 1.5, -2.0)
    body += struct.pack("<III", 2, 96 - 80, 104 - 84)
    body += struct.pack("<4H", 6, 8, 4, 0)
    body += struct.pack("<ii", 8, 11) + struct.pack("<ii", 16, 12)
    return body


def test_fields() -> None:
    table = Table(memoryview(root()))
    assert table.number(0, "i", 3) == 7 and table.number(1, "i", 3) == 3 and table.number(40, "d", 0.5) == 0.5
    assert table.text(2) == "grün" and table.text(1) == ""
    np.testing.assert_array_equal(table.numbers(3, "<f8"), [1.5, -2.0])
    assert len(table.numbers(1, "<f8")) == len(table.tables(1)) == len(table.texts(1)) == 0 and table.table(1) is None
    assert [each.number(0, "i", 0) for each in table.tables(4)] == [11, 12]
    assert table.table(5).number(0, "i", 0) == 11  # type: ignore[union-attr]


def everything(data: bytes) -> None:
    table = Table(memoryview(data))
    table.number(0, "i", 0)
    table.text(2)
    table.numbers(3, "<f8")
    for each in (*table.tables(4), table.table(5)):
        if each is not None:
            each.number(0, "i", 0)


def test_damage_is_refused_or_read() -> None:
    rng, refused = random.Random(1), 0
    data = root()
    everything(data)
    for cut in range(len(data)):
        with pytest.raises(ModelFormatError):
            everything(data[:cut])
    for _ in range(3000):
        changed = bytearray(data)
        for _ in range(rng.choice([1, 2])):
            changed[rng.randrange(len(changed))] = rng.choice([0, 1, 4, 127, 128, 255, rng.randrange(256)])
        try:
            everything(bytes(changed))
        except ModelFormatError:
            refused += 1
    assert 500 < refused < 2900


def test_half_a_field_is_refused() -> None:
    data = bytearray(root())
    data[4] = 15
    with pytest.raises(ModelFormatError, match="half a field"):
        Table(memoryview(data))


def test_parts_are_not_read_without_end() -> None:
    data = root() + bytes(4000)
    table = Table(memoryview(data))
    with pytest.raises(ModelFormatError, match="too many of its parts share"):
        for _ in range(10**6):
            table.numbers(3, "<f8")
