"""The search for a plan, with a fake clock and fake engines: what wins, what is kept, and when it ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from forests import random_forest

from gpuqs.errors import GpuqsError
from gpuqs.tuning import search
from gpuqs.tuning.plan import Candidate
from gpuqs.tuning.search import Asked, Clock

FOREST = random_forest(np.random.default_rng(0), n_trees=3)
DEFAULT = Candidate("default", (), 1)


class World:
    """Engines with given seconds per call and answers; their work advances the clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **ways: Any) -> None:
        """``ways``: seconds of a call, a function that gives them, or (seconds, answer, seconds to prepare)."""
        self.time, self.ways, self.calls, self.prepared = 0.0, ways, dict.fromkeys(ways, 0), list[str]()
        monkeypatch.setattr(search, "ENGINES", {name: SimpleNamespace(score=self.score) for name in ways})
        monkeypatch.setattr(search, "candidates", lambda *_: [Candidate(name, (), 1, 1.0) for name in ways])
        monkeypatch.setattr(search, "hierarchy", lambda: None)

    def prepare(self, name: str, params: tuple[tuple[str, int], ...]) -> Any:
        way = self.ways[name]
        self.time += way[2] if isinstance(way, tuple) else 0.0
        self.prepared.append(name)
        return SimpleNamespace(name=name, values=SimpleNamespace(sum_dtype=np.float64))

    def score(self, program: Any, batch: np.ndarray, sums: np.ndarray, n_threads: int) -> None:
        way = self.ways[program.name]
        seconds, answer = way[:2] if isinstance(way, tuple) else (way, 1.0)
        self.calls[program.name] += 1
        self.time += seconds(self.calls[program.name]) if callable(seconds) else seconds
        sums[...] = answer

    def tuned(self, budget: float, sizes: list[int] | None = None) -> Any:
        clock = Clock(budget, lambda: self.time)
        asked = Asked(
            FOREST,
            np.zeros((100, FOREST.n_features)),
            1,
            lambda name, n: 1.0,
            lambda n: DEFAULT,
            self.prepare,
            list(self.ways),
            lambda done, total: None,
        )
        found, programs = search.search(asked, sizes or [10], clock)
        assert {key[0] for key in programs} <= {tuned.best.engine for tuned in found}
        return found


def test_a_faster_way_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, default=2e-3, better=1e-3, worse=3e-3)
    (tuned,) = world.tuned(5.0)
    assert tuned.best.engine == "better" and tuned.best.measured == pytest.approx(1000)
    assert tuned.candidates[tuned.default].engine == "default"
    assert [c.engine for c in tuned.candidates] == ["better", "default", "worse"]
    assert world.calls["worse"] < 10 < world.calls["better"]  # it is dropped after its first readings


def test_the_default_stays_unless_another_is_clearly_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    (tuned,) = World(monkeypatch, default=1e-3, better=0.985e-3).tuned(5.0)
    assert tuned.best.engine == "default"
    (tuned,) = World(monkeypatch, default=1e-3, better=0.97e-3).tuned(5.0)
    assert tuned.best.engine == "better"


def test_a_lucky_start_does_not_win(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty short calls, then calls longer than the default's."""
    fades = lambda call: 0.5e-3 if call < 20 else 1.5e-3  # noqa: E731
    (tuned,) = World(monkeypatch, default=1e-3, lucky=fades).tuned(5.0)
    assert tuned.best.engine == "default"


def test_noise_on_the_default_does_not_lose_it(monkeypatch: pytest.MonkeyPatch) -> None:
    noisy = lambda call: 1e-3 if call % 3 == 0 else 1.3e-3  # noqa: E731
    (tuned,) = World(monkeypatch, default=noisy, same=1e-3).tuned(5.0)
    assert tuned.best.engine == "default"


@pytest.mark.parametrize("budget", [0.5, 2.0, 10.0])
def test_the_budget_is_kept(monkeypatch: pytest.MonkeyPatch, budget: float) -> None:
    """The search ends with the calls in progress; candidates whose preparation would not fit are skipped."""
    slow = {f"way{i}": (0.02, 1.0, 0.1) for i in range(40)}
    world = World(monkeypatch, default=(0.02, 1.0, 0.1), **slow)
    found = world.tuned(budget, [1, 10, 100])
    assert world.time <= budget + 3 * 0.3
    assert len(found) == 3 and all(tuned.candidates for tuned in found)


def test_no_budget_gives_the_default_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, default=1e-3, better=1e-6)
    (tuned,) = world.tuned(0.0)
    assert tuned.best.engine == "default" and tuned.best.measured is None and tuned.best.predicted == 1.0
    assert world.time == 0.0 and not world.prepared


def test_programs_are_made_once_for_all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, default=1e-4, other=1.1e-4)
    world.tuned(5.0, [1, 10, 100])
    assert sorted(world.prepared) == ["default", "other"]


def test_few_programs_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, default=1e-4, **{f"way{i}": 1e-4 for i in range(30)})
    asked = Asked(
        FOREST, np.zeros((10, 8)), 1, lambda *_: 1.0, lambda n: DEFAULT, world.prepare, [], lambda *_: None
    )
    searching = search.Search(asked, Clock(5.0, lambda: world.time))
    searching.run(10, 5.0)
    assert len(searching.programs) == search._MAX_PROGRAMS < 30


def test_other_scores_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """One different bit suffices."""
    world = World(monkeypatch, default=1e-3, wrong=(1e-4, np.nextafter(1.0, 2.0), 0.0))
    with pytest.raises(GpuqsError, match=r"wrong, 1 thread gives other scores than the default"):
        world.tuned(5.0)


def test_progress_is_told_and_may_stop_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world, seen = World(monkeypatch, default=1e-3, other=1e-3), []

    def progress(done: int, total: int | None) -> None:
        seen.append((done, total))
        if len(seen) == 5:
            raise KeyboardInterrupt

    asked = Asked(
        FOREST, np.zeros((10, 8)), 1, lambda *_: 1.0, lambda n: DEFAULT, world.prepare, [], progress
    )
    with pytest.raises(KeyboardInterrupt):
        search.search(asked, [10], Clock(5.0, lambda: world.time))
    assert [total for _, total in seen] == [5000] * 5
    assert seen == sorted(seen)


def test_programs_that_take_long_are_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """If one preparation took a second and half a second is left for screening, no other program is made."""
    world = World(monkeypatch, default=(1e-3, 1.0, 1.0), other=(1e-4, 1.0, 1.0))
    (tuned,) = world.tuned(2.5)
    assert world.prepared == ["default"] and tuned.best.engine == "default" and world.time < 2.5
