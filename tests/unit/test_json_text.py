"""JSON text of models: the compiled decoder reads the same as Python's ``json``, and leaves other texts to it."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuqs.cpu_fallback.json_text import Odd, decode
from gpuqs.formats.fields import numbers, parse_json, rounded_once

ARRAYS = frozenset("ab")


def as_json(value: Any) -> Any:
    """Convert the result of `decode` to ``json``'s form: arrays become lists; types of their numbers may differ."""
    if isinstance(value, np.ndarray):
        assert value.dtype in (np.int64, np.float64) and value.ndim == 1 and len(value)
        return value.tolist()
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    return [as_json(item) for item in value] if isinstance(value, list) else value


def same(got: Any, expected: Any) -> bool:
    """Equal in every bit and type, except that an array's numbers are all floats if one is."""
    if isinstance(expected, dict):
        return list(got) == list(expected) and all(same(got[key], expected[key]) for key in expected)
    if isinstance(expected, list):
        if {*map(type, expected)} == {int, float} and {*map(type, got)} == {float}:
            expected = [*map(float, expected)]
        return len(got) == len(expected) and all(map(same, got, expected))
    if type(got) is not type(expected):
        return False
    return struct.pack("d", got) == struct.pack("d", expected) if isinstance(got, float) else bool(got == expected)


def agrees(text: bytes) -> bool:
    """Whether `decode` reads a text; if so, assert that it reads as ``json`` does, with arrays and without."""
    try:
        found = [decode(text, None, keys) for keys in (ARRAYS, ())]
    except Odd:
        return False
    expected = json.loads(text)
    assert all(same(as_json(value), expected) for value in found)
    return True


NUMBERS = (
    *("0", "-0", "-0.0", "0.0", "0e0", "-0E+5", "1", "-1", "12345678901234567", "999999999999999999"),
    "-999999999999999999",
    *("1.5", "1e22", "1e23", "1E-22", "1e-23", "9007199254740992.0", "9007199254740993.0"),
    *("9007199254740993e1", "0.1"),
    *("123456789012345678.5", "0.000000000000000000000000000000012345678901234567"),
    *("2.2250738585072011e-308", "5e-324"),
    *("1.7976931348623157e308", "4.9406564584124654e-324", "-1.17549435E-38", "8.5899345919999997e9", "1" + "0" * 18),
    *("9" * 25, "-" + "9" * 400, "1" * 30 + ".5", "1e400", "-1e400", "1e-400", "0.5e99999999999999999999"),
    *("3E5", "7e+05"),
)


@pytest.mark.parametrize("number", NUMBERS)
def test_numbers(number: str) -> None:
    of_keys = (f'{{"a": [{number}]}}', f'{{"a": [3, {number} , 2.5,{number}]}}')
    for text in (number, f" {number} ", f"[{number}]", *of_keys):
        assert agrees(text.encode())


@pytest.mark.parametrize(
    "text",
    [
        *('""', '"a"', '"\\u00e9"', '"\\ud83d\\ude00"', '"\\ud83d"', '"a\\"b\\\\"', '"λ"', '"\x7f"'),
        *("true", "[false, null]"),
        *("{}", "[]", '{"a": []}', '{"a": [[1, 2], [3]]}', '{"a": [1, "x"]}', '{"b": [1, true]}'),
        '{"a": [1, 2, null]}',
        *(' { "a" :\t[ 1 ,\n2 ] , "c" : [ 1 , 2 ]\r} ', '{"c": [1, 2.5, -0]}', '{"a": [1, 2.5, -0]}'),
        "[" * 64 + "]" * 64,
    ],
)
def test_what_is_read(text: str) -> None:
    assert agrees(text.encode())


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "tru", "truex", "nul", "nan", "NaN", "[Infinity]", '{"a": [NaN]}', "01", "-", "+1"),
        *(".5", "1.", "1.e5", "1e", "1e+"),
        *("[", "[1", "[1,", "[1,]", "[,1]", "[1 2]", '{"a": [1 2]}', '{"a": [1,]}', '{"a": [1', '{"a": ['),
        '{"a": [01]}',
        *("{", '{"a"', '{"a":', '{"a":1', '{"a":1,', '{"a":1,}', "{,}", "{1:2}", '{"a" 1}'),
        *('{"a":1 "b":2}', '{"a":1,"a":2}'),
        *('"', '"a', '"a\\', '"\\"', '"\\x"', '"\\u12"', '"a\nb"', '"\x00"', "1 2", "[] []", "\x00"),
        *("1\x00", "[1]\x00", "\ufeff1"),
        *("[" * 65 + "]" * 65, '{"a":' * 65 + "1" + "}" * 65, "[" * 100_000, "'a'", "[1;2]"),
        *('{"a": [1}', "[1}"),
    ],
)
def test_what_is_left_to_json(text: str) -> None:
    with pytest.raises(Odd):
        decode(text.encode(), None, ARRAYS)


def test_bytes_that_are_no_utf8() -> None:
    for text in (b'"\xff"', b'"\xed\xa0\x80"', b'"a\\n\xff"', b'{"\xff": 1}', b"\xff", b"[1]\xff"):
        with pytest.raises(Odd):
            decode(text)


