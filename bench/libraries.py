"""Fully grown scikit-learn forests and oblivious CatBoost models: their own predict against gpuqs, by turns.

    python bench/libraries.py            # figures go to bench/results/
    python bench/libraries.py --quick    # a smoke run, nothing written

Scores are checked before anything is timed: bit for bit.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

import catboost
import numpy as np
import sklearn
from interleave import by_turns, processor, results_at
from sklearn.ensemble import RandomForestRegressor

import gpuqs
from gpuqs.demo.mslr import mslr_like


def fully_grown(n_trees: int, n_rows: int) -> tuple[dict[str, Callable[[], Any]], str, int]:
    """A RandomForest grown until its leaves are pure, on one thread and on two."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 20)).astype(np.float32)
    y = X[:, 0] * X[:, 1] + np.sin(3 * X[:, 2]) + rng.normal(size=n_rows)
    forest = RandomForestRegressor(n_trees, max_features=5, n_jobs=-1, random_state=0).fit(X, y)
    model = gpuqs.from_model(forest)

    def theirs(n_threads: int) -> np.ndarray:
        forest.n_jobs = n_threads
        return forest.predict(X)

    calls: dict[str, Callable[[], Any]] = {}
    for n in (1, 2):
        calls[f"scikit-learn, {n} thread{'s'[: n - 1]}"] = lambda n=n: theirs(n)
        calls[f"gpuqs, {n} thread{'s'[: n - 1]}"] = lambda n=n: model.predict(X, n_threads=n)
    if not np.array_equal(model.predict(X), theirs(1)):
        raise SystemExit("gpuqs differs from scikit-learn")
    return calls, f"RandomForestRegressor, {n_trees} trees of up to {model.n_leaves:,} leaves", len(X)


def oblivious(n_trees: int, n_queries: int) -> tuple[dict[str, Callable[[], Any]], str, int]:
    """A CatBoost model of depth 6: from NumPy rows, and from documents prepared beforehand."""
    X, y, _ = mslr_like(n_queries, 1)
    X = np.ascontiguousarray(X, np.float32)
    booster = catboost.CatBoostRegressor(
        iterations=n_trees, depth=6, boosting_type="Plain", allow_writing_files=False, verbose=0
    ).fit(X, y)
    model, pool = gpuqs.from_model(booster), catboost.Pool(X)
    coded = model.encode(X)
    if not np.array_equal(model.predict(X, "raw"), booster.predict(X)):
        raise SystemExit("gpuqs differs from CatBoost")
    calls: dict[str, Callable[[], Any]] = {
        "CatBoost, rows": lambda: booster.predict(X, thread_count=1),
        "gpuqs, rows": lambda: model.predict(X, n_threads=1),
        "gpuqs, rows, fast": lambda: model.predict(X, n_threads=1, precision="fast"),
        "CatBoost, Pool": lambda: booster.predict(pool, thread_count=1),
        "gpuqs, encoded": lambda: model.predict(coded, n_threads=1),
        "gpuqs, encoded, fast": lambda: model.predict(coded, n_threads=1, precision="fast"),
    }
    return calls, f"CatBoost, {n_trees:,} oblivious trees of depth 6, 136 features", len(X)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few trees and rows, nothing written")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    jobs = (fully_grown(5, 2_000), oblivious(50, 5)) if args.quick else (fully_grown(100, 50_000), oblivious(1_000, 80))
    report: dict[str, Any] = {
        "processor": processor(),
        "versions": f"gpuqs {gpuqs.__version__}, scikit-learn {sklearn.__version__}, CatBoost {catboost.__version__}",
        "results": [],
    }
    for calls, name, n in jobs:
        timings = by_turns(calls, args.rounds)
        rows = {label: timing.median / n * 1e6 for label, timing in timings.items()}
        print(f"\n{name}, {n:,} documents")
        library = next(iter(rows))
        for label, microseconds in rows.items():
            if not label.startswith("gpuqs"):
                library = label
            ratio = "" if label == library else f"   {rows[library] / microseconds:5.1f} times {library}"
            print(f"  {label:26} {microseconds:9.3f} us a document{ratio}")
        report["results"].append({"model": name, "documents": n, "us_per_document": rows})
    if not args.quick:
        results_at("libraries").with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
