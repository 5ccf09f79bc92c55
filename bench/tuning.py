"""Guided tuning against an exhaustive grid of engines, parameters and threads: how near, with how many measured points.

    python bench/tuning.py            # some minutes; figures go to bench/results/
    python bench/tuning.py --quick    # a smoke run on small forests, nothing written

The grid's points are measured one by one, those far behind once. The best of them, the plan and the default are then
timed by turns in one run, and compared by their medians: the best of many readings would be luck.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from baselines.oblivious_forest import oblivious_like
from interleave import by_turns, keep, processor, progress
from made_up import lambdamart_like
from models import documents

import gpuqs
from gpuqs import cpu_fallback
from gpuqs.engines import ENGINES
from gpuqs.engines.parameters import changed
from gpuqs.forest import Forest
from gpuqs.model import Model
from gpuqs.tuning.plan import Candidate

TREES = (64, 128, 256, 512, 1000, 2000, 4000)
DOCUMENTS = (8, 16, 32, 64, 128, 256, 1024)
#: Values of each engine's parameters; every combination is a point.
GRID: dict[str, dict[str, tuple[int, ...]]] = {
    "bitslice": {
        "max_nodes": (8_000, 16_000, 32_000, 65_000, 1 << 30),
        "max_predicates": (4_000, 12_000, 65_536),
        "one_superblock": (0, 20_000),
        "word": (128, 256, 512),
        "compiled": (1, 0),
    },
    "rankwalk": {"tree_block": (128, 512, 2048), "document_block": (4, 16, 64)},
    "vqs": {"tree_block": TREES, "document_block": DOCUMENTS},
    "bwqs": {"tree_block": TREES, "document_block": DOCUMENTS},
    "qs_oblivious": {"tree_block": (*TREES, 1 << 20), "document_block": DOCUMENTS},
    "qs": {"document_block": DOCUMENTS},
    "walk": {"tree_block": (4, 16, 64), "document_block": (0, 16, 64, 256, 1024)},
}
#: A point whose first call takes more than this many times as long as the best is dropped.
HOPELESS = 2.0
#: Number of the grid's best points that are timed in turns with the plan and the default.
FINALISTS = 6
#: Programs built for each of these configurations.
PROGRAMS = 3


def forests(quick: bool) -> Iterator[tuple[str, Forest, np.ndarray]]:
    """Three models, and documents for each."""
    X = documents(2_000)
    many, few = (100, 20) if quick else (1_000, 100)
    yield f"LambdaMART-like, {many:,} trees x 64 leaves", lambdamart_like(many, 64, X), X
    yield f"LambdaMART-like, {few:,} trees x 32 leaves", lambdamart_like(few, 32, X), X
    yield f"oblivious, {many:,} trees x 64 leaves", oblivious_like(many, 6, X), X


def points(forest: Forest, max_threads: int, quick: bool) -> Iterator[Candidate]:
    """The grid."""
    seen = set()
    for name, values in GRID.items():
        if name not in ENGINES or ENGINES[name].why_not(forest) is not None:
            continue
        listed = [v[:: max(len(v) - 1, 1)] if quick else v for v in values.values()]
        for combination in itertools.product(*listed):
            asked = dict(zip(values, combination, strict=True))
            if asked.get("word", 0) > cpu_fallback.instruction_set().widest_word:
                asked["word"] = 512
            params = changed(name, ENGINES[name].parameters, asked)
            for n_threads in sorted({1, max_threads}):
                if (name, params, n_threads) not in seen:
                    seen.add((name, params, n_threads))
                    yield Candidate(name, params, n_threads)


def caller(forest: Forest, way: Candidate, X: np.ndarray, n: int) -> Callable[[], np.ndarray]:
    """Scores the next n documents in this way: processors learn the branches of a batch that comes again at once."""
    engine = ENGINES[way.engine]
    program = engine.prepare(forest, "exact", params=dict(way.params))
    sums = np.empty((n, forest.n_outputs), program.values.sum_dtype)
    batches = itertools.cycle(X[at : at + n] for at in range(0, len(X) - n + 1, n))

    def call() -> np.ndarray:
        engine.score(program, next(batches), sums, way.n_threads)
        return sums

    return call


def search(forest: Forest, X: np.ndarray, n: int, max_threads: int, quick: bool) -> tuple[list[Candidate], int]:
    """The grid's best points by their shortest calls, and how many were measured."""
    grid = list(points(forest, max_threads, quick))
    taken: dict[Candidate, float] = {}
    for way in progress(grid, f"grid of {len(grid)}"):
        call, readings = caller(forest, way, X, n), []
        call()
        for _ in range(5):
            start = time.perf_counter()
            call()
            readings.append(time.perf_counter() - start)
            if taken and readings[0] > HOPELESS * min(taken.values()):
                break
        taken[way] = min(readings)
    return sorted(taken, key=taken.__getitem__)[:FINALISTS], len(grid)


