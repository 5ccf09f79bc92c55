"""UBJSON: every type of value, optimised containers, and malicious bytes."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuqs.cpu_fallback.ubjson import MAX_NESTING, decode
from gpuqs.errors import ModelFormatError


def text(value: str) -> bytes:
    raw = value.encode()
    return b"L" + struct.pack(">q", len(raw)) + raw


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"Z", None),
        (b"T", True),
        (b"F", False),
        (b"i\xff", -1),
        (b"U\xff", 255),
        (b"I\xff\xfe", -2),
        (b"l\x00\x01\x00\x00", 65536),
        (b"L" + struct.pack(">q", -(2**40)), -(2**40)),
        (b"d" + struct.pack(">f", 0.5), 0.5),
        (b"D" + struct.pack(">d", 0.1), 0.1),
        (b"Cx", "x"),
        (b"S" + text("λeaf"), "λeaf"),
        (b"SU\x02ab", "ab"),
        (b"[]", []),
        (b"{}", {}),
        (b"[ZTFi\x01]", [None, True, False, 1]),
        (b"[#i\x02TF", [True, False]),
        (b"NN[NTNN]NN", [True]),
        (b"{" + text("a") + b"i\x01NU\x01b[]}", {"a": 1, "b": []}),
        (b"{#i\x01" + text("a") + b"T", {"a": True}),
        (b"{$i#i\x02" + text("a") + b"\x01" + text("b") + b"\xff", {"a": 1, "b": -1}),
        (b"[$S#i\x02i\x01ai\x01b", ["a", "b"]),
        (b"[$C#i\x02ab", ["a", "b"]),
        (b"[$[#i\x02i\x01]]", [[1], []]),
        (b"[$d#i\x00", []),
    ],
)
def test_values(data: bytes, value: object) -> None:
    got = decode(data)
    assert (got.tolist() if isinstance(got, np.ndarray) else got) == value
    assert isinstance(got, np.ndarray) or type(got) is type(value)


@pytest.mark.parametrize(
    ("marker", "dtype", "values"),
    [
        ("i", np.int8, [-128, 127]),
        ("U", np.uint8, [0, 255]),
        ("I", np.int16, [-32768, 258]),
        ("l", np.int32, [-(2**31), 66051]),
        ("L", np.int64, [-(2**63), 283686952306183]),
        ("d", np.float32, [0.5, np.nan, -np.inf, 1e-45]),
        ("D", np.float64, [0.1, -0.0]),
    ],
)
def test_typed_arrays_are_native_numpy_arrays(marker: str, dtype: type, values: list[float]) -> None:
    expected = np.array(values, dtype)
    raw = expected.astype(expected.dtype.newbyteorder(">")).tobytes()
    got = decode(b"[$" + marker.encode() + b"#I" + struct.pack(">h", len(values)) + raw)
    assert got.dtype == expected.dtype and got.dtype.isnative
    assert got.tobytes() == expected.tobytes()


BAD = {
    "nothing": (b"", "1 bytes announced, 0 left"),
    "count after a no-op": (b"[N#]", "byte 2: unknown type marker '#'"),
    "unknown marker": (b"[x]", "byte 1: unknown type marker 'x'"),
    "unclosed array": (b"[i\x01", "announced"),
    "unclosed object": (b"{" + text("a") + b"T", "announced"),
    "half a number": (b"D\x00", "8 bytes announced, 1 left"),
    "text past the end": (b"SU\x09abc", "length 9, but 3 bytes left"),
    "negative length": (b"Si\xff", "length -1"),
    "length that is no number": (b"SZ", "marker 'Z' where a length should be"),
    "key that is no text": (b"{T", "marker 'T' where a length should be"),
    "not UTF-8": (b"SU\x01\xff", "not UTF-8"),
    "huge typed array": (b"[$D#L" + struct.pack(">q", 2**60), "length 1152921504606846976, but 0 bytes left"),
    "typed array past the end": (b"[$D#U\x02" + bytes(8), "16 bytes announced, 8 left"),
    "huge array": (b"[#L" + struct.pack(">q", 2**40) + b"T", "length 1099511627776"),
    "array of bytes that are not there": (b"[$Z#L" + struct.pack(">q", 2**40), "of constants"),
    "typed without count": (b"[$i\x01\x02]", "typed container without a count"),
    "repeated key": (b"{" + text("ab") + b"T" + text("ab") + b"F}", "key 'ab' appears twice"),
    "deep arrays": (b"[" * 100_000, f"nested more than {MAX_NESTING} deep"),
    "deep objects": ((b"{" + text("a")) * 100_000, f"nested more than {MAX_NESTING} deep"),
    "trailing bytes": (b"TT", "1 bytes follow the end"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_bytes_are_refused_with_their_place(case: str) -> None:
    data, problem = BAD[case]
    with pytest.raises(ModelFormatError, match=r"UBJSON, byte \d+: ") as caught:
        decode(data)
    assert problem in str(caught.value)


def test_nesting_up_to_the_bound_is_read() -> None:
    value = decode(b"[" * MAX_NESTING + b"]" * MAX_NESTING)
    for _ in range(MAX_NESTING - 1):
        (value,) = value
    assert value == []


@given(st.binary(max_size=60) | st.text("[]{}$#ZTFiUIlLdDCSN\x00\x01\x02", max_size=40).map(str.encode))
def test_any_bytes_give_a_value_or_a_clear_error(data: bytes) -> None:
    try:
        value = decode(data)
    except ModelFormatError as error:
        assert "byte" in str(error)
    else:
        assert isinstance(value, (type(None), bool, int, float, str, list, dict, np.ndarray))
