"""The device memory of models, which work on any stream may read: reused only after the queued work has read it.

CuPy's pool reuses freed memory for later work on the stream on which it was allocated. Memory of models is allocated on
a stream of its own:

    to upload a model: allocate and copy on the models' stream, and wait for it on the host
    after a call has queued its work: record an event on the call's stream
    to free memory: have the models' stream wait for each stream's last event; its later work may reuse the memory
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from gpuqs.forks import Lock

#: Upper limit of streams whose last event is kept; the models' stream waits for events that are dropped.
STREAMS = 64
#: CUDA's ``CU_STREAM_PER_THREAD``: a different stream in each thread.
PER_THREAD = 2


class _Thread(threading.local):
    """A key that identifies this thread for good; thread numbers are reused."""

    def __init__(self) -> None:
        self.key = object()


class ModelMemory:
    """The memory of a device's models; threads share this object.

    Whoever queues work must keep what it reads alive until it has called `note` for the stream.

    Parameters
    ----------
    stream : cupy.cuda.Stream
        The models' own stream, which does not wait for other streams by itself.
    make_event : callable
        Makes an event of the current device.
    active : callable
        Returns a context manager that makes the device the current one.

    Attributes
    ----------
    stream : cupy.cuda.Stream
    """

    def __init__(
        self, stream: Any, make_event: Callable[[], Any], active: Callable[[], AbstractContextManager[Any]]
    ) -> None:
        self.stream, self._make_event, self._active = stream, make_event, active
        self._last: dict[Any, _Last] = {}
        self._leaving: list[_Last] = []
        self._thread = _Thread()
        self._lock = Lock()
        self._process = os.getpid()

    def note(self, stream: Any) -> None:
        """Note that this thread has queued work on ``stream`` that reads models; the device must be the current one."""
        key = self._thread.key if stream.ptr == PER_THREAD else stream.ptr
        while True:
            last = self._last.get(key)
            if last is None or last.stream is not stream:  # the number may have been that of a stream that is gone
                last = self._add(key, stream)
            last.event.record(stream)
            if self._last.get(key) is last:  # else it was dropped meanwhile, with the event as recorded before
                return

    def _add(self, key: Any, stream: Any) -> _Last:
        with self._lock.held():
            for other in [key, *list(self._last)[: max(0, len(self._last) - STREAMS + 1)]]:
                last = self._last.get(other)
                if last is not None:
                    self._leaving.append(last)  # until it is waited for
                    if self._last.get(other) is last:  # else a call of `note` in a signal handler has dropped it
                        self._last.pop(other)  # first, so that it is not recorded again
                    self.stream.wait_event(last.event)
                    self._leaving.remove(last)
            return self._last.setdefault(key, _Last(self._make_event(), stream))

    def lend(self, memory: Any) -> Loan:
        """Return a loan; when it is garbage-collected, ``memory``, allocated on the models' stream, is freed."""
        loan = Loan()
        weakref.finalize(loan, self._take_back, memory).atexit = False
        return loan

    def _take_back(self, memory: Any) -> None:
        """Have the models' stream wait for work that may still read ``memory``, which only the caller keeps alive."""
        if os.getpid() == self._process:  # a forked child has no driver
            with self._active():
                for last in (*self._last.values(), *self._leaving):
                    self.stream.wait_event(last.event)


class _Last:
    """The event after the last work queued on a stream; keeps the stream, as its number could be reused otherwise."""

    def __init__(self, event: Any, stream: Any) -> None:
        self.event, self.stream = event, stream


class Loan:
    """Kept alive by the arrays in lent memory."""
