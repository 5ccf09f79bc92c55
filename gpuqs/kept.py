"""Small caches of what was made, keyed by what it was made from."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

#: Separate from Python's global generator, whose state belongs to the user.
_CHANCE: Final = random.Random()

Key = TypeVar("Key")
Value = TypeVar("Value")


def once_each(make: Callable[[Key], Value]) -> Callable[[Key], Value]:
    """Call a function of one object once for each object, and keep the value as long as the object lives.

    Threads that ask at the same time may each call it; all get the first one's value.
    """
    made: WeakKeyDictionary[Key, Value] = WeakKeyDictionary()

    @wraps(make)
    def find(of: Key) -> Value:
        return made[of] if of in made else made.setdefault(of, make(of))

    return find


def keep_some(kept: dict[Key, Value], key: Key, value: Value, most: int) -> Value:
    """Keep a value, among at most ``most`` in all, unless its key has one; return the key's value.

    If ``most`` are kept already, a random one of them is dropped: if keys are used in rotation, the oldest one is the
    next to be needed.
    """
    if key not in kept and len(kept) >= most:
        kept.pop(_CHANCE.choice(list(kept)), None)
    return kept.setdefault(key, value)


class Kept:
    """Values by key, for keys that are equal only if the values would be; the newest is found first.

    Threads may ask and keep at the same time, and a fork may come in between, without a lock: the state is one tuple,
    which is replaced as a whole. A value that another thread's value displaces is made again.

    Parameters
    ----------
    most : int
        Upper limit of kept values.
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
