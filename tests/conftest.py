"""What all tests share: the tests' own modules importable, instruction sets, real data."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gpuqs import cpu_fallback

HERE = Path(__file__).parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))


@pytest.fixture(params=cpu_fallback.available_isas())
def isa(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each instruction set that this processor has, forced in turn."""
    monkeypatch.setenv("GPUQS_ISA", request.param)
    assert cpu_fallback.isa() == request.param
    return request.param


@pytest.fixture(scope="session")
def lambdarank_data() -> Path:
    """LightGBM's learning-to-rank example: ``rank.train`` and ``rank.test`` in svmlight format."""
    path = HERE.parents[1] / "shared" / "data" / "lightgbm_examples" / "lambdarank"
    if not path.is_dir():
        pytest.skip(f"no real data at {path}")
    return path
