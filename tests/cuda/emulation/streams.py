"""Queues of a device's work: what is queued runs at a wait, in one of the orders that CUDA allows.

Work of one stream runs in order; work of two streams in any order, except for events and for the default stream:
blocking streams wait for it, and it waits for them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

#: When work runs: at once; as late as possible (only what is waited for); all work of other streams first, newest
#: stream first; or some of it now and then.
SCHEDULES = ("at_once", "late", "others_first", "random")


class StreamError(RuntimeError):
    """Host code did something that is wrong, or not allowed, with streams."""


class Work:
    """One queued piece of work, and what must have run before it."""

    def __init__(self, stream: Stream, run: Callable[[], None], after: list[Work]) -> None:
        self.stream, self.run, self.after, self.done = stream, run, after, False


class Stream:
    """A queue of work; ``with stream:`` and ``use`` make it the current one, as CuPy's do.

    A ``with`` that ends makes the enclosing ``with``'s stream current, or the default stream, whatever ``use`` did.
    """

    def __init__(self, queues: Queues, blocking: bool = True) -> None:
        self.queues, self.blocking, self.capturing = queues, blocking, False
        self.ptr = 1000 * len(queues.streams)  # CUDA reserves 0 (the default stream), 1 and 2
        self.pending: deque[Work] = deque()
        self.captured: list[Callable[[], None]] = []
        queues.streams.append(self)

    def __enter__(self) -> Stream:
        self.queues.entered.append(self)
        return self.use()

    def __exit__(self, *exception: object) -> None:
        self.queues.entered.pop()
        self.queues.current = self.queues.entered[-1]

    def use(self) -> Stream:
        self.queues.current = self
        return self

    def queue(self, run: Callable[[], None]) -> None:
        """Queue work; some of what is queued may run now."""
        self.append(run)
        self.queues.run_some()

    def append(self, run: Callable[[], None]) -> None:
        """Queue work, and run nothing."""
        if self.capturing:
            self.captured.append(run)
        else:
            self.pending.append(Work(self, run, self.queues.implicitly_before(self)))

    def record(self) -> Event:
        """A new event, recorded after what was queued last."""
        event = Event()
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Let what is queued from now on run after the event."""
        self.queues.refuse_capture(self)
        if event.after:
            self.pending.append(Work(self, lambda: None, [*event.after, *self.queues.implicitly_before(self)]))

    def is_capturing(self) -> bool:
        return self.capturing

    def synchronize(self) -> None:
        self.queues.refuse_capture(self)
        self.queues.run_others(self)
        if self.pending:
            self.queues.run_until(self.pending[-1])

    def begin_capture(self) -> None:
        self.capturing, self.captured = True, []

    def end_capture(self) -> Graph:
        self.capturing = False
        return Graph(self.captured)


class Event:
    """A point in a stream's work: where the event was last recorded."""

    def __init__(self) -> None:
        self.after: list[Work] = []

    def record(self, stream: Stream) -> None:
        stream.queues.refuse_capture(stream)
        self.after = [stream.pending[-1]] if stream.pending else []


class Graph:
    """Captured work."""

    def __init__(self, steps: list[Callable[[], None]]) -> None:
        self._steps = steps

    def launch(self, stream: Stream) -> None:
        for run in self._steps:
            stream.queue(run)


class Queues:
    """All streams of a device.

    Parameters
    ----------
    schedule : str
        One of `SCHEDULES`.
    seed : int
        Seed of the random schedule.
    """

    def __init__(self, schedule: str = "late", seed: int = 0) -> None:
        if schedule not in SCHEDULES:
            raise ValueError(f"schedule must be one of {', '.join(SCHEDULES)}, not {schedule!r}")
        self.schedule, self._random = schedule, np.random.default_rng(seed)
        self.streams: list[Stream] = []
        self.current = self.default = Stream(self)
        self.entered = [self.default]

    def synchronize(self) -> None:
        """Wait for the work of all streams."""
        for stream in self.streams:
            self.refuse_capture(stream)
        while busy := [stream for stream in self.streams if stream.pending]:
            if self.schedule == "random":
                self._run_some_of(busy)
            else:
                self.run_until(busy[-1 if self.schedule == "others_first" else 0].pending[-1])

    def refuse_capture(self, stream: Stream) -> None:
        if stream.capturing:
            raise StreamError("operation not permitted when stream is capturing")

    def implicitly_before(self, stream: Stream) -> list[Work]:
        """Newest work that must run before what is queued on ``stream`` now, by the rules of the default stream."""
        if stream is self.default:
            others = [other for other in self.streams if other.blocking and other is not stream]
        else:
            others = [self.default] if stream.blocking else []
        return [other.pending[-1] for other in others if other.pending]

    def run_until(self, work: Work) -> None:
        """Run ``work`` and all that must come before it."""
        todo = [work]
        while todo:
            if todo[-1].done:
                todo.pop()
                continue
            stream = todo[-1].stream
            waiting = [other for other in stream.pending[0].after if not other.done]
            if waiting:
                todo += waiting
                continue
            first = stream.pending.popleft()
            first.done = True  # also if it fails: it is not run again
            first.run()

    def run_some(self) -> None:
        """What runs while the host goes on."""
        if self.schedule == "at_once":
            for stream in self.streams:
                if stream.pending:
                    self.run_until(stream.pending[-1])
        elif self.schedule == "random" and self._random.random() < 0.3:
            self._run_some_of([stream for stream in self.streams if stream.pending])

    def _run_some_of(self, busy: list[Stream]) -> None:
        if busy:
            stream = busy[self._random.integers(len(busy))]
            self.run_until(stream.pending[self._random.integers(len(stream.pending))])

    def run_others(self, stream: Stream) -> None:
        """What runs while the host waits for ``stream``."""
        busy = [other for other in self.streams[::-1] if other is not stream and other.pending]
        if self.schedule == "others_first":
            for other in busy:
                if other.pending:
                    self.run_until(other.pending[-1])
        elif self.schedule == "random":
            for _ in busy:
                if self._random.random() < 0.5:
                    self._run_some_of([other for other in busy if other.pending])
