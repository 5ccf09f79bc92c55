"""Categories that a model knows by the hashes of their texts alone, as CatBoost's do.

CatBoost compares the low 32 bits of CityHash64 (version 1.0) of a category's UTF-8 text. Where a model
holds no texts, its categories are called after their hashes, and tables are coded by hashing what they hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set
from functools import lru_cache
from typing import Any, Final

_NAME: Final = re.compile(r"CatBoost hash [0-9a-f]{8}")
_MASK: Final = (1 << 64) - 1
#: CityHash64's own constants.
_K0: Final = 0xC3A5C85C97CB3127
_K1: Final = 0xB492B66FBE98F273
_K2: Final = 0x9AE16A3B2F90404F
_K3: Final = 0xC949D7C7509E6557
_K_MUL: Final = 0x9DDFEA08EB382D69


def name_of_hash(code: int) -> str:
    """The name of a category of which only the hash is known."""
    return f"CatBoost hash {code:08x}"


def are_hashes(categories: Sequence[Any]) -> bool:
    """Whether categories are called after their hashes."""
    return bool(categories) and all(isinstance(c, str) and _NAME.fullmatch(c) is not None for c in categories)


def hash_names(texts: Iterable[str | None]) -> list[str | None]:
    """The names of texts, by their hashes; None for missing ones."""
    return [None if text is None else _hash_name(text) for text in texts]


def holds(known: Set[Any], text: str) -> bool:
    """Whether a text is among categories, be they texts or called after their hashes."""
    return text in known or _hash_name(text) in known


@lru_cache(maxsize=1 << 16)
def _hash_name(text: str) -> str:
    return name_of_hash(city_hash_64(text.encode()) & 0xFFFFFFFF)


# -- CityHash64 of version 1.0 ---------------------------------------------------------------


def city_hash_64(text: bytes) -> int:
    """CityHash64, version 1.0."""
    n = len(text)
    if n <= 16:
        return _up_to_16(text, n)
    if n <= 32:
        a, b = _word(text, 0) * _K1 & _MASK, _word(text, 8)
        c, d = _word(text, n - 8) * _K2 & _MASK, _word(text, n - 16) * _K0
        return _of_two(_turned(a - b, 43) + _turned(c, 30) + d, a + _turned(b ^ _K3, 20) - c + n)
    return _up_to_64(text, n) if n <= 64 else _longer(text, n)


def _up_to_16(text: bytes, n: int) -> int:
    if n > 8:
        a, b = _word(text, 0), _word(text, n - 8)
        return _of_two(a, _turned(b + n, n)) ^ b
    if n >= 4:
        return _of_two(n + (_word(text, 0, 4) << 3), _word(text, n - 4, 4))
    if n == 0:
        return _K2
    y, z = text[0] + (text[n >> 1] << 8), n + (text[n - 1] << 2)
    return _mixed(y * _K2 ^ z * _K3) * _K2 & _MASK


def _up_to_64(text: bytes, n: int) -> int:
    def half(a: int, start: int, stop: int, z: int) -> tuple[int, int]:
        b, c = _turned(a + z, 52), _turned(a, 37)
        a += _word(text, start)
        c += _turned(a, 7)
        a += _word(text, stop)
        return a + z, b + _turned(a, 31) + c

    v0, v1 = half(_word(text, 0) + (n + _word(text, n - 16)) * _K0, 8, 16, _word(text, 24))
    w0, w1 = half(_word(text, 16) + _word(text, n - 32), n - 24, n - 16, _word(text, n - 8))
    return _mixed(_mixed((v0 + w1) * _K2 + (w0 + v1) * _K0) * _K0 + v1) * _K2 & _MASK


def _longer(text: bytes, n: int) -> int:
    x, y, z = _word(text, 0), _word(text, n - 16) ^ _K1, _word(text, n - 56) ^ _K0
    v, w = _of_32(text, n - 64, n, y), _of_32(text, n - 32, n * _K1, _K0)
    z += _mixed(v[1]) * _K1
    x = _turned(z + x, 39) * _K1
    y = _turned(y, 33) * _K1
    for at in range(0, (n - 1) // 64 * 64, 64):
        x = _turned(x + y + v[0] + _word(text, at + 16), 37) * _K1 & _MASK
        y = _turned(y + v[1] + _word(text, at + 48), 42) * _K1 & _MASK
        x, y, z = x ^ w[1], y ^ v[0], _turned(z ^ w[0], 33)
        v = _of_32(text, at, v[1] * _K1, x + w[0])
        w = _of_32(text, at + 32, z + w[1], y)
        x, z = z, x
    return _of_two(_of_two(v[0], w[0]) + _mixed(y) * _K1 + z, _of_two(v[1], w[1]) + x)


def _of_32(text: bytes, at: int, a: int, b: int) -> tuple[int, int]:
    """A weak hash of 32 bytes with two seeds."""
    w, x, y, z = (_word(text, at + 8 * i) for i in range(4))
    a += w
    b, c = _turned(b + a + z, 21), a
    a += x + y
    b += _turned(a, 44)
    return a + z & _MASK, b + c & _MASK


def _word(text: bytes, at: int, size: int = 8) -> int:
    return int.from_bytes(text[at : at + size], "little")


def _turned(value: int, by: int) -> int:
    """``value``, cut to 64 bits, turned right by so many."""
    value &= _MASK
    return (value >> by | value << 64 - by) & _MASK


def _mixed(value: int) -> int:
    value &= _MASK
    return value ^ value >> 47


def _of_two(u: int, v: int) -> int:
    """Hash128to64 of two words."""
    u, v = u & _MASK, v & _MASK
    a = (u ^ v) * _K_MUL & _MASK
    a ^= a >> 47
    b = (v ^ a) * _K_MUL & _MASK
    b ^= b >> 47
    return b * _K_MUL & _MASK
