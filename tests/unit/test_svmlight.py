from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuqs.cpu_fallback import svmlight


def parsed(token: str, dtype: type) -> np.floating:
    values, *_, problem = svmlight.parse(f"0 0:{token}".encode(), 1, dtype, 0, 0.0)
    assert problem is None, problem
    return values[0, 0]


def nearest_single(token: str) -> np.float32:
    """The float32 nearest to a decimal number, ties to even, by exact arithmetic."""
    exact = Fraction(token)
    with np.errstate(over="ignore"):
        guess = np.float32(float(exact))
    around = (np.nextafter(guess, np.float32(-np.inf)), guess, np.nextafter(guess, np.float32(np.inf)))
    finite = [x for x in around if np.isfinite(x)]
    return min(finite, key=lambda x: (abs(Fraction(float(x)) - exact), int(x.view(np.int32)) & 1))


decimals = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr),
    st.from_regex(r"-?[0-9]{1,25}(\.[0-9]{0,30})?([eE][+-]?[0-9]{1,2})?", fullmatch=True),
    st.from_regex(r"-?\.[0-9]{1,25}([eE][+-]?[0-9]{1,3})?", fullmatch=True),
)


@given(decimals)
@example("4.9e-324")
@example("2.4703282292062327e-324")
@example("2.4703282292062328e-324")
@example("1.7976931348623159e308")
@example("0.000000001e317")
@example("100000000000000000000000000000e-340")
@example("0e999999999999")
@example("9007199254740993")
def test_float64_is_correctly_rounded(token: str) -> None:
    assert parsed(token, np.float64).tobytes() == np.float64(float(token)).tobytes()


@given(
    st.floats(-1e38, 1e38).map(lambda x: f"{x:.12e}")
    | st.from_regex(r"[0-9]{1,12}\.[0-9]{1,12}", fullmatch=True)
)
@example("1.00000005960464477539062500000001")  # rounds down if it passes through float64
@example("16777217")
@example("7.1e-46")
@example("1.1754943e-38")
def test_float32_is_rounded_once(token: str) -> None:
    assert parsed(token, np.float32) == nearest_single(token)


@pytest.mark.parametrize(
    ("token", "value"),
    [
        *(("nan", np.nan), ("NA", np.nan), ("null", np.nan), ("+NaN", np.nan)),
        *(("inf", np.inf), ("-Infinity", -np.inf), ("1e400", np.inf), ("-1e400", -np.inf)),
        *(("1e-400", 0.0), ("-0", -0.0), ("+3", 3.0), ("5.", 5.0), ("1E+2", 100.0)),
    ],
)
def test_special_values(token: str, value: float) -> None:
    got = parsed(token, np.float64)
    np.testing.assert_equal(got, value)
    assert np.isnan(value) or np.signbit(got) == np.signbit(value)


def test_float32_overflows_to_infinity() -> None:
    assert parsed("3.5e38", np.float32) == np.inf
    assert parsed("3.4028235e38", np.float32) == np.finfo(np.float32).max


@given(st.binary(max_size=80) | st.text("01:. \n\tqid#-e+", max_size=80).map(str.encode))
def test_any_bytes_give_rows_or_a_problem(text: bytes) -> None:
    values, labels, queries, lines, n_labels, n_queries, lowest, problem = svmlight.parse(
        text, 4, np.float32, 0, np.nan
    )
    assert values.shape == (len(labels), 4) and len(queries) == len(labels)
    assert max(len(labels), n_labels, n_queries) <= lines <= text.count(b"\n") + 1
    assert lowest is None or 0 <= lowest < 4
    assert problem is None or (1 <= problem[0] <= 6 and problem[1] in text)


def test_cut() -> None:
    text = b"a\nbb\n\nc"
    assert [svmlight.cut(text, 0, n) for n in (0, 1, 2, 3, 9)] == [0, 2, 5, 6, 6]
    assert svmlight.cut(text, 6, 9) == 6
    assert svmlight.cut(b"", 0, 1) == 0
    with pytest.raises(ValueError, match="outside"):
        svmlight.cut(text, 8, 1)
