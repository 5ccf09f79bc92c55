"""Streams of the emulation: work runs at a wait, in every order that CUDA allows and in no other; memory is checked."""

from __future__ import annotations

import gc
from contextlib import nullcontext

import numpy as np
import pytest
from emulation.device import EmulatedDevice, ForeignArray
from emulation.memory import to_host
from emulation.streams import SCHEDULES, Stream, StreamError


@pytest.fixture(params=SCHEDULES)
def device(request: pytest.FixtureRequest) -> EmulatedDevice:
    return EmulatedDevice(schedule=request.param)


@pytest.fixture
def late() -> EmulatedDevice:
    return EmulatedDevice(schedule="late")


def note(stream: Stream, into: list[str], what: str) -> None:
    stream.queue(lambda: into.append(what))


def orders(schedule: str, queue) -> set[str]:
    """The orders in which a queueing function's notes run, over several seeds."""
    seen = set()
    for seed in range(60 if schedule == "random" else 1):
        device, notes = EmulatedDevice(schedule=schedule, seed=seed), []
        queue(device, lambda stream, what, notes=notes: note(stream, notes, what))
        device.wait()
        seen.add("".join(notes))
    return seen


def two_streams(device: EmulatedDevice, note) -> None:
    first, second = device.stream(), device.stream()
    for stream, what in ((first, "a"), (second, "x"), (first, "b"), (second, "y")):
        note(stream, what)


def test_schedules_are_legal_orders_and_differ() -> None:
    legal = {"abxy", "axby", "axyb", "xaby", "xayb", "xyab"}
    assert orders("at_once", two_streams) == {"axby"}
    assert orders("late", two_streams) == {"abxy"}
    assert orders("others_first", two_streams) == {"xyab"}
    assert legal >= orders("random", two_streams) and len(orders("random", two_streams)) > 3


def event(device: EmulatedDevice, note) -> None:
    first, second = device.stream(), device.stream()
    note(first, "a")
    second.wait_event(first.record())
    note(second, "x")
    note(first, "b")


def default_between(device: EmulatedDevice, note) -> None:
    blocking, free = device.stream(blocking=True), device.stream()
    note(blocking, "a")
    note(device.queues.default, "d")
    note(blocking, "b")
    note(free, "x")


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_events_and_the_default_stream_order_work(schedule: str) -> None:
    assert orders(schedule, event) <= {"axb", "abx"}
    assert {order.replace("x", "") for order in orders(schedule, default_between)} == {"adb"}
    if schedule == "random":  # a non-blocking stream is not ordered by it
        assert len(orders(schedule, default_between)) > 2


def test_nothing_runs_before_somebody_waits(late: EmulatedDevice) -> None:
    notes: list[str] = []
    first, second = late.stream(), late.stream()
    note(first, notes, "a")
    note(second, notes, "x")
    assert notes == []
    first.synchronize()
    assert notes == ["a"]
    late.wait()
    assert notes == ["a", "x"]


def test_arrays_are_computed_later_and_in_order(device: EmulatedDevice) -> None:
    numbers = np.arange(12.0).reshape(4, 3)
    X = device.from_host(numbers)
    Y = 1 / (1 + np.exp(-X))
    Y[:, 1] = X[:, 0] * 2
    X[...] = 0.0
    want = 1 / (1 + np.exp(-numbers))
    want[:, 1] = numbers[:, 0] * 2
    np.testing.assert_array_equal(to_host(Y), want)
    np.testing.assert_array_equal(to_host(X), np.zeros((4, 3)))
    labels = device.from_host(np.array([7, 5, 9]))
    np.testing.assert_array_equal(to_host(labels[Y.argmax(axis=1)]), np.array([7, 5, 9])[want.argmax(axis=1)])
    grown = Y - Y.max(axis=1, keepdims=True)
    np.testing.assert_array_equal(to_host(grown.sum(axis=1)), (want - want.max(axis=1, keepdims=True)).sum(axis=1))


def test_as_cupy_no_array_of_the_host_is_mixed_in(device: EmulatedDevice) -> None:
    X = device.from_host(np.zeros(3))
    for wrong in (lambda: np.array(X), lambda: X + np.ones(3), lambda: X.__setitem__(..., np.ones(3))):
        with pytest.raises(TypeError, match=r"host|implicit"):
            wrong()


def test_a_buffer_of_the_host_that_changes_too_soon_is_seen(late: EmulatedDevice) -> None:
    pinned, there = late.pinned((3,), np.float64), late.empty(3, np.float64)
    pinned[:] = 1
    late.copy_in(there, pinned)
    pinned[:] = 2  # without a wait
    np.testing.assert_array_equal(to_host(there), [2, 2, 2])


