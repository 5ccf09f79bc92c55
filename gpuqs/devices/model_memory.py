"""The memory of a device's models, which the work of any stream reads: given back when what is queued has read it.

CuPy's pool gives memory to later work of the stream that it was taken on. Models' is taken on a stream of its own:

    a model is copied: memory is taken, and copied to, on the models' stream, which the host then waits for
    a call has queued its work: note its stream
    memory goes back: the models' stream waits for what the noted streams have queued, and comes first to have it again
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from gpuqs.forks import Lock

#: Most streams that are noted; the models' stream waits for what others have queued when these take their place.
STREAMS = 64
#: CUDA's ``CU_STREAM_PER_THREAD``: another stream in each thread.
PER_THREAD = 2


class ModelMemory:
    """What of a device's memory its models have.

    Parameters
    ----------
    stream : cupy.cuda.Stream
        The models' own, which waits for no other by itself.
    current : callable
        Gives the current stream.
    active : callable
        Gives a context in which events are the device's.

    Attributes
    ----------
    stream : cupy.cuda.Stream
    """

    def __init__(
        self, stream: Any, current: Callable[[], Any], active: Callable[[], AbstractContextManager[Any]]
    ) -> None:
        self.stream, self._current, self._active = stream, current, active
        self._noted: dict[int, Any] = {}
        self._returned: list[Any] = []
        self._lock = Lock()
        self._process = os.getpid()

    def note(self, stream: Any) -> None:
        """Work that reads models was queued on a stream."""
        if stream.ptr not in self._noted:
            self._note(stream)

    def _note(self, stream: Any) -> None:
        with self._lock.held(), self._active():
            if stream.ptr == PER_THREAD:
                self._come_after(stream)  # only this thread can say so
                return
            if len(self._noted) >= STREAMS:
                other = next((known for known in self._noted.values() if not _captures(known)), None)
                if other is not None:
                    self._come_after(other)
                    del self._noted[other.ptr]
            self._noted[stream.ptr] = stream

    def _come_after(self, stream: Any) -> None:
        self.stream.wait_event(stream.record())

    def lend(self, memory: Any) -> Loan:
        """What keeps memory, which was taken on the models' stream, for as long as anything keeps it."""
        return Loan(self, memory)

    def take_back(self, memory: Any) -> None:
        """Memory is no longer wanted, but what is queued may still read it."""
        if sys.is_finalizing() or os.getpid() != self._process:
            return
        with self._lock.held(), self._active():
            self._returned.append(memory)
            # The thread's own as well: it may have queued what it has not noted yet.
            streams = {stream.ptr: stream for stream in (*self._noted.values(), self._current())}.values()
            # A stream that is captured cannot say what it has queued before: a later return asks again.
            if not any(map(_captures, streams)):
                for stream in streams:
                    self._come_after(stream)
                self._returned.clear()


class Loan:
    """Memory of a model; goes back with the last array that lies there."""

    def __init__(self, models: ModelMemory, memory: Any) -> None:
        self._models, self._memory = models, memory

    def __del__(self) -> None:
        self._models.take_back(self._memory)


def _captures(stream: Any) -> bool:
    """Whether a stream's work is being captured, or waits for that of a stream whose is."""
    try:
        return bool(stream.is_capturing())
    except RuntimeError:  # cudaErrorStreamCaptureImplicit, of the legacy stream
        return True
