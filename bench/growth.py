"""Time per document and tree as trees, leaves, batches and features grow: plots and JSON.

    python bench/growth.py            # some minutes; figures go to bench/results/
    python bench/growth.py --quick    # a smoke run, nothing written

The forests are made up: trees shaped as LambdaMART grows them, thresholds from the documents. LightGBM scores the
same forest, written as its text. Contenders that would take minutes get fewer documents;
`bitslice` and `auto` get the same ones.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
from interleave import by_turns, keep, processor, progress
from made_up import lambdamart_like, lightgbm_text
from matplotlib import pyplot as plt

from gpuqs.demo.mslr import mslr_like
from gpuqs.model import Model

ENGINES = ("bitslice", "rankwalk", "vqs", "qs", "walk")
#: Limit of documents x trees in one call of contenders that would otherwise take minutes.
MAX_WORK = 20_000_000
LIGHTGBM = "LightGBM"


@dataclass(frozen=True)
class Point:
    """One forest and one batch; the defaults are where the four curves meet."""

    trees: int = 1_000
    leaves: int = 64
    batch: int = 10_000
    features: int = 136


CURVES = {
    "trees": (100, 300, 1_000, 3_000, 10_000, 20_000),
    "leaves": (8, 16, 32, 64, 128, 256, 512),
    "batch": (1, 3, 10, 30, 100, 300, 1_000, 10_000, 100_000),
    "features": (32, 64, 136, 300, 700),
}


def documents(n: int, n_features: int) -> np.ndarray:
    """MSLR-like rows with columns repeated or dropped to get ``n_features``."""
    X, _, _ = mslr_like(min(n, 10_000) // 100 + 2, 12)
    return np.ascontiguousarray(np.resize(np.tile(X, -(-n_features // X.shape[1]))[:, :n_features], (n, n_features)))


def measure(point: Point, rounds: int) -> dict[str, float]:
    """Nanoseconds per document and tree of LightGBM, each engine, and "auto", on one thread."""
    X = documents(point.batch, point.features)
    few = X[: max(1, min(len(X), MAX_WORK // point.trees))]
    model = Model(lambdamart_like(point.trees, point.leaves, documents(2_000, point.features)))
    booster = lightgbm.Booster(model_str=lightgbm_text(model.forest))
    rows = {engine: few for engine in ENGINES if model.engines()[engine] is None} | {"bitslice": X, "auto": X}
    calls: dict[str, Callable[[], Any]] = {
        engine: lambda engine=engine: model.predict(rows[engine], engine=engine, n_threads=1) for engine in rows
    }
    calls[LIGHTGBM], rows[LIGHTGBM] = lambda: booster.predict(few, num_threads=1), few
    expected = model.predict(X, engine="walk")
    for name, call in calls.items():
        if not np.array_equal(call(), expected[: len(rows[name])]):
            raise SystemExit(f"{point}: the scores of {name} differ from walk's")
    if point.batch <= 1_000:  # the order of turns decides what small calls find in the caches
        timings = by_turns(calls, 20 * rounds, budget=8)
    else:  # the others are so slow that few of their calls fit the budget
        quick = {name: calls.pop(name) for name in ("bitslice", "auto")}
        timings = by_turns(calls, rounds, budget=8) | by_turns(quick, 10 * rounds, budget=4)
    return {name: timing.median / len(rows[name]) / point.trees * 1e9 for name, timing in timings.items()}


def draw(report: dict[str, Any], path: Path) -> None:
    figure, axes = plt.subplots(2, 2, figsize=(11, 8), sharey=True, constrained_layout=True)
    for ax, (name, points) in zip(axes.flat, report["curves"].items(), strict=True):
        for engine in ("auto", *ENGINES, LIGHTGBM):
            xs = [int(x) for x, row in points.items() if engine in row]
            ys = [row[engine] for row in points.values() if engine in row]
            style = {"auto": "k--", LIGHTGBM: "ks-"}.get(engine, "o-")
            ax.plot(xs, ys, style, label=engine, zorder=3 if engine == "auto" else 2)
        ax.set(xscale="log", yscale="log", xlabel=name, ylabel="ns per document and tree")
        ax.set_xticks([int(x) for x in points], [f"{int(x):,}" for x in points], minor=False)
        ax.set_xticks([], minor=True)
        ax.grid(alpha=0.3)
    figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=2 + len(ENGINES))
    base = ", ".join(f"{value:,} {name}" for name, value in vars(Point()).items())
    figure.suptitle(f"{report['processor']}, one thread; unless varied: {base}")
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small forests and batches, nothing written")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    base = Point(trees=20, batch=500) if args.quick else Point()
    curves = {name: [v for v in values if not args.quick or v <= 300] for name, values in CURVES.items()}
    report: dict[str, Any] = {"processor": processor(), "curves": {}}
    for name, values in curves.items():
        report["curves"][name] = {}
        for value in progress(values, name):
            report["curves"][name][str(value)] = measure(Point(**{**vars(base), name: value}), args.rounds)
        print(f"\nns per document and tree, by {name}")
        for value, row in report["curves"][name].items():
            print(f"  {value:>7}  " + "  ".join(f"{engine} {ns:8.3f}" for engine, ns in row.items()))
    if not args.quick:
        stem = keep("growth", report)
        draw(report, stem.with_suffix(".png"))


if __name__ == "__main__":
    main()
