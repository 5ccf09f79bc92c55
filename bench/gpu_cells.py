"""The comparisons of `bench/gpu.py`: engines and nvForest on the same forests and documents."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from driver import Hardware
    from gpu import Bench

#: Largest batch whose latency matters, and which therefore gets many calls.
SMALL_BATCH = 1000


@dataclass(frozen=True)
class Cell:
    """One forest and the documents that it scores."""

    about: dict[str, int]
    make: Callable[[], Any]
    X: np.ndarray
    n: int


def with_features(X: np.ndarray, n: int) -> np.ndarray:
    """``n`` columns like those of X; columns beyond X's own come from other documents."""
    return np.stack([np.roll(X[:, f % X.shape[1]], f // X.shape[1]) for f in range(n)], axis=1)


def cells(bench: Bench) -> Iterator[Cell]:
    """nvForest's own benchmark, then trees by leaves, then features."""
    from made_up import complete, lambdamart_like

    sizes = bench.sizes
    n_trees, depth, n_features, n = sizes.complete
    X = with_features(bench.X, n_features)
    yield Cell(about(n_trees, 1 << depth, n_features), partial(complete, n_trees, depth, X), X, n)
    for n_leaves in reversed(sizes.leaves):
        for n_trees in sizes.trees:
            make = partial(bench.forest, n_trees, n_leaves)
            yield Cell(about(n_trees, n_leaves, bench.X.shape[1]), make, bench.X, sizes.documents)
    for n_features in sizes.features:
        if n_features != bench.X.shape[1]:
            X, n_trees, n_leaves = with_features(bench.X, n_features), sizes.trees[0], sizes.leaves[-1]
            make = partial(lambdamart_like, n_trees, n_leaves, X)
            yield Cell(about(n_trees, n_leaves, n_features), make, X, sizes.documents)


def about(n_trees: int, n_leaves: int, n_features: int) -> dict[str, int]:
    return {"trees": n_trees, "leaves": n_leaves, "features": n_features}


def time_cells(bench: Bench) -> None:
    """Time every cell, with documents on the device."""
    with tempfile.TemporaryDirectory() as folder:
        for cell in cells(bench):
            if not bench.in_time(f"cell {cell.about}"):
                continue
            forest = cell.make()
            for name, placed in bench.placed(forest).items():
                times = bench.clock.seconds(bench.scoring(placed, cell.n, cell.X), bench.sizes.repeats)
                bench.note("cell", times, cell.n, contender=name, **cell.about)
            for name, call, difference in nvforest_calls(bench, forest, Path(folder), cell.X, cell.n):
                times = bench.clock.seconds(call, bench.sizes.repeats)
                bench.note("cell", times, cell.n, contender=name, difference=difference, **cell.about)


def nvforest_calls(
    bench: Bench, forest: Any, folder: Path, X: np.ndarray, n: int
) -> Iterator[tuple[str, Callable[[], Any], float]]:
    """nvForest's call, if it is installed, and the share of documents with a different score, which must be small.

    nvForest casts thresholds to its own types, so that a document on a threshold may go the other way.
    """
    from gpu_peers import nvforest_on

    try:
        theirs = nvforest_on(forest, folder)
    except Exception as problem:  # third-party library: report what it cannot load, and go on
        bench.skipped.append(f"nvForest on {forest.source}: {problem}")
        return
    if theirs is None:
        return
    placed = bench.place(forest, "exact", "bitslice_gpu")
    with bench.device.active():
        documents, sums = bench.device.upload(X[np.arange(n) % len(X)]), bench.device.empty((n, 1), np.float64)
        placed.score(documents, sums)
    ours, seen = bench.to_host(sums).ravel(), bench.to_host(theirs.predict(documents)).ravel()
    differing = float((np.abs(ours - seen) > 1e-3 * max(1.0, float(np.abs(ours).max()))).mean())
    if differing > 0.01:
        sys.exit(f"WRONG: nvForest's scores of {differing:.1%} of the documents differ from gpuqs's on {forest.source}")
    yield "nvForest", partial(theirs.predict, documents), differing


def time_batches(bench: Bench) -> None:
    """Latencies for batches of every size, with documents on the device and on the host."""
    from gpuqs.devices.pipeline import run

    n_trees, n_leaves = bench.sizes.trees[0], bench.sizes.leaves[-1]
    forest = bench.forest(n_trees, n_leaves)
    placed, of = bench.placed(forest), about(n_trees, n_leaves, bench.X.shape[1])
    walks = {f"walk_gpu, {precision}": bench.place(forest, precision, "walk_gpu") for precision in ("exact", "fast")}
    with tempfile.TemporaryDirectory() as folder:
        for n in bench.sizes.batches:
            if not bench.in_time(f"batch of {n}"):
                continue
            calls = bench.sizes.calls if n <= SMALL_BATCH else bench.sizes.repeats
            X = bench.X[np.arange(n) % len(bench.X)]
            for name, program in (placed | walks if n <= SMALL_BATCH else placed).items():
                times = bench.clock.seconds(bench.scoring(program, n), calls)
                bench.note("batch on the device", times, n, contender=name, **of)
                sums = np.zeros((n, 1), program.values.sum_dtype)
                times = host_seconds(partial(run, bench.device, program.score, X, sums), calls)
                bench.note("batch on the host", times, n, contender=name, **of)
            for name, call in predicting(bench, forest, X):
                bench.note("batch on the device", bench.clock.seconds(call, calls), n, contender=name, **of)
            for name, call, _ in nvforest_calls(bench, forest, Path(folder), bench.X, n):
                bench.note("batch on the device", bench.clock.seconds(call, calls), n, contender=name, **of)


def predicting(bench: Bench, forest: Any, X: np.ndarray) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The calls that users make, including Python's overhead, with `auto`'s engine; nvForest is timed the same way."""
    if bench.has_cpu:
        from gpuqs.model import Model

        with bench.device.active():
            yield "gpuqs, predict", partial(Model(forest).to(bench.device).predict, bench.device.upload(X), "raw")


def host_seconds(call: Callable[[], Any], calls: int) -> list[float]:
    """Seconds of each synchronous call, after one to warm up."""
    call()
    times = []
    for _ in range(calls):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return times


def time_stages(bench: Bench) -> None:
    """Each kernel's time, next to a lower bound for kernels of its design."""
    from driver import hardware

    for n_trees in dict.fromkeys((bench.sizes.trees[0], bench.sizes.trees[-1])):
        n_leaves, n = bench.sizes.leaves[-1], bench.sizes.documents
        if not bench.in_time(f"stages of {n_trees} trees"):
            continue
        forest = bench.forest(n_trees, n_leaves)
        for name, placed in bench.placed(forest).items():
            floor = floors(bench.device.attributes, forest, placed, bench.X[:1000], hardware(bench.device))
            for stage, times in stage_seconds(bench, bench.scoring(placed, n)).items():
                of = {"contender": name, "stage": stage, "trees": n_trees, "leaves": n_leaves}
                us = bench.note("stage", times, n, **of)
                if stage in floor:
                    bench.rows[-1] |= {"floor_us": floor[stage], "achieved": floor[stage] / us}


def stage_seconds(bench: Bench, run: Callable[[], None]) -> dict[str, list[float]]:
    """Seconds of each stage in each of several calls, after one to warm up."""
    run()
    calls: list[dict[str, list[tuple[Any, Any]]]] = []
    plain = bench.device.stage
    bench.device.stage = lambda name: bench.clock.span(calls[-1].setdefault(name, []))
    try:
        for _ in range(bench.sizes.repeats):
            calls.append({})
            bench.clock.occupy()
            run()
    finally:
        bench.device.stage = plain
    return {name: [sum(map(bench.clock.elapsed, call[name])) for call in calls] for name in calls[0]}


def floors(attributes: Any, forest: Any, placed: Any, X: np.ndarray, how_fast: Hardware) -> dict[str, float]:
    """Calculated lower bounds of the microseconds per document of kernels with this design.

    Values are read from DRAM once, and `qs_gpu` writes them once. Per clock, a multiprocessor serves one shared-memory
    or L1 access by 32 lanes: `update_scores` needs one lane's access per false test; `decode_predicates` writes, and
    `steps` and `slots` read, a row of 1,024 documents in one access; `steps` accesses a plane twice per eight nodes,
    `slots` five words per node; sums look up a leaf per document and tree.
    """
    n_bytes, per_clock = X.shape[1] * X.itemsize, attributes.multiprocessors * how_fast.clock
    if hasattr(placed, "n_blocks"):  # qs_gpu
        false = sum(
            np.searchsorted(np.sort(forest.threshold[forest.feature == f]), X[:, f], "left").mean()
            for f in np.unique(forest.feature)
        )
        moved = n_bytes + placed.n_columns * X.itemsize
        seconds = {"transpose": moved / how_fast.bandwidth, "update_scores": false / 32 / per_clock}
    else:
        look_ups = forest.n_trees / 32 / per_clock
        seconds = {
            "rank_documents": n_bytes / how_fast.bandwidth,
            "decode_predicates": (placed.n_rows - 1) * len(placed.segments) / 1024 / per_clock,
            "steps": 1.25 * forest.n_nodes / 1024 / per_clock,
            "slots": 6 * forest.n_nodes / 1024 / per_clock,
            "sum_fast": look_ups,
            "sum_exact": look_ups,
            "sum_few": look_ups,
        }
    return {stage: second * 1e6 for stage, second in seconds.items()}


def measure_energy(bench: Bench) -> None:
    """Joules per document of the whole board, as NVML counts them."""
    from gpu_energy import NoEnergy, joules

    try:
        board = bench.board()
    except NoEnergy as problem:
        bench.skipped.append(f"energy: {problem}")
        return
    n_trees, n_leaves, n = bench.sizes.trees[0], bench.sizes.leaves[-1], bench.sizes.documents
    for name, placed in bench.placed(bench.forest(n_trees, n_leaves)).items():
        if bench.in_time(f"energy of {name}"):
            each, calls = joules(bench.scoring(placed, n), bench.device.wait, board, bench.sizes.seconds)
            row = {"section": "energy", "contender": name, "trees": n_trees, "leaves": n_leaves, "documents": n}
            bench.rows.append({**row, "calls": calls, "microjoules_per_document": each / n * 1e6})
            print(f"  {name}: {each / n * 1e6:.4g} microjoules per document, {calls} calls")
