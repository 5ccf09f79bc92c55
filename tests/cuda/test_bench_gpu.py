"""The GPU benchmark runs end to end on the emulated device; its arithmetic and table are right."""

from __future__ import annotations

import json
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

import driver  # noqa: E402
import gpu  # noqa: E402
import gpu_cells  # noqa: E402
import gpu_energy  # noqa: E402
import gpu_peers  # noqa: E402
import gpu_report  # noqa: E402
from made_up import complete, lambdamart_like  # noqa: E402

SMALL = gpu.Sizes(
    leaves=(8, 40), trees=(5, 12), batches=(1, 40), documents=50, checked=30, tree_blocks=(3,), threads=(64,),
    repeats=2, features=(9, 13), complete=(6, 3, 11, 70), calls=25, seconds=0.0,
)  # fmt: skip


class FakeClock:
    """Every call takes a millisecond."""

    def seconds(self, call, repeats: int) -> list[float]:
        call()
        return [1e-3] * repeats

    def occupy(self) -> None:
        pass

    @contextmanager
    def span(self, into: list[float]) -> Iterator[None]:
        yield
        into.append(1e-3)

    def elapsed(self, span: float) -> float:
        return span


class FakeNvml:
    """Stands in for NVML's library: a call takes half a joule."""

    def __init__(self, status: int = 0) -> None:
        self.status, self.used = status, 0

    def nvmlInit_v2(self) -> int:
        return 0

    def nvmlDeviceGetHandleByPciBusId_v2(self, bus: bytes, device) -> int:
        assert bus == b"0000:01:00.0"
        return 0

    def nvmlDeviceGetTotalEnergyConsumption(self, device, used) -> int:
        used._obj.value = self.used
        self.used += 500
        return self.status


def computed_occupancy(device: EmulatedDevice, placed) -> float:
    """Occupancy by arithmetic, as there is no driver to ask."""
    _, threads, shared = placed.scoring_kernel()
    blocks = resident_blocks(device.attributes, threads, 32, shared)
    return blocks * threads / device.attributes.threads_per_multiprocessor


def make_bench(deadline: float = float("inf")) -> gpu.Bench:
    X = np.random.default_rng(0).normal(size=(300, 9)).astype(np.float32)
    return gpu.Bench(EmulatedDevice(), FakeClock(), SMALL, X, deadline, has_cpu=False)


@pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation needs g++")
def test_every_section_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(driver, "hardware", lambda device: driver.Hardware(1e9, 1e12))
    monkeypatch.setattr(gpu.Bench, "board", lambda bench: gpu_energy.Board("0000:01:00.0", FakeNvml()))
    monkeypatch.setattr(gpu, "occupancy", computed_occupancy)
    bench = make_bench()
    with bench.device.active():  # as the command does
        gpu.run(bench)
    sections = {row["section"] for row in bench.rows}
    assert sections == {"cell", "sizes", "one document a block", "paper's form", "stage", "grid", "energy",
                        "batch on the device", "batch on the host", "policy over best"}  # fmt: skip
    assert bench.skipped == ["peers: XGBoost or gpuqs's readers are not here"]
    contenders = {"qs_gpu, exact", "bitslice_gpu, exact", "bitslice_gpu, fast"}
    walks = {"walk_gpu, exact", "walk_gpu, fast"}
    for section in ("cell", "energy", "batch on the device", "batch on the host"):
        want = contenders | walks if "batch" in section else contenders
        assert {row["contender"] for row in bench.rows if row["section"] == section} == want
    cells = {(r["trees"], r["leaves"], r["features"]) for r in bench.rows if r["section"] == "cell"}
    assert cells == {(6, 8, 11), (5, 40, 9), (12, 40, 9), (5, 8, 9), (12, 8, 9), (5, 40, 13)}
    stages = {(r["contender"], r["stage"]) for r in bench.rows if r["section"] == "stage"}
    of_bits = {"rank_documents", "decode_predicates", "steps"}
    assert {stage for name, stage in stages if name == "qs_gpu, exact"} == {
        "transpose", "find_false_nodes", "update_scores"
    }  # fmt: skip
    assert {stage for name, stage in stages if name == "bitslice_gpu, exact"} == {*of_bits, "sum_few"}
    assert {stage for name, stage in stages if name == "bitslice_gpu, fast"} == {*of_bits, "sum_fast"}
    assert all(0 < r["achieved"] < 1 for r in bench.rows if "achieved" in r)
    assert next(r for r in bench.rows if r["section"] == "sizes")["us_per_document"] == pytest.approx(20.0)
    assert all(0 < row["occupancy"] <= 1 for row in bench.rows if row["section"] == "grid")
    small = [r for r in bench.rows if r["section"] == "batch on the device"]
    assert all(r["p50_us"] == r["p99_us"] == 1000.0 for r in small)
    assert "bitslice_gpu, exact, 200 leaves: exit leaves equal, largest difference 0" in capsys.readouterr().out

    report = {"gpu": {"name": "a made-up device"}, "rows": bench.rows, "skipped": bench.skipped}
    written = {file.suffix: file for file in gpu_report.write(report, tmp_path / "gpu")}
    assert written[".png"].read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert json.loads(written[".json"].read_text())["rows"] == bench.rows
    page = written[".md"].read_text()
    assert "| 5 | 40 | 9 | 50 | bitslice_gpu, fast | 20 |  | 1 |" in page
    assert all(f"## {section}\n" in page for section in sections - {"grid"})


