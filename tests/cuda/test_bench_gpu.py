"""The GPU benchmark runs end to end on the emulated device; its arithmetic and table are right."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from emulation.device import EmulatedDevice

from gpuqs.devices.cuda import cuda_device
from gpuqs.engines.gpu.occupancy import resident_blocks
from gpuqs.errors import DeviceError

BENCH = Path(__file__).parents[2] / "bench"
if str(BENCH) not in sys.path:
    sys.path.append(str(BENCH))

import gpu  # noqa: E402
from made_up import lambdamart_like  # noqa: E402

SMALL = gpu.Sizes(
    leaves=(8, 40), trees=(5, 12), batches=(1, 40), documents=50, checked=30, tree_blocks=(3,), threads=(64,),
    repeats=2,
)  # fmt: skip


class FakeClock:
    """Every call takes a millisecond."""

    def seconds(self, call, repeats: int) -> list[float]:
        call()
        return [1e-3] * repeats

    @contextmanager
    def span(self, into: list[float]) -> Iterator[None]:
        yield
        into.append(1e-3)


def computed_occupancy(device: EmulatedDevice, placed) -> float:
    """By arithmetic, where there is no driver to ask."""
    _, threads, shared = placed.scoring_kernel()
    blocks = resident_blocks(device.attributes, threads, 32, shared)
    return blocks * threads / device.attributes.threads_per_multiprocessor


def make_bench(deadline: float = float("inf")) -> gpu.Bench:
    X = np.random.default_rng(0).normal(size=(300, 9)).astype(np.float32)
    return gpu.Bench(EmulatedDevice(), FakeClock(), SMALL, X, deadline, has_cpu=False)


@pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation needs g++")
def test_every_section_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(gpu, "hardware", lambda device: gpu.Hardware(1e9, 1e12))
    monkeypatch.setattr(gpu, "occupancy", computed_occupancy)
    bench = make_bench()
    with bench.device.active():  # as the command does
        gpu.run(bench)
    sections = {row["section"] for row in bench.rows}
    assert sections >= {"sizes", "one document a block", "paper's form", "stage", "floor", "grid",
                        "batch on the device", "batch on the host", "policy over best"}  # fmt: skip
    assert bench.skipped == ["peers: XGBoost or gpuqs's readers are not here"]
    assert {row["stage"] for row in bench.rows if row["section"] == "stage"} == {
        "transpose", "find_false_nodes", "update_scores"
    }  # fmt: skip
    assert next(r for r in bench.rows if r["section"] == "sizes")["us_per_document"] == pytest.approx(20.0)
    assert all(0 < row["occupancy"] <= 1 for row in bench.rows if row["section"] == "grid")
    assert "exit leaves and fast sums equal" in capsys.readouterr().out


def test_what_there_is_no_time_for_is_named() -> None:
    bench = make_bench(deadline=time.monotonic() - 1)
    gpu.time_sizes(bench)
    assert bench.rows == []
    assert bench.skipped[0] == "5 trees x 8 leaves"


@pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation needs g++")
def test_wrong_scores_end_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuqs.engines.reference import Reference

    monkeypatch.setattr(Reference, "leaves", lambda self, program, X, out, n: out.fill(-1))
    with pytest.raises(SystemExit, match="WRONG: 2 leaves"):
        gpu.check_correctness(make_bench())


def test_floors() -> None:
    X = np.arange(20, dtype=np.float32).reshape(10, 2)
    forest = lambdamart_like(30, 4, X)
    device = EmulatedDevice()

    class Placed:
        n_columns = 2

    seen = gpu.floors(device.attributes, forest, Placed, X, gpu.Hardware(clock=1e9, bandwidth=1e12))
    assert seen["transpose"] == pytest.approx(4 * 4 / 1e12 * 1e6)
    false = sum((X[:, f, None] > forest.threshold[forest.feature == f]).sum() for f in (0, 1)) / 10
    assert seen["update_scores"] == pytest.approx(false / (32 * 82 * 1e9) * 1e6)


def test_the_table_gives_ratios() -> None:
    rows = [
        {"section": "sizes", "trees": 1000, "leaves": 64, "us_per_document": 0.5},
        {"section": "qs, one thread", "trees": 1000, "leaves": 64, "us_per_document": 25.0},
        {"section": "peer", "peer": "XGBoost", "trees": 1000, "leaves": 64, "us_per_document": 1.0},
        {"section": "policy over best", "leaves": 64, "ratio": 1.25},
    ]
    table = gpu.summary(rows)
    assert "qs, one thread 50x, XGBoost 2x" in table
    assert "2,000,000" in table
    assert "64 leaves: 1.25 of the best's time" in table


def test_made_up_forests_are_what_they_say() -> None:
    X = np.random.default_rng(1).normal(size=(500, 20)).astype(np.float32)
    forest = lambdamart_like(50, 31, X)  # Forest checks that it is sound
    assert (forest.n_trees, forest.n_leaves, forest.n_nodes) == (50, 31, 1500)
    assert lambdamart_like(3, 1, X).n_nodes == 0
    assert forest.depth.max() > 5


def test_xgboost_on_a_gpu_is_never_xgboost_on_the_cpu() -> None:
    pytest.importorskip("xgboost")
    import gpu_peers

    X = np.random.default_rng(2).normal(size=(200, 4)).astype(np.float32)
    assert gpu_peers.train_on_gpu(X, 3, 4, device="cpu").num_boosted_rounds() == 3
    try:
        cuda_device()
    except DeviceError:
        with pytest.raises(RuntimeError, match="XGBoost did not run on the GPU"):
            gpu_peers.train_on_gpu(X, 3, 4)
    else:
        assert '"device":"cuda' in gpu_peers.train_on_gpu(X, 3, 4).save_config()


def test_the_gpu_engine_runs_from_a_checkout_that_cannot_be_built() -> None:
    code = (
        "import subprocess, sys, types; sys.modules['gpuqs.cpu_fallback'] = None\n"
        "import gpu\n"
        "gpu.subprocess.run = lambda *a, **k: types.SimpleNamespace(returncode=1, stderr='no compiler')\n"
        "assert not gpu.make_importable()\n"
        "from gpuqs.devices.cuda import cuda_device\n"
        "from gpuqs.demo.mslr import mslr_like\n"
        "from gpuqs.engines.gpu.qs_gpu import QsGpu\n"
        "from gpuqs.engines.reference import Reference\n"
        "from made_up import lambdamart_like\n"
        "assert QsGpu().supports(lambdamart_like(3, 4, mslr_like(1, 1)[0])) is None\n"
        "from gpuqs.devices import sources\n"
        "from gpuqs.engines.gpu import kernels\n"
        "for file, names in kernels.every_kernel().items():\n"
        "    assert '__global__' in sources.source(file), file\n"
        "    assert sources.source_folder().joinpath(file).is_file(), file\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=BENCH, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "going on without them\nno compiler" in done.stdout