def nearest_single(exact: Fraction) -> np.float32:
    """The nearest float32, by integer arithmetic only; ties go to the even last bit."""
    exponent = max(-149, (abs(exact.numerator) // exact.denominator).bit_length() - 24)
    while abs(exact) < Fraction(2) ** (exponent + 23) and exponent > -149:
        exponent -= 1
    size = np.ldexp(float(round(abs(exact) / Fraction(2) ** exponent)), exponent)
    return np.float32(-size if exact < 0 else size)


@given(st.integers(0, 0x7F7F_FFFF), st.sampled_from([-1, 0, 1]), st.integers(1, 45), st.booleans())
@example(0x3F80_0000, 1, 25, True)
@example(0, 1, 2, False)
@example(0, -1, 1, True)
@example(0x7F7F_FFFF, -1, 30, False)
@example(0x7F7F_FFFF, 1, 30, True)
def test_decimals_about_halfway_between_floats_are_rounded_once(bits: int, side: int, digit: int, below: bool) -> None:
    halfway = Fraction(float(np.uint32(bits).view(np.float32))) + Fraction(2) ** (max(bits >> 23, 1) - 151)
    exact = (halfway + side * halfway / 10**digit) * (-1 if below else 1)
    with localcontext() as context:
        context.prec = 1200
        text = format(Decimal(exact.numerator) / Decimal(exact.denominator), "e")
    if len(text) > 1000:
        return
    with np.errstate(over="ignore"):
        expected = nearest_single(Fraction(text))
        assert np.float32(rounded_once(text)).tobytes() == expected.tobytes()
        for document in (f"[{text}]", f'{{"a": [1.5, {text}, 1e-60]}}', f'{{"a": [1, "x", {text}]}}'):
            read = parse_json(document.encode(), None, ARRAYS, single=True)
            numbers = read if isinstance(read, list) else read["a"]
            assert expected.tobytes() in [np.float32(number).tobytes() for number in numbers if number != "x"]


@pytest.mark.parametrize("text", ["0.0", "-0.0", "1e999", "-1e999", "1e-999", "5e-324", "16777217.0", "3.4028236e38"])
def test_floats_far_from_halfway_are_as_ever(text: str) -> None:
    assert struct.pack("d", rounded_once(text)) == struct.pack("d", float(text))


@given(st.text('{}[]",:0123456789.eE+-truefalsn \n\\ab', max_size=30))
@example('{"a":[1e5,2]}')
@example("1" * 5_000)  # more digits than some Pythons convert to a number
def test_any_text(text: str) -> None:
    agrees(text.encode())


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**70), 2**70), min_size=1), st.data())
def test_any_numbers(values: list[Any], data: st.DataObject) -> None:
    """In any spelling: shortest, with many digits, with float32's digits."""
    spellings = [repr, "{:.17g}".format, "{:.9E}".format, "{:.30e}".format]
    spell: Callable[[Any], str] = data.draw(st.sampled_from(spellings))
    text = f'{{"a": [{", ".join(map(spell, values))}]}}'
    assert agrees(text.encode())


@given(st.recursive(st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers() | st.text(), st.lists))
def test_any_values(value: Any) -> None:
    for ascii_alone in (True, False):
        for key in ("a", "c"):
            text = json.dumps({key: value, "b": [value]}, ensure_ascii=ascii_alone)
            agrees(text.encode(errors="surrogatepass"))


def test_objects_are_condensed_inside_out() -> None:
    seen: list[Any] = []

    def condensed(items: dict[str, Any]) -> Any:
        seen.append(dict(items))
        return len(seen)

    assert decode(b'{"x": {"y": {}}, "z": [{"w": 1}]}', condensed) == 4
    assert seen == [{}, {"y": 1}, {"w": 1}, {"x": 2, "z": [3]}]


def test_whole_numbers_become_float32_as_pythons_do() -> None:
    value = 2**54 + 2**30 + 1  # rounded to float64, it lies halfway between two float32
    arrays = [np.array([value]), [value]]
    assert {float(numbers(array, "a", np.float32)[0]) for array in arrays} == {float(np.float32(float(value)))}
    assert float(np.int64(value).astype(np.float32)) != float(np.float32(float(value)))


def test_bytes_of_other_types() -> None:
    class Bytes(bytes):
        pass

    assert parse_json(Bytes(b"[1]")) == [1]


def test_both_ways_give_the_same_and_the_same_errors() -> None:
    text = b'{"a": [1, 2.5], "c": {"b": [1, 2]}, "d": 1e400}'
    assert same(as_json(parse_json(text, None, ARRAYS)), parse_json(memoryview(text), None, ARRAYS))
    twice = b'{"a": 1, "a": 2}'
    for wrong, problem in ((twice, "'a' appears twice"), (b"[1,]", "is not JSON"), (b"[" * 70, "is not JSON")):
        for data in (wrong, memoryview(wrong), wrong.decode()):
            with pytest.raises(ValueError, match=problem):
                parse_json(data)
