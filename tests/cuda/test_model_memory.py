"""Memory of models on devices: who waits for whom before it goes back."""

from __future__ import annotations

import gc
import os
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from emulation.streams import SCHEDULES, Queues, Stream

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
    return queues, ModelMemory(Stream(queues, False), lambda: queues.current, nullcontext), []


def read_on(stream: Stream, models: ModelMemory, notes: list[str]) -> None:
    stream.queue(lambda: notes.append(f"read on {stream.ptr}"))
    models.note(stream)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_memory_goes_back_after_what_was_queued(schedule: str) -> None:
    queues, models, notes = make(schedule)
    loan, streams = models.lend(Memory(models, notes)), [Stream(queues, False) for _ in range(3)]
    for stream in (*streams, streams[1]):
        read_on(stream, models, notes)
    del loan
    models.stream.synchronize()
    assert notes[-1] == "others have it" and len(notes) == 5


def test_what_a_thread_has_not_noted_yet_is_waited_for() -> None:
    queues, models, notes = make()
    loan = models.lend(Memory(models, notes))
    with Stream(queues, False) as stream:
        stream.queue(lambda: notes.append("read"))
        del loan
    models.stream.synchronize()
    assert notes == ["read", "others have it"]


def test_few_streams_are_noted_and_all_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_memory, "STREAMS", 3)
    queues, models, notes = make()
    loan, streams = models.lend(Memory(models, notes)), [Stream(queues, False) for _ in range(9)]
    streams[0].begin_capture()  # after it was noted, say: no event can tell what it did before
    for stream in streams:
        models.note(stream)
        stream.queue(lambda: notes.append("read"))
        models.note(stream)
        assert len(models._noted) <= 3
    assert streams[0].ptr in models._noted
    streams[0].end_capture()
    del loan
    models.stream.synchronize()
    assert notes == ["read"] * 8 + ["others have it"]


def test_what_is_given_back_during_a_capture_waits_for_its_end() -> None:
    queues, models, notes = make()
    loans, stream = [models.lend(Memory(models, notes)) for _ in range(2)], Stream(queues, False)
    read_on(stream, models, notes)
    stream.begin_capture()
    loans.pop()
    models.stream.synchronize()
    assert notes == []
    stream.end_capture()
    loans.pop()
    models.stream.synchronize()
    assert notes == [f"read on {stream.ptr}", "others have it", "others have it"]


def test_a_stream_that_may_not_be_asked_is_waited_for_later() -> None:
    _, models, notes = make()

    def refuse() -> bool:
        raise RuntimeError("cudaErrorStreamCaptureImplicit")

    models.note(SimpleNamespace(ptr=99, is_capturing=refuse))
    models.take_back(Memory(models, notes))
    models.stream.synchronize()
    assert notes == [] and len(models._returned) == 1


def test_a_stream_of_each_threads_own_is_waited_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    queues, models, notes = make()
    stream = Stream(queues, False)
    monkeypatch.setattr(model_memory, "PER_THREAD", stream.ptr)
    loan = models.lend(Memory(models, notes))
    for _ in range(2):
        read_on(stream, models, notes)
    assert models._noted == {}
    del loan
    models.stream.synchronize()
    assert notes[-1] == "others have it" and len(notes) == 3


@pytest.mark.parametrize("where", ["a forked child", "a process that ends"])
def test_nothing_is_asked_of_the_driver_in(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, models, notes = make()
    loan = models.lend(Memory(models, notes))
    monkeypatch.setattr(models, "_active", lambda: pytest.fail("a device is asked"))
    if where == "a forked child":
        monkeypatch.setattr(os, "getpid", lambda: -1)
    else:
        monkeypatch.setattr(model_memory.sys, "is_finalizing", lambda: True)
    del loan
    gc.collect()
    assert models._returned == []
