"""Projections that count by the categories of one column, grouped so that one look-up serves them all.

The key of such a projection is a sum: the category's hash times a factor, plus a factor for each test that holds. The
hash is recovered from a 64-bit key by trying every outcome of the tests: an outcome is possible if what it leaves is a
32-bit hash. A group's table has a row for each hash recovered from some key, with the CTRs of each projection for every
outcome of its tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from gpuqs.ctrs import Projection

#: CatBoost's hash of two hashes a and b is ``FACTOR * (a + FACTOR * b)``, in 64 bits.
FACTOR: Final = 0x4906BA494954CB65
_MODULUS: Final = 1 << 64
#: Upper limits of tests of a projection in a group, of bytes of a group's table, and of bytes of all tables.
MAX_TESTS: Final = 5
MAX_BYTES: Final = 32 << 20
MAX_IN_ALL: Final = 256 << 20


class Group(NamedTuple):
    """Some projections of one column, whose keys contain R hashes.

    Parameters
    ----------
    column : int
    keys : uint64 [R]
        The keys of the hashes without any test, ascending.
    members : list of (int, int)
        Number of each projection, and where in a row its CTRs begin. They are stored outcome by outcome of its tests;
        the first test is the lowest bit of an outcome's number.
    values : float32 [R + 1, size]
        The last row is for hashes that no key contains.
    """

    column: int
    keys: npt.NDArray[np.uint64]
    members: list[tuple[int, int]]
    values: npt.NDArray[np.float32]


def grouped(projections: Sequence[Projection]) -> list[Group]:
    """The groups; projections that are in no group are looked up one by one."""
    of_column: dict[int, list[int]] = {}
    for number, projection in enumerate(projections):
        n_tests = len(projection.columns) - 1
        if len(projection.categories) == 1 and n_tests <= MAX_TESTS:
            of_column.setdefault(projection.categories[0], []).append(number)
    groups: list[Group] = []
    for column, numbers in of_column.items():
        left = MAX_IN_ALL - sum(group.values.nbytes for group in groups)
        groups.append(_group(column, numbers, projections, min(MAX_BYTES, left)))
    return groups


def hashes_of(projection: Projection) -> Iterator[tuple[int, npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """For each outcome of a one-category projection's tests: hashes that its keys may contain, and the keys' places."""
    n = len(projection.columns)
    inverse = np.uint64(pow(FACTOR, -(n + 1), _MODULUS))
    for outcome in range(1 << (n - 1)):
        tests = sum(pow(FACTOR, n - test, _MODULUS) for test in range(n - 1) if outcome >> test & 1) % _MODULUS
        with np.errstate(over="ignore"):
            signed = ((projection.keys - np.uint64(tests)) * inverse).view(np.int64)
        places = np.flatnonzero((signed >= -(1 << 31)) & (signed < 1 << 31))
        yield outcome, signed[places] & 0xFFFFFFFF, places


def _group(column: int, numbers: list[int], projections: Sequence[Projection], most: int) -> Group:
    told = {number: list(hashes_of(projections[number])) for number in numbers}
    hashes = np.unique(np.concatenate([of[1] for found in told.values() for of in found]))
    keys = _keys_of(hashes)
    order = np.argsort(keys)
    members, size = [], 0
    for number in numbers:
        width = projections[number].values.shape[1] << len(told[number]).bit_length() - 1
        if (len(keys) + 1) * (size + width) * 4 <= most:
            members.append((number, size))
            size += width
    values = np.empty((len(keys) + 1, size), np.float32)
    row_of = np.empty(len(keys), np.int64)
    row_of[order] = np.arange(len(keys))
    for number, at in members:
        ctrs = projections[number].values
        n_ctrs = ctrs.shape[1]
        for outcome, found, places in told[number]:
            own = values[:, at + outcome * n_ctrs : at + (outcome + 1) * n_ctrs]
            own[:] = ctrs[-1]
            own[row_of[np.searchsorted(hashes, found)]] = ctrs[places]
    return Group(column, keys[order], members, values)


def _keys_of(hashes: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """The keys of hashes without any test."""
    signed = hashes.astype(np.uint32).view(np.int32).astype(np.int64)
    with np.errstate(over="ignore"):
        keys: npt.NDArray[np.uint64] = signed.view(np.uint64) * np.uint64(pow(FACTOR, 2, _MODULUS))
    return keys
