"""Locks, attributes and settings that a forked child can use, whatever its parent's other threads did meanwhile.

A fork copies a lock that another thread holds, and nobody in the child will ever release it, or turn on again what that
thread had turned off.
"""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Generic, TypeVar, overload

Value = TypeVar("Value")


class Lock:
    """A lock for ``with lock.held():``, free again in a forked child.

    It is reentrant: a signal handler or a ``__del__`` may run, and score, wherever it is held. What it guards must
    be consistent after that, too.
    """

    def __init__(self) -> None:
        self._renew()
        _locks.add(self)

    def _renew(self) -> None:
        self._lock = threading.RLock()  # noqa: TID251

    def held(self) -> AbstractContextManager[bool]:
        return self._lock  # the lock itself: a child forked inside the block must release the one that was taken


_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


@contextmanager
def no_collection() -> Iterator[None]:
    """Turn off Python's search for reference cycles while a parser makes many objects: it makes no cycles."""
    was_on, own = gc.isenabled(), object()
    if was_on:
        _without_collection.add(own)
        gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
            _without_collection.discard(own)


#: One item for each thread that has turned collection off, and will turn it on again.
_without_collection: set[object] = set()


def _renew() -> None:
    for lock in list(_locks):
        lock._renew()
    if _without_collection:
        gc.enable()
        _without_collection.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


class lazy(Generic[Value]):
    """A property that is computed on first access, and kept.

    Threads that access it at the same time may each compute it; all get the first one's value. Before
    Python 3.12 `functools.cached_property` makes them wait for a lock.
    """

    def __init__(self, make: Callable[[Any], Value]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> lazy[Value]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Value: ...
    def __get__(self, instance: object | None, owner: type) -> lazy[Value] | Value:
        if instance is None:
            return self
        value: Value = instance.__dict__.setdefault(self._name, self._make(instance))
        return value
