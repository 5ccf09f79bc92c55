"""Benchmark of `qs_gpu` on the GPU of this machine: correctness first, then times, a short table last.

    python bench/gpu.py [--minutes 9] [--wheels FOLDER] [--json FILE]

Needs an NVIDIA GPU, CuPy and cuda-python; no network. gpuqs is built with what is there; where it
cannot be, its GPU engine still runs from the checkout, without the CPU engines to compare with.
XGBoost and nvForest are compared with where they are installed, or where FOLDER holds their wheels.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
import time
import types
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

CHECKOUT = Path(__file__).resolve().parents[1]
WHEELS = ("xgboost", "nvforest-cu13", "libnvforest-cu13", "libraft-cu13", "librmm-cu13", "pylibraft-cu13",
          "rmm-cu13", "treelite", "rapids-logger")  # fmt: skip


def make_importable() -> bool:
    """Make ``import gpuqs`` work, building it if need be; whether its CPU engines are there."""
    here = str(CHECKOUT / "bench")
    sys.path[:] = [
        str(CHECKOUT),
        *(folder for folder in sys.path if folder != here),
        here,
    ]  # ours has a profile.py
    if _imports():
        return True
    target = tempfile.mkdtemp(prefix="gpuqs-build-")
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--no-build-isolation",
        "--no-deps",
    ]
    built = subprocess.run([*command, "--target", target, str(CHECKOUT)], capture_output=True, text=True)
    if built.returncode == 0:
        sys.path.insert(0, target)
        if _imports():
            return True
    print(f"gpuqs's CPU engines do not build here; going on without them\n{built.stderr[-800:]}")
    for name, parts in (("gpuqs", ()), ("gpuqs.engines", ("engines",)), ("gpuqs.demo", ("demo",))):
        folder = CHECKOUT.joinpath("gpuqs", *parts)
        spec = importlib.util.spec_from_file_location(
            name, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        # Not run, for it imports the CPU engines; its loader finds submodules, and the device code beside it.
        sys.modules[name] = importlib.util.module_from_spec(spec)
    import plain_making

    stand_in: Any = types.ModuleType("gpuqs.cpu_fallback")
    stand_in.making = plain_making
    sys.modules |= {"gpuqs.cpu_fallback": stand_in, "gpuqs.cpu_fallback.making": plain_making}
    sys.modules["gpuqs.cpu_fallback.checksum"] = zlib
    return False


def _imports() -> bool:
    try:
        import gpuqs.model  # noqa: F401
    except ImportError:
        for name in [n for n in sys.modules if n == "gpuqs" or n.startswith("gpuqs.")]:
            del sys.modules[name]
        return False
    return True


@dataclass(frozen=True)
class Sizes:
    """How much to run; the defaults fill some minutes of a data-centre GPU."""

    leaves: tuple[int, ...] = (32, 64)
    trees: tuple[int, ...] = (1000, 5000, 10_000, 20_000)
    batches: tuple[int, ...] = (1, 10, 100, 1000, 10_000, 100_000)
    documents: int = 100_000
    checked: int = 2000
    tree_blocks: tuple[int, ...] = (500, 1000, 2000, 3000, 5000, 7500, 10_000, 20_000)
    threads: tuple[int, ...] = (64, 128, 256, 512, 1024)
    repeats: int = 7


class Clock:
    """Times of calls that queue work on the device."""

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

    @contextmanager
    def span(self, into: list[float]) -> Iterator[None]:
        """Append the seconds that the device spends on what is queued inside."""
        begin, end = self._cupy.cuda.Event(), self._cupy.cuda.Event()
        begin.record()
        yield
        end.record()
        end.synchronize()
        into.append(self._cupy.cuda.get_elapsed_time(begin, end) / 1000)


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
        """Whether there is time left; notes what is skipped otherwise."""
        if time.monotonic() < self.deadline:
            return True
        self.skipped.append(what)
        return False

    def forest(self, n_trees: int, n_leaves: int) -> Any:
        from made_up import lambdamart_like

        return lambdamart_like(n_trees, n_leaves, self.X)

    def place(self, forest: Any, precision: str = "exact", **settings: Any) -> Any:
        """The forest on the device, as `GpuForest`."""
        from gpuqs.engines.gpu.forest import Settings
        from gpuqs.engines.gpu.qs_gpu import QsGpu

        return QsGpu(Settings(**settings)).prepare(forest, precision, device=self.device).forest

    def scoring(self, placed: Any, n: int) -> Callable[[], None]:
        """A call that scores ``n`` documents which lie on the device."""
        with self.device.active():
            X = self.device.upload(self.X[np.arange(n) % len(self.X)])
            sums = self.device.empty((n, 1), placed.values.sum_dtype)

        def score() -> None:
            with self.device.active():
                placed.score(X, sums)

        return score

    def time(self, section: str, placed: Any, n: int, **about: Any) -> float:
        """Time scoring ``n`` documents on the device; microseconds a document."""
        times = self.clock.seconds(self.scoring(placed, n), self.sizes.repeats)
        return self.note(section, times, n, form=placed.form, threads=placed.threads,
                         tree_blocks=placed.n_blocks, occupancy=occupancy(self.device, placed), **about)  # fmt: skip

    def note(self, section: str, times: list[float], n: int, **about: Any) -> float:
        us = statistics.median(times) / n * 1e6
        row = {"section": section, **about, "documents": n, "us_per_document": us}
        self.rows.append({**row, "fastest_us": min(times) / n * 1e6})
        print(
            "  " + "  ".join(f"{k}={v:.5g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items())
        )
        return us


def check_correctness(bench: Bench) -> None:
    """Exit leaves and fixed-point sums equal to `reference`'s, scores within the stated bound; or an exit."""
    from gpuqs.devices.pipeline import run
    from gpuqs.engines.reference import Reference

    reference = Reference()
    for n_leaves in (2, 32, 64, 200):
        forest = bench.forest(60, n_leaves)
        X = bench.X[: bench.sizes.checked].copy()
        X[::7, ::5] = np.nan
        answers = {}
        for precision, dtype in (("exact", np.float64), ("fast", np.int64)):
            program, placed = reference.prepare(forest, precision), bench.place(forest, precision)
            for name in ("reference", "qs_gpu"):
                answers[name, precision] = np.zeros((len(X), 1), dtype)
                answers[name, "leaf"] = np.zeros((len(X), forest.n_trees), np.int32)
            reference.score(program, X, answers["reference", precision], 1)
            reference.leaves(program, X, answers["reference", "leaf"], 1)
            run(bench.device, placed.score, X, answers["qs_gpu", precision])
            run(bench.device, placed.leaves, X, answers["qs_gpu", "leaf"])
        error = np.abs(answers["reference", "exact"] - answers["qs_gpu", "exact"]).max()
        bound = forest.n_trees * np.spacing(forest.n_trees * np.abs(forest.leaf_value).max())
        same = all((answers["reference", k] == answers["qs_gpu", k]).all() for k in ("leaf", "fast"))
        if not same or error > bound:
            sys.exit(f"WRONG: {n_leaves} leaves: leaves and fast sums equal: {same}, error {error} > {bound}")
        print(f"  {n_leaves} leaves: exit leaves and fast sums equal, largest difference {error:.2g}")


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
    """One thread of `qs` on the same documents, fewer of them."""
    from gpuqs.engines import ENGINES

    program = ENGINES["qs"].prepare(forest, "exact")
    X = bench.X[: bench.sizes.checked]
    sums, times = np.zeros((len(X), 1)), []
    for _ in range(3):
        begin = time.perf_counter()
        ENGINES["qs"].score(program, X, sums, 1)
        times.append(time.perf_counter() - begin)
    bench.note("qs, one thread", times, len(X), **about)


