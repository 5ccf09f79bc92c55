"""Calibration of engines' costs: bounded, saved once, used by calls, harmless if damaged or turned off."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from forests import random_forest

from gpuqs.cpu_fallback import machine
from gpuqs.engines import ENGINES
from gpuqs.engines.base import CALL
from gpuqs.model import Model
from gpuqs.tuning import calibration
from gpuqs.tuning.calibration import MAX_FACTOR, MEASURED, MIN_FACTOR, SIZES, calibrate, ensure, factor, recalibrate

FOREST = random_forest(np.random.default_rng(0), n_trees=30, max_leaves=16)
HERE = [name for name in MEASURED if name in ENGINES]


@pytest.fixture(autouse=True)
def _turned_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GPUQS_CALIBRATE", "1")
    monkeypatch.setenv("GPUQS_CACHE_DIR", str(tmp_path))
    forgotten(monkeypatch)


def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reset the state to that of a new process."""
    monkeypatch.setattr(calibration, "_known", {})
    monkeypatch.setattr(calibration, "_asked", set())


def kept(tmp_path: Path) -> list[Path]:
    return [path for path in tmp_path.rglob("*") if path.is_file()]


def made_up(monkeypatch: pytest.MonkeyPatch, **factors: float) -> list[int]:
    """Replace calibration by one that gives these factors; the returned list grows with each run."""
    made: list[int] = []
    monkeypatch.setattr(calibration, "calibrate", lambda: made.append(1) or dict(factors))
    return made


class Clock:
    """A clock that advances by a fixed number of seconds at each reading."""

    def __init__(self, tick: float) -> None:
        self.time, self.tick = 0.0, tick

    def __call__(self) -> float:
        self.time += self.tick
        return self.time


def near_the_best() -> list[str]:
    """The engines that are measured, which are those that may be chosen for one of the sizes."""
    costs = {n: {name: calibration._kernels(name, calibration.small_forest(), n) for name in HERE} for n in SIZES}
    near = {name for of_size in costs.values() for name, us in of_size.items() if us <= 3 * min(of_size.values())}
    assert {"bitslice", "rankwalk", "walk"} <= near
    return [name for name in HERE if name in near]


def test_factors_are_around_one_and_clamped() -> None:
    factors = calibrate(limit=60.0)
    assert list(factors) == near_the_best()
    assert all(MIN_FACTOR <= value <= MAX_FACTOR for value in factors.values())
    assert min(factors.values()) <= 1.0 <= max(factors.values())


def test_a_busy_machine_is_no_poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """For two engines, one reading in three takes fifty times as long; the smallest reading counts."""
    calls: dict[str, int] = {}

    def now() -> float:
        return time[0]

    time = [0.0]
    for name in HERE:
        engine = ENGINES[name]

        def score(
            program: object, X: np.ndarray, sums: np.ndarray, n_threads: int = 1, started: bool = False,
            name: str = name, cost: Callable[..., float | None] = engine.cost,
        ) -> None:
            calls[name] = calls.get(name, 0) + 1
            quiet = ((cost(calibration.small_forest(), len(X)) or 0) - CALL) * calibration.at_home(name) * 1e-6
            time[0] += quiet * (100 if calls[name] % 3 == 0 and name in ("vqs", "walk") else 2)

        monkeypatch.setattr(engine, "score", score)
    assert calibrate(now, 1e9) == pytest.approx(dict.fromkeys(near_the_best(), 1.0))


def test_it_stops_at_its_limit() -> None:
    clock = Clock(1e-4)
    assert calibrate(clock, 0.005) == {}
    assert clock.time < 0.007
    clock = Clock(0.01)  # every preparation takes so long that no call is measured
    assert calibrate(clock, 0.05) == {}
    assert clock.time < 0.07


def test_warm_up_takes_it_once_for_all_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = made_up(monkeypatch, walk=2.0)
    Model(FOREST).warm_up(5)
    Model(FOREST).warm_up(5)
    forgotten(monkeypatch)
    Model(FOREST).warm_up(5)
    assert made == [1] and len(kept(tmp_path)) == 1 and factor("walk", machine()) == 2.0


def test_calls_only_read_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = made_up(monkeypatch, walk=2.0)
    Model(FOREST).predict(np.zeros((3, FOREST.n_features)))
    Model(FOREST).explain(3)
    assert not made and not kept(tmp_path) and factor("walk", machine()) == 1.0


def test_factors_scale_what_is_not_the_same_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {c.engine: c.microseconds for c in Model(FOREST).explain(100).choices if c.microseconds}
    made_up(monkeypatch, bitslice=MAX_FACTOR, bwqs=0.5, rankwalk=MAX_FACTOR, qs=MAX_FACTOR, vqs=0.4)
    ensure(machine())
    after = {c.engine: c.microseconds for c in Model(FOREST).explain(100).choices if c.microseconds}
    for name, us in after.items():
        scale = {"bwqs": 0.5, "qs_oblivious": 0.5, "vqs": 0.4, "walk": 1.0, "reference": 1.0}.get(name, MAX_FACTOR)
        cold = ENGINES[name].cold(FOREST, 100) / 2  # half of the calls
        assert us == pytest.approx(CALL + scale * (before[name] - cold - CALL) + cold)
    assert Model(FOREST).engine_for(40) == "vqs"


