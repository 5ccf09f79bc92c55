"""Benchmark of the GPU engines on the GPU of this machine: correctness first, then times, a short table last.

    python bench/gpu.py [--minutes 9] [--wheels FOLDER] [--out gpu]    # writes gpu.json, gpu.md, gpu.png

Needs an NVIDIA GPU, CuPy and cuda-python; no network. gpuqs is built with the available tools; if that
fails, its GPU engines still run from the checkout, without the CPU engines to compare with.
XGBoost and nvForest are included if they are installed, or if FOLDER holds their wheels.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import gpu_energy
import gpu_setup
import numpy as np


@dataclass(frozen=True)
class Sizes:
    """How much to run; the defaults fill some minutes of a data-centre GPU."""

    leaves: tuple[int, ...] = (32, 64)
    trees: tuple[int, ...] = (1000, 5000, 10_000, 20_000)
    batches: tuple[int, ...] = (1, 10, 64, 100, 1000, 10_000, 100_000, 1_000_000)
    features: tuple[int, ...] = (136, 220, 700)
    complete: tuple[int, int, int, int] = (1024, 8, 128, 1_000_000)  # nvForest's own: trees, depth, features, documents
    documents: int = 100_000
    checked: int = 2000
    tree_blocks: tuple[int, ...] = (500, 1000, 2000, 3000, 5000, 7500, 10_000, 20_000)
    threads: tuple[int, ...] = (64, 128, 256, 512, 1024)
    repeats: int = 7
    calls: int = 200  # timed calls per small batch size
    seconds: float = 2.0  # time over which energy is measured


class Clock:
    """Times calls that queue work on the device."""

    def __init__(self, device: Any) -> None:
        self._cupy = device._cupy

    def seconds(self, call: Callable[[], Any], repeats: int) -> list[float]:
        """Seconds on the device of each of ``repeats`` calls, after one to warm up."""
        events = self._cupy.cuda.Event
        call()
        times = []
        for _ in range(repeats):
            begin, end = events(), events()
            begin.record()
            call()
            end.record()
            end.synchronize()
            times.append(self._cupy.cuda.get_elapsed_time(begin, end) / 1000)
        return times

    def occupy(self) -> None:
        """Queue some milliseconds of work, so that the device never waits for work that is queued next."""
        memory = self._cupy.empty(1 << 26, np.float32)
        for _ in range(40):
            memory.fill(0)

    @contextmanager
    def span(self, into: list[tuple[Any, Any]]) -> Iterator[None]:
        """Append the device's events before and after the work queued inside; see `elapsed`."""
        begin, end = self._cupy.cuda.Event(), self._cupy.cuda.Event()
        begin.record()
        yield
        end.record()
        into.append((begin, end))

    def elapsed(self, span: tuple[Any, Any]) -> float:
        """Seconds from the begin of a span to its end; waits for the end."""
        span[1].synchronize()
        return self._cupy.cuda.get_elapsed_time(*span) / 1000


