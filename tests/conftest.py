"""Shared by all tests: import paths of the tests' own modules, instruction sets, real data."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuqs import cpu_fallback
from gpuqs.calls import Calls
from gpuqs.cpu_fallback.scorer import compiles

HERE = Path(__file__).parent
# Costs measured on this machine earlier must not influence the choice of engines in tests.
os.environ["GPUQS_CALIBRATE"] = "0"
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

from real_data import real_data  # noqa: E402 - found by now


def _isas() -> list[str]:
    here = cpu_fallback.available_isas()
    return here + [f"{isa} interpreted" for isa in here if compiles(isa)]


@pytest.fixture(params=_isas())
def isa(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Force each instruction set of this processor in turn; those with machine code also run without it."""
    name, _, interpreted = request.param.partition(" ")
    monkeypatch.setenv("GPUQS_ISA", name)
    monkeypatch.setenv("GPUQS_MACHINE_CODE", "0" if interpreted else "1")
    assert cpu_fallback.isa() == name
    assert cpu_fallback.compiles_programs() == (compiles(name) and not interpreted)
    return request.param


@pytest.fixture(scope="session")
def lambdarank_data() -> Path:
    """LightGBM's learning-to-rank example: ``rank.train`` and ``rank.test`` in svmlight format."""
    return real_data("lightgbm_examples", "lambdarank")


@pytest.fixture(autouse=True)
def _beside_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Child processes must not find the unbuilt sources of gpuqs in the folder they run in."""
    monkeypatch.chdir(Path(__file__).parent)


@pytest.fixture(scope="session", autouse=True)
def _signals_of_the_foreground() -> None:
    """Signals act as in a terminal, even if tests run under nohup or in the background of a shell."""
    for name, handler in (("SIGINT", signal.default_int_handler), ("SIGHUP", signal.SIG_DFL)):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), handler)


@pytest.fixture(autouse=True)
def _signals_kept(_signals_of_the_foreground: None) -> Iterator[None]:
    """Restore signal handlers after each test, so that none ends the process of later tests."""
    handler = signal.getsignal(signal.SIGINT)
    yield
    assert signal.getsignal(signal.SIGINT) is handler


@pytest.fixture
def general(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list to which each call on the general path appends its number of documents."""
    taken: list[int] = []
    answer = Calls.answer

    def counted(self: Calls, X: Any, *rest: Any) -> Any:
        taken.append(X.shape[0] if hasattr(X, "shape") else len(X))
        return answer(self, X, *rest)

    monkeypatch.setattr(Calls, "answer", counted)
    return taken
