"""Memory of models on devices: who waits for whom before it goes back."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager, nullcontext

import pytest
from emulation.streams import SCHEDULES, Event, Queues, Stream

from gpuqs.devices import model_memory
from gpuqs.devices.model_memory import ModelMemory


class Memory:
    """Notes when the models' stream gets to work queued after the memory's return."""

    def __init__(self, models: ModelMemory, notes: list[str]) -> None:
        self.models, self.notes = models, notes

    def __del__(self) -> None:
        self.models.stream.append(lambda notes=self.notes: notes.append("others have it"))


class Lent:
    """Memory of a model that is lent, and work that reads it."""

    def __init__(self, schedule: str = "late") -> None:
        self.queues = Queues(schedule)
        self.models = ModelMemory(Stream(self.queues, False), Event, nullcontext)
        self.notes: list[str] = []
        self.loans = [self.models.lend(Memory(self.models, self.notes))]

    def stream(self) -> Stream:
        return Stream(self.queues, False)

    def read_on(self, stream: Stream) -> None:
        stream.queue(lambda: self.notes.append("read"))
        self.models.note(stream)

    def goes_back_after(self, reads: int) -> bool:
        """Whether others get the memory after ``reads`` reads."""
        self.loans.clear()
        self.models.stream.synchronize()
        return self.notes == ["read"] * reads + ["others have it"]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_memory_goes_back_after_what_was_queued(schedule: str) -> None:
    lent = Lent(schedule)
    streams = [lent.stream() for _ in range(3)]
    for stream in (*streams, streams[1]):
        lent.read_on(stream)
    assert lent.goes_back_after(4)


def test_few_streams_are_known_and_all_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_memory, "STREAMS", 3)
    lent = Lent()
    streams = [lent.stream() for _ in range(9)]
    for stream in (*streams, streams[0]):
        lent.read_on(stream)
        assert len(lent.models._last) <= 3
    assert lent.goes_back_after(10)


def test_as_many_streams_as_are_kept_make_no_new_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_memory, "STREAMS", 8)
    lent = Lent()
    streams = [lent.stream() for _ in range(8)]
    for stream in streams:
        lent.read_on(stream)
    known = dict(lent.models._last)
    for stream in streams:
        lent.read_on(stream)
    assert lent.models._last == known and len(known) == 8
    assert lent.goes_back_after(16)


def test_a_stream_that_gives_way_while_it_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread's stream takes the place between the look-up and the record."""
    monkeypatch.setattr(model_memory, "STREAMS", 1)
    lent = Lent()
    stream, other = lent.stream(), lent.stream()
    lent.read_on(stream)
    record, meanwhile = Event.record, [lambda: lent.models.note(other)]

    def record_late(event: Event, of: Stream) -> None:
        while meanwhile:
            meanwhile.pop()()
        record(event, of)

    monkeypatch.setattr(Event, "record", record_late)
    lent.read_on(stream)
    assert lent.goes_back_after(2)


def test_memory_that_goes_while_a_stream_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_memory, "STREAMS", 1)
    lent = Lent()
    lent.read_on(lent.stream())
    models_stream = lent.models.stream
    wait = models_stream.wait_event

    def wait_late(event: Event) -> None:
        monkeypatch.setattr(models_stream, "wait_event", wait)
        lent.loans.clear()  # as by garbage collection, or in another thread
        wait(event)

    monkeypatch.setattr(models_stream, "wait_event", wait_late)
    lent.models.note(lent.stream())
    assert lent.goes_back_after(1) and lent.models._leaving == []


def test_threads_that_note_streams_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_memory, "STREAMS", 2)
    lent = Lent()
    streams = [lent.stream() for _ in range(4)]
    threads = [
        threading.Thread(target=lambda stream=stream: [lent.read_on(stream) for _ in range(300)]) for stream in streams
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lent.goes_back_after(1200) and len(lent.models._last) <= 2


def test_streams_that_are_captured_or_gone_are_asked_nothing() -> None:
    """What they had queued was noted before."""
    lent = Lent()
    stream = lent.stream()
    lent.read_on(stream)
    stream.begin_capture()
    assert lent.goes_back_after(1)


class PerThread:
    """A stream that differs from thread to thread, under one number."""

    ptr = model_memory.PER_THREAD

    def __init__(self, queues: Queues) -> None:
        self.queues, self._of = queues, threading.local()

    @property
    def of_thread(self) -> Stream:
        return self._of.__dict__.setdefault("stream", Stream(self.queues, False))

    def __getattr__(self, name: str):
        return getattr(self.of_thread, name)


def test_a_stream_of_each_threads_own() -> None:
    """Threads' numbers are reused, and so may be the key of a thread that has ended."""
    lent = Lent()
    stream = PerThread(lent.queues)
    for _ in range(5):
        thread = threading.Thread(target=lent.read_on, args=(stream,))
        thread.start()
        thread.join()
    assert lent.goes_back_after(5)


def test_a_number_that_comes_again() -> None:
    """The number of a stream that was destroyed with work to do."""
    lent = Lent()
    for stream in [lent.stream() for _ in range(2)]:
        stream.ptr = 4096
        lent.read_on(stream)
    assert lent.goes_back_after(2)


def test_events_are_the_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    lent, entered = Lent(), []

    @contextmanager
    def active():
        entered.append(True)
        yield
        entered.pop()

    monkeypatch.setattr(lent.models, "_active", active)
    wait = lent.models.stream.wait_event
    lent.read_on(lent.stream())
    monkeypatch.setattr(lent.models.stream, "wait_event", lambda event: entered == [True] and wait(event))
    assert lent.goes_back_after(1) and entered == []


def test_a_forked_child_asks_nothing_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    lent = Lent()
    monkeypatch.setattr(lent.models, "_active", lambda: pytest.fail("a device is asked"))
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert lent.goes_back_after(0)