def time_batches(bench: Bench) -> None:
    n_trees, n_leaves = bench.sizes.trees[0], bench.sizes.leaves[-1]
    placed = bench.place(bench.forest(n_trees, n_leaves))
    from gpuqs.devices.pipeline import run

    for n in bench.sizes.batches:
        if not bench.in_time(f"batch of {n}"):
            continue
        about = {"trees": n_trees, "leaves": n_leaves}
        bench.time("batch on the device", placed, n, **about)
        X, sums, times = bench.X[np.arange(n) % len(bench.X)], np.zeros((n, 1)), []
        for _ in range(bench.sizes.repeats + 1):
            begin = time.perf_counter()
            run(bench.device, placed.score, X, sums)
            times.append(time.perf_counter() - begin)
        bench.note("batch on the host", times[1:], n, **about)


def time_stages(bench: Bench) -> None:
    for n_trees in {bench.sizes.trees[0], bench.sizes.trees[-1]}:
        n_leaves, n = bench.sizes.leaves[-1], bench.sizes.documents
        if not bench.in_time(f"stages of {n_trees} trees"):
            continue
        forest = bench.forest(n_trees, n_leaves)
        placed = bench.place(forest)
        run, stages = bench.scoring(placed, n), {}
        plain = bench.device.stage
        bench.device.stage = lambda name, s=stages: bench.clock.span(s.setdefault(name, []))
        try:
            for _ in range(bench.sizes.repeats + 1):
                run()
        finally:
            bench.device.stage = plain
        per_call = len(next(iter(stages.values()))) // (bench.sizes.repeats + 1)
        for name, times in stages.items():
            calls = np.array(times[per_call:]).reshape(-1, per_call).sum(axis=1)
            bench.note("stage", calls.tolist(), n, stage=name, trees=n_trees, leaves=n_leaves)
        for name, us in floors(
            bench.device.attributes, forest, placed, bench.X[:1000], hardware(bench.device)
        ).items():
            bench.rows.append({"section": "floor", "stage": name, "trees": n_trees, "us_per_document": us})
            print(f"  floor by arithmetic: {name}: {us:.5g} us a document")


