"""Memory of models on devices: who waits for whom before it goes back."""

from __future__ import annotations

import gc
import os
import threading
from contextlib import contextmanager, nullcontext

import pytest
from emulation.streams import SCHEDULES, Event, Queues, Stream

from gpuqs.devices import model_memory
from gpuqs.devices.model_memory import ModelMemory


class Memory:
    """Notes when the models' stream comes to what follows its return."""

    def __init__(self, models: ModelMemory, notes: list[str]) -> None:
        self.models, self.notes = models, notes

    def __del__(self) -> None:
        self.models.stream.append(lambda notes=self.notes: notes.append("others have it"))


def make(schedule: str = "late") -> tuple[Queues, ModelMemory, list[str]]:
    queues = Queues(schedule)
    return queues, ModelMemory(Stream(queues, False), Event, nullcontext), []


def read_on(stream: Stream, models: ModelMemory, notes: list[str]) -> None:
    stream.queue(lambda: notes.append("read"))
    models.note(stream)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_memory_goes_back_after_what_was_queued(schedule: str) -> None:
    queues, models, notes = make(schedule)
    loan, streams = models.lend(Memory(models, notes)), [Stream(queues, False) for _ in range(3)]
    for stream in (*streams, streams[1]):
        read_on(stream, models, notes)
    del loan
    models.stream.synchronize()
    assert notes == ["read"] * 4 + ["others have it"]


def test_few_streams_are_known_and_all_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_memory, "STREAMS", 3)
    queues, models, notes = make()
    loan, streams = models.lend(Memory(models, notes)), [Stream(queues, False) for _ in range(9)]
    for stream in (*streams, streams[0]):
        read_on(stream, models, notes)
        assert len(models._last) <= 3
    del loan
    models.stream.synchronize()
    assert notes == ["read"] * 10 + ["others have it"]


def test_a_stream_that_gives_way_while_it_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread's stream takes the place between the look and the record."""
    monkeypatch.setattr(model_memory, "STREAMS", 1)
    queues, models, notes = make()
    loan, stream, other = models.lend(Memory(models, notes)), Stream(queues, False), Stream(queues, False)
    read_on(stream, models, notes)
    record, meanwhile = Event.record, [lambda: models.note(other)]

    def record_late(event: Event, of: Stream) -> None:
        while meanwhile:
            meanwhile.pop()()
        record(event, of)

    monkeypatch.setattr(Event, "record", record_late)
    read_on(stream, models, notes)
    del loan
    models.stream.synchronize()
    assert notes == ["read", "read", "others have it"]


def test_threads_that_note_streams_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_memory, "STREAMS", 2)
    queues, models, notes = make()
    loan, streams = models.lend(Memory(models, notes)), [Stream(queues, False) for _ in range(4)]
    threads = [
        threading.Thread(target=lambda stream=stream: [read_on(stream, models, notes) for _ in range(300)])
        for stream in streams
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    del loan
    models.stream.synchronize()
    assert notes == ["read"] * 1200 + ["others have it"] and len(models._last) <= 2


def test_streams_that_are_captured_or_gone_are_asked_nothing() -> None:
    """What they had queued was noted by then."""
    queues, models, notes = make()
    loan, stream = models.lend(Memory(models, notes)), Stream(queues, False)
    read_on(stream, models, notes)
    stream.begin_capture()
    del loan
    models.stream.synchronize()
    assert notes == ["read", "others have it"]


class PerThread:
    """A stream that is another in each thread, under one number."""

    ptr = model_memory.PER_THREAD

    def __init__(self, queues: Queues) -> None:
        self.queues, self._of = queues, threading.local()

    @property
    def of_thread(self) -> Stream:
        return self._of.__dict__.setdefault("stream", Stream(self.queues, False))

    def __getattr__(self, name: str):
        return getattr(self.of_thread, name)


def test_a_stream_of_each_threads_own() -> None:
    """Threads' own numbers come again, and so may the key of one that has ended."""
    queues, models, notes = make()
    loan, stream = models.lend(Memory(models, notes)), PerThread(queues)
    for _ in range(5):
        thread = threading.Thread(target=read_on, args=(stream, models, notes))
        thread.start()
        thread.join()
    del loan
    models.stream.synchronize()
    assert notes == ["read"] * 5 + ["others have it"]


def test_a_number_that_comes_again() -> None:
    """Of a stream that was destroyed with work to do."""
    queues, models, notes = make()
    loan, streams = models.lend(Memory(models, notes)), [Stream(queues, False) for _ in range(2)]
    for stream in streams:
        stream.ptr = 4096
        read_on(stream, models, notes)
    del loan
    models.stream.synchronize()
    assert notes == ["read", "read", "others have it"]


def test_memory_that_goes_while_a_stream_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_memory, "STREAMS", 1)
    queues, models, notes = make()
    loans = [models.lend(Memory(models, notes))]
    read_on(Stream(queues, False), models, notes)
    wait = models.stream.wait_event

    def wait_late(event: Event) -> None:
        monkeypatch.setattr(models.stream, "wait_event", wait)
        loans.clear()  # as by a collection, or in another thread
        wait(event)

    monkeypatch.setattr(models.stream, "wait_event", wait_late)
    models.note(Stream(queues, False))
    models.stream.synchronize()
    assert notes == ["read", "others have it"] and models._leaving == []


def test_events_are_the_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    queues, models, notes = make()
    loan, entered = models.lend(Memory(models, notes)), []

    @contextmanager
    def active():
        entered.append(True)
        yield
        entered.pop()

    monkeypatch.setattr(models, "_active", active)
    wait = models.stream.wait_event
    read_on(Stream(queues, False), models, notes)
    monkeypatch.setattr(models.stream, "wait_event", lambda event: entered == [True] and wait(event))
    del loan
    models.stream.synchronize()
    assert notes == ["read", "others have it"] and entered == []


def test_a_forked_child_asks_nothing_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    _, models, notes = make()
    loan = models.lend(Memory(models, notes))
    monkeypatch.setattr(models, "_active", lambda: pytest.fail("a device is asked"))
    monkeypatch.setattr(os, "getpid", lambda: -1)
    del loan
    gc.collect()