def test_what_there_is_no_time_for_is_named() -> None:
    bench = make_bench(deadline=time.monotonic() - 1)
    gpu.time_sizes(bench)
    assert bench.rows == []
    assert bench.skipped[0] == "5 trees x 8 leaves"


@pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation needs g++")
def test_wrong_scores_end_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuqs.engines.reference import Reference

    monkeypatch.setattr(Reference, "leaves", lambda self, program, X, out, n: out.fill(-1))
    with pytest.raises(SystemExit, match="WRONG: qs_gpu, exact, 2 leaves"):
        gpu.check_correctness(make_bench())


def test_no_section_takes_the_time_of_those_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 100 s, a section with weight 1 of 4 gets 25, and the next one 2/3 of what is left."""
    seen, now = [], [0.0]

    def section(bench: gpu.Bench) -> None:
        seen.append((now[0], bench.deadline))
        now[0] += 10

    monkeypatch.setattr(gpu.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(gpu, "sections", lambda: ((section, 1), (section, 2), (section, 1)))
    bench = make_bench(deadline=100.0)
    gpu.run(bench)
    assert seen == [(0, 25), (10, 70), (20, 100)] and bench.deadline == 100


def test_energy_is_the_difference_of_the_counter() -> None:
    board = gpu_energy.Board("0000:01:00.0", FakeNvml())
    calls: list[int] = []
    assert gpu_energy.joules(lambda: calls.append(1), lambda: None, board, 0.0) == (0.5, 1)
    assert len(calls) == 2  # one to warm up
    with pytest.raises(gpu_energy.NoEnergy, match="TotalEnergyConsumption gives status 3"):
        gpu_energy.Board("0000:01:00.0", FakeNvml(status=3))


@pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation needs g++")
def test_nvforest_is_checked_before_it_is_timed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bench, n = make_bench(), 45
    forest, device = bench.forest(4, 8), bench.device
    monkeypatch.setattr(gpu.Bench, "to_host", lambda bench, array: device.to_host(array))

    def calls_of(answer: np.ndarray) -> list:
        model = type("Model", (), {"predict": lambda self, X: device.from_host(answer)})()
        monkeypatch.setattr(gpu_peers, "nvforest_on", lambda forest, folder: model)
        return list(gpu_cells.nvforest_calls(bench, forest, tmp_path, bench.X, n))

    with device.active():  # as the command does
        ours = device.empty((n, 1), np.float64)
        bench.place(forest).score(device.upload(bench.X[:n]), ours)
        scores = device.to_host(ours).copy()
        ((name, _, differing),) = calls_of(scores.astype(np.float32))
        assert (name, differing) == ("nvForest", 0.0)
        with pytest.raises(SystemExit, match="nvForest's scores of 100"):
            calls_of(scores + 1)


def test_floors() -> None:
    X = np.arange(20, dtype=np.float32).reshape(10, 2)
    forest = lambdamart_like(30, 4, X)
    device, fast = EmulatedDevice(), driver.Hardware(clock=1e9, bandwidth=1e12)

    class Placed:
        n_columns, n_blocks = 2, 1

    class Sliced:
        n_rows, segments = 41, ((None, 9),)

    seen = gpu_cells.floors(device.attributes, forest, Placed, X, fast)
    assert seen["transpose"] == pytest.approx(4 * 4 / 1e12 * 1e6)
    false = sum((X[:, f, None] > forest.threshold[forest.feature == f]).sum() for f in (0, 1)) / 10
    assert seen["update_scores"] == pytest.approx(false / (32 * 82 * 1e9) * 1e6)
    seen = gpu_cells.floors(device.attributes, forest, Sliced, X, fast)
    assert seen["rank_documents"] == pytest.approx(2 * 4 / 1e12 * 1e6)
    assert seen["decode_predicates"] == pytest.approx(40 / (1024 * 82 * 1e9) * 1e6)
    assert seen["steps"] == pytest.approx(1.25 * 90 / (1024 * 82 * 1e9) * 1e6)
    assert seen["slots"] == pytest.approx(6 * 90 / (1024 * 82 * 1e9) * 1e6)
    assert seen["sum_fast"] == seen["sum_exact"] == seen["sum_few"] == pytest.approx(30 / (32 * 82 * 1e9) * 1e6)


def test_made_up_forests_are_what_they_say() -> None:
    X = np.random.default_rng(1).normal(size=(500, 20)).astype(np.float32)
    forest = lambdamart_like(50, 31, X)  # Forest checks that it is sound
    assert (forest.n_trees, forest.n_leaves, forest.n_nodes) == (50, 31, 1500)
    assert lambdamart_like(3, 1, X).n_nodes == 0
    assert forest.depth.max() > 5
    full = complete(4, 5, X)
    assert (full.n_trees, full.n_leaves, full.n_nodes) == (4, 32, 4 * 31)
    assert (full.tree_depth == 5).all() and full.n_features == 20


def test_xgboost_on_a_gpu_is_never_xgboost_on_the_cpu() -> None:
    pytest.importorskip("xgboost")
    X = np.random.default_rng(2).normal(size=(200, 4)).astype(np.float32)
    assert gpu_peers.train_on_gpu(X, 3, 4, device="cpu").num_boosted_rounds() == 3
    try:
        cuda_device()
    except DeviceError:
        with pytest.raises(RuntimeError, match=r"XGBoost (did not run on the GPU|ran on cpu)"):
            gpu_peers.train_on_gpu(X, 3, 4)
    else:
        assert '"device":"cuda' in gpu_peers.train_on_gpu(X, 3, 4).save_config()


def test_the_gpu_engine_runs_from_a_checkout_that_cannot_be_built() -> None:
    code = (
        "import subprocess, sys, types; sys.modules['gpuqs.cpu_fallback'] = None\n"
        "import gpu, gpu_setup\n"
        "gpu_setup.subprocess.run = lambda *a, **k: types.SimpleNamespace(returncode=1, stderr='no compiler')\n"
        "assert not gpu_setup.make_importable()\n"
        "from gpuqs.devices.cuda import cuda_device\n"
        "from gpuqs.demo.mslr import mslr_like\n"
        "from gpuqs.engines.gpu.qs_gpu import QsGpu\n"
        "from gpuqs.engines.reference import Reference\n"
        "from made_up import lambdamart_like\n"
        "from gpuqs.engines.gpu.bitslice_gpu import BitsliceGpu\n"
        "from gpuqs.layout.bitslice_gpu import build_rows\n"
        "from gpuqs.layout.ranks import build_ranks\n"
        "forest = lambdamart_like(3, 4, mslr_like(1, 1)[0])\n"
        "assert QsGpu().why_not(forest) is BitsliceGpu().why_not(forest) is None\n"
        "assert 1 < build_rows(forest, build_ranks(forest)).n_rows <= 10\n"
        "from gpuqs.devices import sources\n"
        "from gpuqs.engines.gpu import kernels\n"
        "for file, names in kernels.every_kernel().items():\n"
        "    assert '__global__' in sources.source(file), file\n"
        "    assert sources.source_folder().joinpath(file).is_file(), file\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=BENCH, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "going on without them\nno compiler" in done.stdout