def check(label: str, call: Callable[[], np.ndarray], want: np.ndarray, n: int) -> None:
    """End the run where a way gives any batch other scores than the reference."""
    for at in range(0, len(want) - n + 1, n):
        if not np.array_equal(call(), want[at : at + n]):
            raise SystemExit(f"{label} gives other scores than the reference for {n:,} documents from {at:,} on")


def compare(forest: Forest, X: np.ndarray, n: int, budget: float, quick: bool) -> dict[str, Any]:
    """The plan's time against the best of the grid and the default's, in one run."""
    model, max_threads = Model(forest), cpu_fallback.default_threads()
    began = time.perf_counter()
    tuned = model.tune(X, budget, batch_sizes=[n]).sizes[0]
    tuning = time.perf_counter() - began
    measured = sum(c.measured is not None for c in tuned.candidates)
    best, n_points = search(forest, X, n, max_threads, quick)
    default = tuned.candidates[tuned.default]
    ways = {"plan": tuned.best, "default": default} | {f"grid {i}": way for i, way in enumerate(best)}
    # Several programs of each configuration, whoever chose it: the placement of memory changes times by some percent,
    # and otherwise the best of several configurations would be the luckiest.
    calls = {f"{way.label} ({k})": caller(forest, way, X, n) for way in ways.values() for k in range(PROGRAMS)}
    want = model.predict(X, "raw", engine="reference").reshape(len(X), -1)
    for label, call in calls.items():
        check(label, call, want, n)
    times = by_turns(calls, 15 if quick else 200, 2.0 if quick else 20.0)
    us = {name: min(times[f"{way.label} ({k})"].median for k in range(PROGRAMS)) * 1e6 for name, way in ways.items()}
    of_grid = min((name for name in ways if name.startswith("grid")), key=us.__getitem__)
    return {
        "documents": n,
        "points": {"plan": measured, "grid": n_points},
        "seconds": {"plan": tuning},
        "us": {"plan": us["plan"], "default": us["default"], "grid": us[of_grid]},
        "ways": {"plan": ways["plan"].label, "default": default.label, "grid": ways[of_grid].label},
    }


def markdown(report: dict[str, Any]) -> str:
    """The table, and what it says."""
    lines = [
        f"# Guided tuning against an exhaustive grid, on {report['processor']}",
        "",
        f"gpuqs {report['gpuqs']}, {report['isa']}, up to {report['threads']} threads. Microseconds of a call; medians "
        f"of rounds taken by turns, of the best of {PROGRAMS} programs made alike of each way.",
        "",
        "| model | documents | default | plan | grid's best | plan : grid | plan : default | points of plan, grid |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in report["rows"]:
        us, n = row["us"], row["points"]
        lines.append(
            f"| {row['model']} | {row['documents']:,} | {us['default']:,.1f} ({row['ways']['default']}) | "
            f"{us['plan']:,.1f} ({row['ways']['plan']}) | {us['grid']:,.1f} ({row['ways']['grid']}) | "
            f"{us['plan'] / us['grid']:.3f} | {us['plan'] / us['default']:.3f} | {n['plan']:,}, {n['grid']:,} |"
        )
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small forests and grids, nothing written")
    parser.add_argument("--budget", type=float, default=10.0, help="seconds that each plan may measure (10)")
    args = parser.parse_args()
    budget = min(args.budget, 2.0) if args.quick else args.budget
    rows = [
        {"model": name, **compare(forest, X, n, budget, args.quick)}
        for name, forest, X in forests(args.quick)
        for n in (10, 2_000)
    ]
    report = {
        "processor": processor(),
        "gpuqs": gpuqs.__version__,
        "isa": cpu_fallback.isa(),
        "threads": cpu_fallback.default_threads(),
        "rows": rows,
    }
    print(markdown(report))
    if not args.quick:
        keep("tuning", report).with_suffix(".md").write_text(markdown(report))


if __name__ == "__main__":
    main()
