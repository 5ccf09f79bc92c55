"""Timing in turns: which contender is called how often, on a clock that only the contenders advance."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"
if str(BENCH) not in sys.path:
    sys.path.append(str(BENCH))

import interleave  # noqa: E402
from interleave import TURNS, by_turns  # noqa: E402


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[str] = []

    def perf_counter(self) -> float:
        return self.now

    def contender(self, name: str, *seconds: float) -> Callable[[], None]:
        """A contender that takes the first of `seconds` to warm up, then cycles through the others."""

        def call() -> None:
            at = self.calls.count(name)
            self.calls.append(name)
            self.now += seconds[0] if at == 0 else seconds[1 + (at - 1) % (len(seconds) - 1)]

        return call


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(interleave, "time", clock)
    return clock


def test_fast_contenders_take_several_turns_where_slow_ones_allow_few_rounds(clock: Clock) -> None:
    calls = {"slow": clock.contender("slow", 9, 3.0), "fast": clock.contender("fast", 9, 0.001)}
    timings = by_turns(calls, rounds=50, budget=1.0)
    assert clock.calls.count("slow") == 1 + 3
    assert clock.calls.count("fast") == 1 + 1 + 2 * TURNS
    assert (timings["slow"].median, timings["fast"].median) == pytest.approx((3.0, 0.001))


def test_warming_up_is_not_timed_and_medians_are_of_all_turns(clock: Clock) -> None:
    calls = {"even": clock.contender("even", 70, 1.0, 2.0, 6.0), "other": clock.contender("other", 50, 2.0)}
    timings = by_turns(calls, rounds=3)
    assert clock.calls.count("even") == clock.calls.count("other") == 4
    assert (timings["even"].median, timings["even"].minimum) == pytest.approx((2.0, 1.0))


def test_no_round_begins_after_the_budget_but_for_the_first_three(clock: Clock) -> None:
    by_turns({"one": clock.contender("one", 0.0, 1.0)}, rounds=50, budget=4.5)
    assert clock.calls.count("one") == 1 + 5


def test_no_contender_is_no_error(clock: Clock) -> None:
    assert by_turns({}, rounds=5) == {}
