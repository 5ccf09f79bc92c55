"""Makes the emulation, the modules that tests share, and the benchmarks importable."""

import sys
from pathlib import Path

import pytest

from gpuqs.engines import LEFT_OUT

HERE = Path(__file__).parent
for folder in (HERE, HERE.parent):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
BENCH = HERE.parents[1] / "bench"
if str(BENCH) not in sys.path:
    sys.path.append(str(BENCH))  # last: it has a profile.py, as the standard library has


@pytest.fixture(scope="session", autouse=True)
def _an_engine_for_gpus() -> None:
    if "qs_gpu" in LEFT_OUT:
        pytest.skip("gpuqs was built without QuickScorer, whose engine most of these tests run")
