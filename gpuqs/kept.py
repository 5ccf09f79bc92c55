"""The last few of what was made, to be found again by what it was made from."""

from __future__ import annotations

from typing import Any


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
