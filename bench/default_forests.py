"""Forests as the libraries grow them by default, on rows of 28 to 700 features: compared with LightGBM and XGBoost.

    python bench/default_forests.py            # a quarter of an hour with its training; figures go to bench/results/
    python bench/default_forests.py --quick    # a smoke run, nothing written

Both libraries train with their defaults (31 leaves, depth 6) on made-up rows, and score their own models of the first
10, 100 and 1,000 trees, with 10,000 float32 rows per call on one thread; contenders take turns. gpuqs also scores
with precision "fast", and the same rows stored by columns (F order) and in float64. First its scores are compared
with the library's, bit for bit.
"""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightgbm
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import xgboost
from interleave import by_turns, keep, processor, progress
from matplotlib.ticker import LogLocator, NullFormatter
from models import CACHE

import gpuqs
from gpuqs import cpu_fallback

TREES, FEATURES = (10, 100, 1_000), (28, 136, 700)
TRAINING_ROWS, ROWS = 20_000, 10_000
Score = Callable[[np.ndarray], np.ndarray]


def rows(n: int, n_features: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Normal columns, float32; the target depends a little on each, and on interactions of some."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, n_features), np.float32)
    weights = np.random.default_rng(n_features).standard_normal(n_features)
    y = X @ weights / np.sqrt(n_features) + X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + 0.5 * rng.standard_normal(n)
    return X, y.astype(np.float32)


def lightgbm_model(path: Path, n_trees: int, n_features: int) -> Any:
    if not path.exists():
        X, y = rows(TRAINING_ROWS, n_features, 1)
        lightgbm.train({"verbosity": -1}, lightgbm.Dataset(X, y), n_trees).save_model(path)
    return lightgbm.Booster(model_file=path)


def xgboost_model(path: Path, n_trees: int, n_features: int) -> Any:
    if not path.exists():
        X, y = rows(TRAINING_ROWS, n_features, 1)
        xgboost.train({}, xgboost.DMatrix(X, y), n_trees).save_model(path)
    return xgboost.Booster({"nthread": 1}, model_file=path)


def of_lightgbm(booster: Any, n_trees: int) -> tuple[gpuqs.Model, Score]:
    first = lightgbm.Booster(model_str=booster.model_to_string(num_iteration=n_trees))
    return gpuqs.from_model(first), lambda X: first.predict(X, num_threads=1)


def of_xgboost(booster: Any, n_trees: int) -> tuple[gpuqs.Model, Score]:
    first = booster[:n_trees]
    first.set_param({"nthread": 1})
    return gpuqs.from_model(first), first.inplace_predict


#: By library: the function that trains its model, its file's suffix, and the function that scores its first trees.
LIBRARIES = {"LightGBM": (lightgbm_model, "txt", of_lightgbm), "XGBoost": (xgboost_model, "ubj", of_xgboost)}


def measure(library: str, model: gpuqs.Model, score: Score, X: np.ndarray, rounds: int) -> dict[str, float]:
    """Microseconds per document of one library and of gpuqs."""
    by_columns, doubles = np.asfortranarray(X), X.astype(np.float64)
    expected = score(X)
    for given in (X, by_columns, doubles):
        if not np.array_equal(model.predict(given), expected):
            raise SystemExit(f"{library}, {model.n_trees} trees: gpuqs's scores differ")
    calls: dict[str, Callable[[], Any]] = {
        library: lambda: score(X),
        "gpuqs": lambda: model.predict(X, n_threads=1),
        "gpuqs, fast": lambda: model.predict(X, n_threads=1, precision="fast"),
        "gpuqs, F order": lambda: model.predict(by_columns, n_threads=1),
        "gpuqs, float64": lambda: model.predict(doubles, n_threads=1),
    }
    timings = by_turns(calls, rounds, budget=15)
    return {name: timing.median / len(X) * 1e6 for name, timing in timings.items()}


def draw(report: dict[str, Any], path: Path) -> None:
    """Draw gpuqs's speed-up over each library, by number of trees."""
    figure, axes = plt.subplots(1, len(LIBRARIES), figsize=(10, 4), sharey=True, constrained_layout=True)
    for ax, library in zip(axes, LIBRARIES, strict=True):
        for n_features in FEATURES:
            cells = [c for c in report["results"] if (c["library"], c["features"]) == (library, n_features)]
            faster = [c["us_per_document"][library] / c["us_per_document"]["gpuqs"] for c in cells]
            ax.plot([c["trees"] for c in cells], faster, "o-", label=f"{n_features} features")
        ax.set(xscale="log", yscale="log", xlabel="trees", title=f"{library} compared with gpuqs")
        ax.set_xticks(TREES, [f"{n:,}" for n in TREES], minor=False)
        ax.grid(alpha=0.3, which="both")
        ax.legend()
    axes[0].set_ylabel("library's time / gpuqs's time")
    axes[0].yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes[0].yaxis.set_major_formatter("{x:g}")  # not 2 x 10^1
    axes[0].yaxis.set_minor_formatter(NullFormatter())
    figure.suptitle(f"{report['processor']}, one thread, {report['rows']:,} float32 rows, the libraries' defaults")
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few trees, features and rows, nothing written")
    args = parser.parse_args()
    n_rows, n_rounds = (500, 3) if args.quick else (ROWS, 60)
    trees = TREES[:1] if args.quick else TREES
    report: dict[str, Any] = {
        "processor": processor(),
        "load": f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} processors",
        "versions": f"gpuqs {gpuqs.__version__}, {cpu_fallback.available_isas()[0]}, LightGBM {lightgbm.__version__}, "
        f"XGBoost {xgboost.__version__}, Python {platform.python_version()}, NumPy {np.__version__}",
        "rows": n_rows,
        "results": [],
    }
    CACHE.mkdir(parents=True, exist_ok=True)
    for n_features in progress(FEATURES[:1] if args.quick else FEATURES, "features"):
        X, _ = rows(n_rows, n_features, 2)
        for library, (train, suffix, of_library) in LIBRARIES.items():
            booster = train(CACHE / f"default-{trees[-1]}-{n_features}.{suffix}", trees[-1], n_features)
            for n_trees in trees:
                us = measure(library, *of_library(booster, n_trees), X, n_rounds)
                cell = {"library": library, "features": n_features, "trees": n_trees, "us_per_document": us}
                report["results"].append(cell)
                told = "  ".join(f"{name} {time:.3f}" for name, time in us.items())
                print(f"{n_trees:>5} trees, {n_features:>3} features: us per document: {told}", flush=True)
    if not args.quick:
        stem = keep("forests", report)
        draw(report, stem.with_suffix(".png"))


if __name__ == "__main__":
    main()
