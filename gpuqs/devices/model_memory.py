"""The memory of a device's models, which the work of any stream reads: given back when what is queued has read it.

CuPy's pool gives memory to later work of the stream that it was taken on. Models' is taken on a stream of its own:

    a model is copied: memory is taken, and copied to, on the models' stream, which the host then waits for
    a call has queued its work: an event of its stream is recorded
    memory goes back: the models' stream waits for the last event of each stream, and has it again after that
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from gpuqs.forks import Lock

#: Most streams whose last event is kept; the models' stream waits for those that give way.
STREAMS = 64
#: CUDA's ``CU_STREAM_PER_THREAD``: another stream in each thread.
PER_THREAD = 2


class _Thread(threading.local):
    """What stands for this thread; another's is another, though threads' numbers come again."""

    def __init__(self) -> None:
        self.key = object()


class ModelMemory:
    """What of a device's memory its models have; threads share it.

    Whoever queues work keeps what it reads until it has noted the stream.

    Parameters
    ----------
    stream : cupy.cuda.Stream
        The models' own, which waits for no other by itself.
    make_event : callable
        Makes an event, of the current device.
    active : callable
        Gives a context in which the device is the current one.

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
        """This thread has queued, on ``stream``, work that reads models; the device is the current one."""
        key = self._thread.key if stream.ptr == PER_THREAD else stream.ptr
        while True:
            last = self._last.get(key)
            if last is None or last.stream is not stream:  # a stream that is gone may have had the number
                last = self._add(key, stream)
            last.event.record(stream)
            if self._last.get(key) is last:  # else it gave way meanwhile, by what it said before
                return

    def _add(self, key: Any, stream: Any) -> _Last:
        with self._lock.held():
            for other in [key, *list(self._last)[: max(0, len(self._last) - STREAMS + 1)]]:
                last = self._last.get(other)
                if last is not None:
                    self._leaving.append(last)  # till it is waited for
                    if self._last.get(other) is last:  # else a signal's handler has noted its stream, and made it go
                        self._last.pop(other)  # first, so that it is recorded no more
                    self.stream.wait_event(last.event)
                    self._leaving.remove(last)
            return self._last.setdefault(key, _Last(self._make_event(), stream))

    def lend(self, memory: Any) -> Loan:
        """Memory that was taken on the models' stream goes back when the loan that this gives goes."""
        loan = Loan()
        weakref.finalize(loan, self._take_back, memory).atexit = False
        return loan

    def _take_back(self, memory: Any) -> None:
        """Have the models' stream wait for what may still read ``memory``, which only the caller keeps."""
        if os.getpid() == self._process:  # a child that was forked has no driver
            with self._active():
                for last in (*self._last.values(), *self._leaving):
                    self.stream.wait_event(last.event)


class _Last:
    """The event that follows what was queued last on a stream, which is kept: another may have its number else."""

    def __init__(self, event: Any, stream: Any) -> None:
        self.event, self.stream = event, stream


class Loan:
    """Is kept by what lies in lent memory."""
