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


class ModelMemory:
    """What of a device's memory its models have; threads share it.

    Parameters
    ----------
    stream : cupy.cuda.Stream
        The models' own, which waits for no other by itself.
    make_event : callable
        Makes an event, of the current device.
    active : callable
        Gives a context in which the device is the current one.
    unnoted : callable
        Gives the stream on which this thread may have queued what it has not noted yet, or None.

    Attributes
    ----------
    stream : cupy.cuda.Stream
    """

    def __init__(
        self,
        stream: Any,
        make_event: Callable[[], Any],
        active: Callable[[], AbstractContextManager[Any]],
        unnoted: Callable[[], Any],
    ) -> None:
        self.stream, self._make_event, self._active, self._unnoted = stream, make_event, active, unnoted
        self._events: dict[Any, Any] = {}
        self._lock = Lock()
        self._process = os.getpid()

    def note(self, stream: Any) -> None:
        """This thread has queued, on ``stream``, work that reads models; the device is the current one."""
        key = (PER_THREAD, threading.get_ident()) if stream.ptr == PER_THREAD else stream.ptr
        while True:
            event = self._events.get(key) or self._add(key)
            event.record(stream)
            if self._events.get(key) is event:  # else it gave way meanwhile, by what it said before
                return

    def _add(self, key: Any) -> Any:
        with self._lock.held():
            for other in list(self._events)[: len(self._events) - STREAMS + 1]:
                event = self._events.pop(other, None)  # first, so that it is recorded no more
                if event is not None:
                    self.stream.wait_event(event)
            return self._events.setdefault(key, self._make_event())

    def lend(self, memory: Any) -> Loan:
        """Memory that was taken on the models' stream goes back when the loan that this gives goes."""
        loan = Loan()
        weakref.finalize(loan, self._take_back, memory).atexit = False
        return loan

    def _take_back(self, memory: Any) -> None:
        """Have the models' stream wait for what may still read ``memory``, which only the caller keeps."""
        if os.getpid() == self._process:  # a child that was forked has no driver
            with self._active():
                if (stream := self._unnoted()) is not None:
                    self.note(stream)
                for event in list(self._events.values()):
                    self.stream.wait_event(event)


class Loan:
    """Is kept by what lies in lent memory."""
