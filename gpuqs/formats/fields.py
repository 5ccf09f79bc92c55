"""Typed access to the fields of a parsed JSON or UBJSON model; every miss is a `ModelFormatError`."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gpuqs.cpu_fallback import json_text
from gpuqs.errors import ModelFormatError
from gpuqs.forks import no_collection

#: The largest number of the int32 arrays that a Forest has.
INT32_MAX: Final = 2**31 - 1

_REQUIRED: Final = object()
#: Upper limit of characters in a number that is compared exactly; longer ones are rounded twice.
_MAX_DIGITS: Final = 1000
#: A depth of nesting that no model needs.
_DEEP: Final = 100
_KINDS: Final[dict[type, str]] = {dict: "an object", list: "an array", str: "a string", bool: "true or false"}


def parse_json(
    data: bytes | memoryview | str,
    condensed: Callable[[dict[str, Any]], Any] | None = None,
    arrays: Collection[str] = frozenset(),
    single: bool = False,
) -> Any:
    """JSON text (UTF-8) to Python objects; no key may appear twice in one object.

    Parameters
    ----------
    data : bytes, memoryview or str
    condensed : callable, optional
        Called with every object as soon as it is read; returns what is kept of it, so that a model's trees need
        not be held as objects until all are read.
    arrays : collection of str
        Keys of objects whose values may become int64 or float64 arrays if they are arrays of only numbers.
    single : bool
        Fractions will be rounded to float32: return float64 values for which that equals rounding once.
    """
    if type(data) is bytes:
        with suppress(json_text.Odd), no_collection():
            return json_text.decode(data, condensed, arrays, single)
    closed = _distinct if condensed is None else partial(_condensed, condensed)
    try:
        text = data if isinstance(data, str) else str(memoryview(data), "utf-8")
        with no_collection():
            return json.loads(text, object_pairs_hook=closed, parse_float=rounded_once if single else None)
    except RecursionError:
        refuse_depth(text)
        raise
    except ModelFormatError:
        raise
    except ValueError as error:  # malformed JSON, bytes that are not UTF-8, numbers of thousands of digits
        raise ModelFormatError(f"is not JSON, or is truncated or damaged: {str(error)[:200]}") from None


def rounded_once(text: str) -> float:
    """A decimal number as a float64 that rounds to its nearest float32, which its nearest float64 may not."""
    value = float(text)
    if not json_text.is_halfway(value) or len(text) > _MAX_DIGITS:
        return value
    from fractions import Fraction  # here, as few numbers need it

    above = Fraction(text) - Fraction(value)
    return value if above == 0 else math.nextafter(value, math.inf if above > 0 else -math.inf)


def refuse_depth(text: str | bytes, field: str | None = None) -> None:
    """After a `RecursionError` in JSON: refuse the text if it is nested that deep; else the caller's stack is."""
    data = text if isinstance(text, bytes) else text.encode(errors="replace")
    letters = np.frombuffer(data, np.uint8)
    steps = np.isin(letters, list(b"[{")).astype(np.int64) - np.isin(letters, list(b"]}"))  # also within strings
    if np.cumsum(steps).max(initial=0) >= _DEEP:
        raise ModelFormatError("JSON is nested too deep", field=field) from None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    items = dict(pairs)
    if len(items) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ModelFormatError(f"key {key[:100]!r} appears twice in one object")
            seen.add(key)
    return items


def _condensed(condensed: Callable[[dict[str, Any]], Any], pairs: list[tuple[str, Any]]) -> Any:
    return condensed(_distinct(pairs))


def get(obj: Any, key: str, kind: type, default: Any = _REQUIRED, *, tree: int | None = None) -> Any:
    """``obj[key]``, which must be of ``kind`` (a key of `_KINDS`); ``default`` if it is absent."""
    if not isinstance(obj, dict):
        raise ModelFormatError("is not inside an object: the file is damaged", tree=tree, field=key)
    value = obj.get(key, default)
    if value is _REQUIRED:
        raise ModelFormatError("is missing: the file is damaged, or holds another kind of model", tree=tree, field=key)
    if kind is list and isinstance(value, np.ndarray):
        return value
    if value is not default and not isinstance(value, kind):
        raise ModelFormatError(f"is not {_KINDS[kind]}", tree=tree, field=key)
    return value


def is_plain_number(text: str) -> bool:
    """Whether a string that Python reads as a number is one elsewhere, too: no 1_000, no digits beyond ASCII."""
    return text.isascii() and "_" not in text


def whole(
    obj: Any, key: str, low: int, high: int, default: int | None = None, *, tree: int | None = None
) -> int:
    """``obj[key]`` as an integer in ``[low, high]``; a string of digits is one, too."""
    if not isinstance(obj, dict):
        raise ModelFormatError("is not inside an object: the file is damaged", tree=tree, field=key)
    value = obj.get(key, default)
    if isinstance(value, str):
        try:
            value = int(value) if is_plain_number(value) else None
        except ValueError:  # not a number, or one of thousands of digits
            value = None
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ModelFormatError(f"must be an integer in [{low}, {high}]", tree=tree, field=key)
    return value


def numbers(value: Any, field: str, dtype: npt.DTypeLike, *, tree: int | None = None) -> np.ndarray:
    """A list of numbers (or a typed array) as ``dtype``: int64, float64, or float32 rounded to nearest."""
    dtype = np.dtype(dtype)
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "f" and dtype.kind == "i":
            raise ModelFormatError("is not an array of 64-bit integers", tree=tree, field=field)
    elif isinstance(value, list):
        try:
            value = np.frombuffer(array("q" if dtype.kind == "i" else "d", value), f"{dtype.kind}8")
        except (TypeError, OverflowError):
            kind = "64-bit integers" if dtype.kind == "i" else "numbers"
            raise ModelFormatError(f"is not an array of {kind}", tree=tree, field=field) from None
    else:
        raise ModelFormatError("is not an array", tree=tree, field=field)
    made: np.ndarray
    if dtype.kind == "i":
        made = value.astype(dtype)
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            made = value.astype(np.float64, copy=False).astype(dtype)  # integers are rounded as Python's are
    return made
