"""Calls with few documents: warm, and cold, as they are where other work empties the caches between them.

    python bench/small.py            # a minute or two; figures go to bench/results/
    python bench/small.py --quick    # a smoke run, nothing written

Contenders take turns. Before a cold call 32 MB of other memory are read. LightGBM scores one document through its
C function for that (prepared once, no checks), more through `Booster.predict`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import lightgbm
import numpy as np
from interleave import processor, progress, results_at
from models import documents, lambdamart
from peers.lightgbm import one_row

import gpuqs

SIZES = (1, 2, 5, 10, 35, 100, 256)
OTHER_WORK = np.zeros(32 << 20, np.uint8)


def measure(calls: dict[str, Callable[[np.ndarray], np.ndarray]], batches: list[np.ndarray], cold: bool) -> dict:
    """Microseconds of each contender's calls: median and 99th percentile."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for batch in batches:
        for name, call in calls.items():
            if cold:
                OTHER_WORK.sum()
            start = time.perf_counter()
            call(batch)
            taken[name].append((time.perf_counter() - start) * 1e6)
    return {
        name: {"median": float(np.median(us)), "p99": float(np.percentile(us, 99))} for name, us in taken.items()
    }


def overhead(rounds: int) -> dict[str, float]:
    """Microseconds of a call with one document of one tree, and of the kernels' part of it."""
    X = np.random.default_rng(0).normal(size=(500, 20))
    booster = lightgbm.train({"num_leaves": 4, "verbose": -1}, lightgbm.Dataset(X, X[:, 0]), 1)
    model, x, sums = gpuqs.from_model(booster), X[:1].copy(), np.empty((1, 1))
    program = model._programs.get(model.engine_for(1), "exact", None)
    scorer, bound = program.scorer, program.bound  # type: ignore[attr-defined]
    contenders: dict[str, Callable[[], object]] = {
        "Model.predict": lambda: model.predict(x),
        "the compiled call, its answer's memory given": lambda: scorer.score(bound, x, sums, 1),
        "Booster.predict": lambda: booster.predict(x, num_threads=1),
    }
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, call in contenders.items():
            start = time.perf_counter()
            for _ in range(200):
                call()
            taken[name].append((time.perf_counter() - start) / 200 * 1e6)
    return {name: float(np.median(us)) for name, us in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="50 trees, few calls, nothing written")
    args = parser.parse_args()
    n_trees, n_calls = (50, 20) if args.quick else (1_000, 400)
    path, X = lambdamart(n_trees, 64), documents(10_000)
    model, booster = gpuqs.load(path), lightgbm.Booster(model_file=path)
    report: dict = {"processor": processor(), "model": f"LightGBM {n_trees:,} x 64", "calls": {}}
    report["overhead"] = overhead(20 if args.quick else 200)
    print("one document of one tree, us:", *(f"{name} {us:.2f}" for name, us in report["overhead"].items()), sep="\n  ")
    fast = one_row(booster, X.shape[1])
    for n in progress(SIZES, "documents"):
        rng = np.random.default_rng(n)
        batches = [np.ascontiguousarray(X[rng.integers(0, len(X), n)]) for _ in range(n_calls)]
        calls: dict[str, Callable[[np.ndarray], np.ndarray]] = {
            "gpuqs": model.predict,
            "LightGBM": fast if n == 1 else lambda x: booster.predict(x, raw_score=True, num_threads=1),
        }
        if not all(np.array_equal(calls["gpuqs"](x), calls["LightGBM"](x)) for x in batches[:20]):
            raise SystemExit(f"{n} documents: LightGBM's scores differ")
        rows = {kind: measure(calls, batches, kind == "cold") for kind in ("warm", "cold")}
        report["calls"][str(n)] = {"engine": model.engine_for(n), **rows}
        for kind, row in rows.items():
            ours, theirs = row["gpuqs"], row["LightGBM"]
            print(
                f"{n:>4} documents, {kind}: gpuqs {ours['median']:.1f} us (p99 {ours['p99']:.1f}), LightGBM "
                f"{theirs['median']:.1f} ({theirs['p99']:.1f}), {theirs['median'] / ours['median']:.1f} times; "
                f"{model.engine_for(n)}"
            )
    if not args.quick:
        Path(results_at("small")).with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