@dataclass
class Bench:
    """What every section reads and writes."""

    device: Any
    clock: Any
    sizes: Sizes
    X: np.ndarray
    deadline: float
    has_cpu: bool
    rows: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def in_time(self, what: str) -> bool:
        """Whether there is time left; if not, record what is skipped."""
        if time.monotonic() < self.deadline:
            return True
        self.skipped.append(what)
        return False

    def forest(self, n_trees: int, n_leaves: int) -> Any:
        from made_up import lambdamart_like

        return lambdamart_like(n_trees, n_leaves, self.X)

    def place(self, forest: Any, precision: str = "exact", engine: str = "qs_gpu", **settings: Any) -> Any:
        """The forest on the device, as the engine's own `PlacedForest`."""
        from gpuqs.engines import ENGINES
        from gpuqs.engines.gpu.qs_gpu import QsGpu
        from gpuqs.engines.gpu.qs_placed import QsSettings

        chosen = QsGpu(QsSettings(**settings)) if engine == "qs_gpu" else ENGINES[engine]
        return chosen.prepare(forest, precision, device=self.device).forest

    def placed(self, forest: Any) -> dict[str, Any]:
        """The forest on the device for each engine and precision that is compared."""
        ways = (("qs_gpu", "exact"), ("bitslice_gpu", "exact"), ("bitslice_gpu", "fast"))
        return {f"{engine}, {precision}": self.place(forest, precision, engine) for engine, precision in ways}

    def scoring(self, placed: Any, n: int, given: np.ndarray | None = None) -> Callable[[], None]:
        """A call that scores ``n`` documents on the device: the bench's, or given ones."""
        documents = self.X if given is None else given
        with self.device.active():
            X = self.device.upload(documents[np.arange(n) % len(documents)])
            sums = self.device.empty((n, 1), placed.values.sum_dtype)

        def score() -> None:
            with self.device.active():
                placed.score(X, sums)

        return score

    def time(self, section: str, placed: Any, n: int, **about: Any) -> float:
        """Time scoring ``n`` documents on the device; return microseconds per document."""
        times = self.clock.seconds(self.scoring(placed, n), self.sizes.repeats)
        return self.note(section, times, n, form=placed.form, threads=placed.threads,
                         tree_blocks=placed.n_blocks, occupancy=occupancy(self.device, placed), **about)  # fmt: skip

    def to_host(self, array: Any) -> np.ndarray:
        return np.asarray(self.device._cupy.asnumpy(array))

    def board(self) -> gpu_energy.Board:
        """The counter of the device's energy."""
        return gpu_energy.Board(self.device._cupy.cuda.runtime.deviceGetPCIBusId(self.device.index))

    def note(self, section: str, times: list[float], n: int, **about: Any) -> float:
        us = statistics.median(times) / n * 1e6
        row = {"section": section, **about, "documents": n, "us_per_document": us}
        if len(times) >= 20:
            row |= {f"p{q}_us": float(np.percentile(times, q)) * 1e6 for q in (50, 95, 99)}  # per call
        self.rows.append({**row, "fastest_us": min(times) / n * 1e6})
        print(
            "  " + "  ".join(f"{k}={v:.5g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items())
        )
        return us


def check_correctness(bench: Bench) -> None:
    """Exit unless leaves and sums equal `reference`'s (`qs_gpu`'s exact sums: within the stated bound)."""
    from gpuqs.devices.pipeline import run
    from gpuqs.engines.reference import Reference

    reference = Reference()
    for n_leaves in (2, 32, 64, 200):
        forest = bench.forest(60, n_leaves)
        X = bench.X[: bench.sizes.checked].copy()
        X[::7, ::5] = np.nan
        leaves = np.zeros((len(X), forest.n_trees), np.int32)
        for precision, dtype in (("exact", np.float64), ("fast", np.int64)):
            program, sums = reference.prepare(forest, precision), np.zeros((len(X), 1), dtype)
            reference.score(program, X, sums, 1)
            reference.leaves(program, X, leaves, 1)
            for engine in ("qs_gpu", "bitslice_gpu", "walk_gpu"):
                placed = bench.place(forest, precision, engine)
                seen, seen_leaves = np.zeros_like(sums), np.zeros_like(leaves)
                run(bench.device, placed.score, X, seen)
                run(bench.device, placed.leaves, X, seen_leaves)
                error = np.abs(sums - seen).max()
                bound = forest.n_trees * np.spacing(forest.n_trees * np.abs(forest.leaf_value).max())
                allowed = bound if (engine, precision) == ("qs_gpu", "exact") else 0
                if (leaves != seen_leaves).any() or error > allowed:
                    same = (leaves == seen_leaves).all()
                    sys.exit(f"WRONG: {engine}, {precision}, {n_leaves} leaves: leaves equal: {same}, error {error}")
                print(f"  {engine}, {precision}, {n_leaves} leaves: exit leaves equal, largest difference {error:.2g}")


def time_sizes(bench: Bench) -> None:
    for n_leaves in bench.sizes.leaves:
        for n_trees in bench.sizes.trees:
            if not bench.in_time(f"{n_trees} trees x {n_leaves} leaves"):
                continue
            forest, n = bench.forest(n_trees, n_leaves), bench.sizes.documents
            about = {"trees": n_trees, "leaves": n_leaves}
            bench.time("sizes", bench.place(forest), n, **about)
            if n_trees == bench.sizes.trees[0]:
                bench.time("one document a block", bench.place(forest, documents_per_block=1), n, **about)
                if n_leaves > 32:
                    bench.time("paper's form", bench.place(forest, form="mask64"), n, **about)
                if bench.has_cpu:
                    time_cpu(bench, forest, **about)


def time_cpu(bench: Bench, forest: Any, **about: Any) -> None:
    """The CPU engines with one thread, on fewer of the same documents."""
    from gpu_cells import host_seconds

    from gpuqs.engines import ENGINES

    X = bench.X[: bench.sizes.checked]
    sums = np.zeros((len(X), 1))
    for engine in ("qs", "bitslice"):
        program = ENGINES[engine].prepare(forest, "exact")
        times = host_seconds(partial(ENGINES[engine].score, program, X, sums, 1), 3)
        bench.note("CPU, one thread", times, len(X), engine=engine, **about)


def occupancy(device: Any, placed: Any) -> float:
    """Share of a multiprocessor's threads that `update_scores` can keep resident, according to the driver."""
    from driver import resident_blocks

    blocks = resident_blocks(device, *placed.scoring_kernel())
    return blocks * placed.threads / device.attributes.threads_per_multiprocessor


def time_grid(bench: Bench) -> None:
    """Time every τ and number of threads, and the policy's choice."""
    for n_leaves in bench.sizes.leaves:
        forest, n = bench.forest(bench.sizes.trees[-1], n_leaves), bench.sizes.documents // 4
        chosen, best = None, None
        for tree_block in (None, *bench.sizes.tree_blocks):
            for threads in (None,) if tree_block is None else bench.sizes.threads:
                if not bench.in_time(f"tree blocks of {tree_block}, {threads} threads, {n_leaves} leaves"):
                    continue
                placed = bench.place(forest, tree_block=tree_block, threads=threads)
                us = bench.time("grid", placed, n, tree_block=tree_block or "policy", leaves=n_leaves)
                chosen = us if tree_block is None else chosen
                best = us if best is None else min(best, us)
        if chosen and best:
            bench.rows.append({"section": "policy over best", "leaves": n_leaves, "ratio": chosen / best})


def time_peers(bench: Bench) -> None:
    """XGBoost and nvForest on a model that XGBoost trains here, checked against gpuqs's scores."""
    if not bench.has_cpu or importlib.util.find_spec("xgboost") is None:
        bench.skipped.append("peers: XGBoost or gpuqs's readers are not here")
        return
    import gpu_peers

    n_trees, n_leaves = bench.sizes.trees[0], bench.sizes.leaves[-1]
    with tempfile.TemporaryDirectory() as folder:
        for name, n, times, difference in gpu_peers.run(bench, Path(folder), n_trees, n_leaves):
            bench.note("peer", times, n, peer=name, trees=n_trees, leaves=n_leaves, difference=difference)


def sections() -> tuple[tuple[Callable[[Bench], None], float], ...]:
    """The sections in order, with weights that divide the remaining time among them."""
    import gpu_cells

    return (
        (check_correctness, 1), (gpu_cells.time_cells, 3), (gpu_cells.time_batches, 2), (gpu_cells.time_stages, 1),
        (time_peers, 2), (gpu_cells.measure_energy, 0.5), (time_sizes, 1.5), (time_grid, 1.5),
    )  # fmt: skip


def run(bench: Bench) -> None:
    """Run all sections; each gets its share of the remaining time, so that later ones get theirs."""
    plan, end = sections(), bench.deadline
    for i, (section, weight) in enumerate(plan):
        print(f"{section.__name__.replace('_', ' ')}:", flush=True)
        left = end - time.monotonic()
        bench.deadline = time.monotonic() + left * weight / sum(w for _, w in plan[i:]) if left < float("inf") else end
        section(bench)
    bench.deadline = end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=9.0, help="time that all of it may take")
    parser.add_argument("--wheels", type=Path, help="folder with wheels of XGBoost and nvForest")
    parser.add_argument("--out", type=Path, default=Path("gpu"), help="where the figures go, less .json, .md and .png")
    parser.add_argument("--device", default="cuda:0")
    arguments = parser.parse_args()
    deadline = time.monotonic() + 60 * arguments.minutes * 0.9
    has_cpu = gpu_setup.make_importable()
    if arguments.wheels:
        gpu_setup.install_peers(arguments.wheels)

    import gpu_report

    from gpuqs.demo.mslr import mslr_like
    from gpuqs.devices.cuda import cuda_device
    from gpuqs.errors import DeviceError

    try:
        device = cuda_device(arguments.device)
    except DeviceError as missing:
        sys.exit(str(missing))
    print(f"{device.attributes}")
    bench = Bench(device, Clock(device), Sizes(), mslr_like(200, 1)[0], deadline, has_cpu)
    with device.active():
        run(bench)
    report = {"gpu": vars(device.attributes), "rows": bench.rows, "skipped": bench.skipped}
    for file in gpu_report.write(report, arguments.out):
        print(f"written: {file}")
    print(gpu_report.markdown(report))


if __name__ == "__main__":
    main()
