"""Comparisons of any kind -> the canonical test of a Forest, left iff ``x <= threshold``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from gpuqs.errors import ModelFormatError, UnsupportedModelError
from gpuqs.forest import CATEGORICAL, NAN_LEFT, SET_RIGHT, WHOLE_CODES

#: Integers below this can be tested for equality: a category set takes a bit for each.
_MAX_EQUAL: Final = 1 << 16
#: Upper limit of 32-bit words in the category sets of one tree (64 MiB): more from a small file is an attack.
MAX_WORDS: Final = 1 << 24

#: The comparisons that `canonical_tests` knows.
OPERATORS: Final = ("<", "<=", ">", ">=", "==", "!=")


@dataclass(frozen=True)
class CanonicalTests:
    """The nodes of one tree in the form of a Forest; N nodes.

    Parameters
    ----------
    threshold : float64 [N]
    swap : bool [N]
        Whether the child for "the comparison holds" is the right one.
    routing : uint8 [N]
    sets : list of uint32 arrays
        Category sets of the nodes with the bit `CATEGORICAL`, in their order.
    """

    threshold: npt.NDArray[np.float64]
    swap: npt.NDArray[np.bool_]
    routing: npt.NDArray[np.uint8]
    sets: list[npt.NDArray[np.uint32]]


def canonical_tests(
    operator: npt.NDArray[np.str_],
    value: npt.NDArray[np.floating],
    nan_holds: npt.NDArray[np.bool_],
    tree: int,
    also_equal: Mapping[int, Sequence[float]] | None = None,
) -> CanonicalTests:
    """Turn ``x operator value`` into canonical tests, exactly.

    Parameters
    ----------
    operator : str [N]
        Each is one of `OPERATORS`.
    value : float64 or float32 [N]
        In the type in which the source library compares, as strict comparisons use the neighbour of that type.
    nan_holds : bool [N]
        Whether the comparison counts as true for a missing value (NaN).
    tree : int
        For error messages.
    also_equal : mapping of int to numbers, optional
        By node: further values of a test for equality: ``==`` any of them, ``!=`` all of them.

    Raises
    ------
    ModelFormatError
        The tests for equality take too much memory.
    UnsupportedModelError
        A test for equality with something other than an integer in [0, 65536).
    """
    equality = (operator == "==") | (operator == "!=")
    swap = (operator == ">") | (operator == ">=")
    strict = (operator == "<") | (operator == ">=")
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        below = np.nextafter(value, value.dtype.type(-np.inf))
        threshold = np.where(strict, below, value).astype(np.float64)
    # Nothing is below -inf: such a test becomes x <= inf with the children swapped.
    never = strict & (value == -np.inf)
    threshold[never] = np.inf
    swap ^= never
    routing = np.where(nan_holds ^ swap, NAN_LEFT, 0)
    routing[equality] |= CATEGORICAL | WHOLE_CODES
    routing[operator == "!="] |= SET_RIGHT
    threshold[equality] = 0.0
    sets, n_words = [], 0
    for node in np.flatnonzero(equality).tolist():
        equal = [float(value[node]), *(also_equal or {}).get(node, ())]
        odd = [number for number in equal if not (0 <= number < _MAX_EQUAL and number == int(number))]
        if odd:
            raise UnsupportedModelError(
                f"tree {tree}, node {node}: tests x {operator[node]} {odd[0]!r}; equality is supported only with "
                f"integers from 0 to {_MAX_EQUAL - 1}; number the categories like that, or test with <="
            )
        n_words += int(max(equal)) // 32 + 1
        if n_words > MAX_WORDS:
            raise ModelFormatError(f"node {node}: tests for equality take too much memory", tree=tree)
        sets.append(category_words(np.array(equal).astype(np.int64)))
    return CanonicalTests(threshold, swap, routing.astype(np.uint8), sets)


def category_words(codes: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """The bitset of these codes."""
    words = np.zeros(int(codes.max(initial=-1)) // 32 + 1, np.uint32)
    np.bitwise_or.at(words, codes // 32, np.uint32(1) << (codes % 32).astype(np.uint32))
    return words