def test_results_that_nobody_waited_for_are_noise(late: EmulatedDevice) -> None:
    pinned, there = late.pinned((3,), np.float64), late.from_host(np.arange(3.0))
    late.copy_out(pinned, there)
    assert not np.array_equal(pinned, np.arange(3.0))
    late.queues.current.synchronize()
    np.testing.assert_array_equal(pinned, np.arange(3.0))


def test_a_pinned_buffer_given_back_under_a_copy_is_refused(late: EmulatedDevice) -> None:
    pinned, there = late.pinned((5,), np.float64), late.empty(3, np.float64)
    late.copy_in(there, pinned[:3])
    del pinned
    gc.collect()
    with pytest.raises(StreamError, match="given back"):
        late.wait()


def test_memory_is_reused_in_its_streams_order(device: EmulatedDevice) -> None:
    with device.stream():
        first = device.empty(4, np.float64)
        first[...] = 1.0
        place = first.data.ctypes.data
        total = first + 1.0
        del first
        second = device.empty(4, np.float64)
        assert second.data.ctypes.data == place
        second[...] = 5.0
        np.testing.assert_array_equal(to_host(total), np.full(4, 2.0))
        np.testing.assert_array_equal(to_host(second), np.full(4, 5.0))


@pytest.mark.parametrize("wait", [True, False])
def test_memory_given_back_while_another_stream_uses_it_is_refused(wait: bool) -> None:
    device = EmulatedDevice(schedule="others_first")
    reader, owner = device.stream(), device.stream()
    with owner:
        X = device.from_host(np.arange(4.0))
    with reader:
        total = X + 1.0
    if wait:
        reader.synchronize()
    del X
    with nullcontext() if wait else pytest.raises(StreamError, match="given back"):
        device.wait()
    assert total.shape == (4,)


def test_memory_on_another_stream_than_its_own_is_refused(late: EmulatedDevice) -> None:
    owner, other = late.stream(), late.stream()
    with owner:
        first = late.empty(4, np.float64)
        first[...] = 1.0
        del first
        second = late.empty(4, np.float64)  # the owner's work may still write there
    with other:
        second[...] = 2.0
    with pytest.raises(StreamError, match="another stream may still use"):
        other.synchronize()


def test_writes_past_the_end_of_memory_are_refused(late: EmulatedDevice) -> None:
    array = late.empty(4, np.float64)
    beyond = np.ndarray(5, np.float64, array.block.memory.guard.base, 0)
    late.pool.run_later("a kernel", [array.block], lambda: np.copyto(beyond, 1.0))
    with pytest.raises(StreamError, match="a kernel writes past the end"):
        late.wait()


def test_copies_that_no_bus_makes_are_refused(late: EmulatedDevice) -> None:
    there, pinned = late.empty((4, 2), np.float64), late.pinned((4, 2), np.float64)
    with pytest.raises(StreamError, match="not pinned"):
        late.copy_in(there, np.zeros((4, 2)))
    with pytest.raises(StreamError, match="side by side"):
        late.copy_in(there[:, :1], pinned[:, :1])
    with pytest.raises(StreamError, match="copy of"):
        late.copy_out(pinned[:3], there)


def test_other_libraries_are_ordered_by_hand(device: EmulatedDevice) -> None:
    theirs = device.stream()
    with theirs:
        array = device.from_host(np.zeros(3))
        array[...] = 4.0
    X = device.adopt(ForeignArray(array, theirs))
    X[...] = X + 1.0
    back = device.hand_back(X, ForeignArray(array, theirs))
    with theirs:
        np.testing.assert_array_equal(to_host(back.array), np.full(3, 5.0))


def test_what_waits_is_refused_while_work_is_captured(late: EmulatedDevice) -> None:
    with late.stream() as stream:
        array = late.from_host(np.zeros(3))
        stream.begin_capture()
        array[...] = array + 1.0
        for wait in (stream.synchronize, late.queues.synchronize, lambda: to_host(array)):
            with pytest.raises(StreamError, match="not permitted when stream is capturing"):
                wait()
        graph = stream.end_capture()
        np.testing.assert_array_equal(to_host(array), np.zeros(3))
        graph.launch(stream)
        for _ in range(2):  # the sum and its copy: the sum's memory was not kept for the graph
            with pytest.raises(StreamError, match="given back"):
                stream.synchronize()
        with late.active():
            stream.begin_capture()
            array[...] = array + 1.0
            graph = stream.end_capture()
        for _ in range(2):
            graph.launch(stream)
        np.testing.assert_array_equal(to_host(array), np.full(3, 2.0))


def test_work_goes_to_the_active_device(late: EmulatedDevice) -> None:
    with pytest.raises(StreamError, match="outside of active"):
        late.upload(np.zeros(3))