def test_choices_made_before_a_calibration_are_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """For all calls of a model, plain ones too, whichever model triggered the calibration."""
    model, X, asked = Model(FOREST), np.zeros((400, FOREST.n_features), np.float32), []
    get = type(model._programs).get
    monkeypatch.setattr(type(model._programs), "get", lambda *a, **k: asked.append(a[1]) or get(*a, **k))
    before = model.engine_for(400)
    model.predict(X), model.predict(X)  # the first call uses the forest's own arrays
    assert asked == [before] and model.engine_for(400) == before
    made_up(monkeypatch, **{name: 0.4 if name == "vqs" else MAX_FACTOR for name in HERE})
    Model(FOREST).warm_up(400)
    asked.clear()
    model.predict(X)
    cheapest = min((c for c in model.explain(400).choices if c.microseconds), key=lambda c: c.microseconds or 0.0)
    assert asked == [model.engine_for(400)] == [cheapest.engine] != [before]


def test_another_machine_measures_for_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = made_up(monkeypatch, walk=2.0)
    isa, compiled = machine()
    for where in ((isa, compiled), (isa, not compiled), ("avx9", compiled)):
        ensure(where)
    for name, value in (("processor", lambda: "another"), ("__version__", "9.9")):
        forgotten(monkeypatch)
        monkeypatch.setattr(calibration, name, value)
        assert factor("walk", machine()) == 1.0
        ensure(machine())
    assert len(made) == len(kept(tmp_path)) == 5


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"walk": 9}', b'{"walk": 0.1}', b'{"walk": NaN}', b'{"walk": "1"}', b'{"walk": true}',
     b'{"nope": 1.0}', b'{"walk": 1' + b"0" * 100_000 + b"}", b"[" * 4000, b"\xff\xfe", b'{"walk": 1.5}' + b" " * 9000],
    ids=range(13),
)
def test_a_damaged_file_is_as_good_as_none(content: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made_up(monkeypatch, walk=2.0)
    ensure(machine())
    (path,) = kept(tmp_path)
    path.write_bytes(content)
    forgotten(monkeypatch)
    assert factor("walk", machine()) == (1.5 if content.endswith(b" ") else 1.0)


def test_what_is_no_file_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made_up(monkeypatch, walk=2.0)
    path = calibration._path(machine())
    assert path is not None
    path.parent.mkdir()
    os.mkfifo(path)  # opening it would wait for a writer
    assert factor("walk", machine()) == 1.0
    assert recalibrate(machine())[0] == {}


@pytest.mark.parametrize("obstacle", ["a file", "read only", "nowhere", "turned off"])
def test_where_it_cannot_be_kept_nothing_is_measured(
    obstacle: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = made_up(monkeypatch, walk=2.0)
    if obstacle == "a file":
        (tmp_path / "calibration").write_text("")
    elif obstacle == "read only":
        monkeypatch.setattr(calibration.os, "access", lambda *_: False)  # root may write anywhere
    elif obstacle == "nowhere":
        monkeypatch.setattr(calibration, "cache_folder", lambda: None)
    else:
        monkeypatch.setenv("GPUQS_CALIBRATE", "0")
    Model(FOREST).warm_up(3)
    assert recalibrate(machine())[0] == {} and not made and factor("walk", machine()) == 1.0


def test_a_machine_that_is_too_busy_is_asked_once_by_each_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = made_up(monkeypatch)
    for n_processes in (1, 2):
        forgotten(monkeypatch)
        for _ in range(3):
            ensure(machine())
        assert len(made) == n_processes and not kept(tmp_path) and factor("walk", machine()) == 1.0


def test_factors_outlive_a_calibration_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    made_up(monkeypatch, walk=2.0)
    ensure(machine())
    made_up(monkeypatch)
    assert recalibrate(machine())[0] == {}
    forgotten(monkeypatch)
    assert factor("walk", machine()) == 2.0


def test_a_damaged_file_is_replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made_up(monkeypatch, walk=2.0)
    ensure(machine())
    kept(tmp_path)[0].write_bytes(b"{")
    forgotten(monkeypatch)
    ensure(machine())
    forgotten(monkeypatch)
    assert factor("walk", machine()) == 2.0


@pytest.mark.parametrize("error", [PermissionError, FileNotFoundError, NotADirectoryError])
def test_a_folder_that_cannot_be_looked_into_is_as_good_as_none(
    error: type[OSError], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = made_up(monkeypatch, walk=2.0)

    def refused(*_: object, **__: object) -> None:
        raise error("no")

    monkeypatch.setattr(Path, "stat", refused)
    monkeypatch.setattr(Path, "mkdir", refused)
    Model(FOREST).warm_up(3)
    assert not made
    monkeypatch.undo()
    monkeypatch.setenv("GPUQS_CALIBRATE", "1")
    monkeypatch.setenv("GPUQS_CACHE_DIR", str(tmp_path / ("a" * 300)))
    forgotten(monkeypatch)
    Model(FOREST).warm_up(3)
