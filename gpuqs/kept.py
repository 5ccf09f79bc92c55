"""Some of what was made, to be found again by what it was made from."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

#: Apart from Python's own, whose state is the user's.
_CHANCE: Final = random.Random()

Key = TypeVar("Key")
Value = TypeVar("Value")


def once_each(make: Callable[[Key], Value]) -> Callable[[Key], Value]:
    """A function of one object that is called once for each, and whose value is kept as long as the object lives.

    Threads that ask at once may each call it; all are given the first's.
    """
    made: WeakKeyDictionary[Key, Value] = WeakKeyDictionary()

    @wraps(make)
    def find(of: Key) -> Value:
        return made[of] if of in made else made.setdefault(of, make(of))

    return find


def keep_some(kept: dict[Key, Value], key: Key, value: Value, most: int) -> Value:
    """Keep a value beside ``most - 1`` others, unless its key has one; gives what the key has.

    Which other one gives way is chance, for the oldest is the next to come where keys take turns.
    """
    if key not in kept and len(kept) >= most:
        kept.pop(_CHANCE.choice(list(kept)), None)
    return kept.setdefault(key, value)


class Kept:
    """Values by their keys, which are equal only where the values would be; the one made last is found first.

    Threads may ask and keep at once, and a fork may come between, without a lock: all that there is is one tuple, which
    is replaced as a whole. A value that another thread's drives out is made again.

    Parameters
    ----------
    most : int
        As many are kept at most.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._pairs: tuple[tuple[Any, Any], ...] = ()

    def find(self, key: Any) -> Any:
        """The value that was kept for a key; None if there is none."""
        for known, value in self._pairs:
            if known == key:
                return value
        return None

    def keep(self, key: Any, value: Any) -> None:
        self._pairs = ((key, value), *self._pairs[: self._most - 1])