@dataclass(frozen=True)
class Hardware:
    """Clock in Hz and DRAM bandwidth in bytes a second, as the device states them."""

    clock: float
    bandwidth: float


def hardware(device: Any) -> Hardware:
    from gpuqs.devices.cuda import read_attribute

    clock, memory_clock, bits = (
        read_attribute(device.index, name) for name in ("ClockRate", "MemoryClockRate", "GlobalMemoryBusWidth")
    )  # kHz, kHz, bits
    return Hardware(clock=clock * 1e3, bandwidth=2 * memory_clock * 1e3 * bits / 8)


def occupancy(device: Any, placed: Any) -> float:
    """Share of a multiprocessor's threads that `update_scores` can keep resident, as the driver says."""
    from driver import resident_blocks

    blocks = resident_blocks(device, *placed.scoring_kernel())
    return blocks * placed.threads / device.attributes.threads_per_multiprocessor


def floors(attributes: Any, forest: Any, placed: Any, X: np.ndarray, how_fast: Hardware) -> dict[str, float]:
    """Microseconds a document that no kernel of this design can be below, by arithmetic alone.

    transpose: each value read and written once in DRAM. update_scores: each false test takes one
    lane of one shared-memory atomic, 32 lanes a clock and multiprocessor, free of conflicts.
    """
    false = sum(
        np.searchsorted(np.sort(forest.threshold[forest.feature == f]), X[:, f], "left").mean()
        for f in np.unique(forest.feature)
    )
    bytes_moved = (X.shape[1] + placed.n_columns) * X.itemsize
    lanes = 32 * attributes.multiprocessors * how_fast.clock
    return {"transpose": bytes_moved / how_fast.bandwidth * 1e6, "update_scores": false / lanes * 1e6}


def time_grid(bench: Bench) -> None:
    """Every τ and number of threads, against the policy's choice."""
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


def summary(rows: list[dict[str, Any]]) -> str:
    """The short table: `qs_gpu` by size, and the ratios to what ran beside it."""
    lines = [f"{'trees':>7} {'leaves':>6} {'us/document':>12} {'documents/s':>13}  against"]
    for row in (r for r in rows if r["section"] == "sizes"):
        same = [r for r in rows if (r.get("trees"), r.get("leaves")) == (row["trees"], row["leaves"])]
        ratios = [
            f"{r.get('peer', r['section'])} {r['us_per_document'] / row['us_per_document']:.3g}x"
            for r in same
            if r["section"] in ("qs, one thread", "paper's form", "one document a block", "peer")
        ]
        us = row["us_per_document"]
        lines.append(f"{row['trees']:7} {row['leaves']:6} {us:12.4f} {1e6 / us:13,.0f}  {', '.join(ratios)}")
    for row in (r for r in rows if r["section"] == "policy over best"):
        lines.append(
            f"policy's tree blocks and threads, {row['leaves']} leaves: {row['ratio']:.2f} of the best's time"
        )
    return "\n".join(lines)


SECTIONS: tuple[Callable[[Bench], None], ...] = (
    check_correctness, time_sizes, time_batches, time_stages, time_peers, time_grid,
)  # fmt: skip


def run(bench: Bench) -> None:
    for section in SECTIONS:
        print(f"{section.__name__.replace('_', ' ')}:", flush=True)
        section(bench)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=9.0, help="time that all of it may take")
    parser.add_argument("--wheels", type=Path, help="folder with wheels of XGBoost and nvForest")
    parser.add_argument("--json", type=Path, default=Path("gpu.json"), help="where the figures go")
    parser.add_argument("--device", default="cuda:0")
    arguments = parser.parse_args()
    deadline = time.monotonic() + 60 * arguments.minutes * 0.9
    has_cpu = make_importable()
    if arguments.wheels:
        target = tempfile.mkdtemp(prefix="gpuqs-peers-")
        pip = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-index",
            "--no-deps",
            "--target",
            target,
        ]
        for wheel in WHEELS:  # one by one: those that are there
            subprocess.run([*pip, "--find-links", str(arguments.wheels), wheel], capture_output=True)
        sys.path.append(target)

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
    arguments.json.write_text(json.dumps(report, indent=1))
    for what in bench.skipped:
        print(f"skipped: {what}")
    print(
        f"\n{device.attributes.name}, 136 features, float32, documents on the device\n{summary(bench.rows)}"
    )


if __name__ == "__main__":
    main()
