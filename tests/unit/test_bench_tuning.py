"""bench/tuning.py: a configuration with wrong scores ends the run, whichever it is."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from forests import random_forest

from gpuqs.engines import ENGINES
from gpuqs.tuning.plan import Candidate

BENCH = Path(__file__).parents[2] / "bench"
if str(BENCH) not in sys.path:
    sys.path.append(str(BENCH))

RNG = np.random.default_rng(0)
FOREST = random_forest(RNG, n_features=5, n_trees=8, max_leaves=8)
X = RNG.normal(size=(60, 5)).astype(np.float32)
N = 20


@pytest.fixture
def tuning(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, with a small grid."""
    spec = importlib.util.spec_from_file_location("bench_tuning", BENCH / "tuning.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    monkeypatch.setattr(script, "GRID", {"walk": {}, "rankwalk": {}})
    monkeypatch.setattr(script, "by_turns", lambda calls, rounds, budget: pytest.fail("wrong scores were timed"))
    return script


@pytest.mark.parametrize("at", [0, 20, 40])
def test_a_fault_that_all_ways_share_ends_the_run(tuning: ModuleType, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """All configurations, including the default, score one batch wrongly."""
    right = tuning.caller

    def caller(forest: Any, way: Candidate, rows: np.ndarray, n: int) -> Any:
        call, calls = right(forest, way, rows, n), iter(range(0, 10**9, n))
        return lambda: call() + 1e-9 * (next(calls) % len(X) == at)

    monkeypatch.setattr(tuning, "caller", caller)
    with pytest.raises(SystemExit, match=f"other scores than the reference for 20 documents from {at} on"):
        tuning.compare(FOREST, X, N, 0.2, True)


def test_right_scores_are_timed(tuning: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    timing = type("Timing", (), {"median": 1.0})
    monkeypatch.setattr(tuning, "by_turns", lambda calls, rounds, budget: dict.fromkeys(calls, timing))
    told = tuning.compare(FOREST, X, N, 0.2, True)
    assert told["ways"]["plan"].split()[0].rstrip(",") in ENGINES and told["us"]["plan"] == 1e6
