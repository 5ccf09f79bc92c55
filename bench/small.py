"""Calls with few documents: warm, and cold, as when other work empties the caches between them.

    python bench/small.py            # a quarter of an hour; figures go to bench/results/
    python bench/small.py --quick    # a smoke run, nothing written

Calls of 1 to 1,000 documents, from one and two Python threads, by gpuqs, LightGBM (single documents through its C
function for one row: prepared once, no checks) and the other installed libraries of bench/peers/. A warm call follows
others of its kind, with other documents; before a cold one, 32 MB of other memory are read. Contenders take turns.
Before anything is timed, all scores of all batches are compared with LightGBM's: gpuqs's must have the same bits, and
a library whose scores differ by more than rounding explains is left out. The engines of gpuqs are timed, too.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import math
import os
import platform
import random
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import lightgbm
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from interleave import keep, processor, progress
from libraries import TOLERANCE, as_scores, build
from models import documents, lambdamart
from pages.small_calls import CONTENDER, HASHING, percentile_name, small_calls
from peers.base import Source
from sources import of_lightgbm

import gpuqs
from gpuqs import cpu_fallback
from gpuqs.engines import ENGINES

SIZES = (1, 2, 5, 10, 35, 100, 256, 1_000)
PEERS = ("LightGBM", "ONNX Runtime", "YDF", "lleaves")
#: Calls of a contender if its budget suffices; fewer calls give no 99.9th percentile.
CALLS = 1_000
#: A contender's budget in seconds.
BUDGET = 1.5
#: Calls in a row of a warm contender; the first is not timed.
ROW = 20
OTHER_BYTES = 32 << 20
#: For fewer bytes, Python's hashes do not release the interpreter lock.
MIN_WITHOUT_LOCK = 2_048
PERCENTILES = (50.0, 99.0, 99.9)
Call: TypeAlias = Callable[[Any], Any]


def contenders(source: Source, peers: dict[str, Any], n: int) -> dict[str, Call]:
    """Each library's call for ``n`` documents on one thread."""
    predict, by_default = source.model.predict, source.model.explain(n_documents=n).n_threads
    calls: dict[str, Call] = {CONTENDER: predict if by_default == 1 else partial(predict, n_threads=1)}
    for of_threads in peers.values():
        contenders = of_threads(1)
        able = [one for one in contenders.values() if one.most is None or n <= one.most]
        calls[next(iter(contenders))] = able[-1].score  # a contender for single documents comes last
    return calls


def engine_calls(model: gpuqs.Model, n: int) -> dict[str, Call]:
    """Calls of each engine's kernels, with preallocated output."""
    calls: dict[str, Call] = {}
    for name, reason in model.engines().items():
        if reason is None and name != "reference" and ENGINES[name].device == "cpu":
            program = model._programs.get(name, "exact", None)
            scorer, bound = program.scorer, program.bound  # type: ignore[attr-defined]
            calls[name] = lambda x, s=scorer, b=bound: s.score(b, x, np.empty((len(x), 1)), 1)
    return calls


def agreeing(calls: dict[str, Call], batches: list[np.ndarray], expected: list[np.ndarray]) -> tuple[dict, dict]:
    """The contenders whose scores of all batches equal LightGBM's, and the differences of the others."""
    right: dict[str, Call] = {}
    differ: dict[str, float] = {}
    largest = max(float(np.abs(scores).max()) for scores in expected)
    for name, call in calls.items():
        apart = max(
            float(np.abs(as_scores(call(batch)) - scores).max())
            for batch, scores in zip(batches, expected, strict=True)
        )
        if name == CONTENDER and apart != 0:
            raise SystemExit(f"{len(batches[0])} documents: gpuqs's scores differ from LightGBM's by {apart:g}")
        if apart <= TOLERANCE * largest:
            right[name] = call
        else:
            differ[name] = apart
    return right, differ


def timed(call: Call, batches: list[np.ndarray], other: np.ndarray | None) -> list[float]:
    """Microseconds of each call; before each, ``other`` is read if given."""
    taken = []
    for batch in batches:
        if other is not None:
            other.sum()
        start = time.perf_counter()
        call(batch)
        taken.append((time.perf_counter() - start) * 1e6)
    return taken


def in_threads(call: Call, batches: list[np.ndarray], others: list[np.ndarray] | None, n_threads: int) -> list[float]:
    """`timed`, in threads that start together; warm calls follow one that is not timed."""
    taken: list[list[float]] = [[] for _ in range(n_threads)]
    barrier = threading.Barrier(n_threads)

    def work(thread: int) -> None:
        mine = batches[thread::n_threads]
        if others is None:
            call(mine[-1])
        barrier.wait()
        taken[thread] = timed(call, mine, None if others is None else others[thread])

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(1, n_threads)]
    for thread in threads:
        thread.start()
    work(0)
    for thread in threads:
        thread.join()
    return [us for of_thread in taken for us in of_thread]


def measure(
    calls: dict[str, Call], batches: list[np.ndarray], cold: bool, n_threads: int, budget: float
) -> dict[str, dict[str, float | None]]:
    """Percentiles of the microseconds of each contender's calls, and the number of calls."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    spent = dict.fromkeys(calls, 0.0)
    # Ones, because memory that was never written maps to a single page of zeros, which would not empty any cache.
    others = [np.ones(OTHER_BYTES // 8) for _ in range(n_threads)] if cold else None
    row, order = n_threads * (1 if cold else ROW), list(calls)
    gc.disable()  # collection would hit an arbitrary contender
    for at in range(0, len(batches), row):
        random.Random(at).shuffle(order)
        for name in order:
            if spent[name] < budget:
                us = in_threads(calls[name], batches[at : at + row], others, n_threads)
                taken[name] += us
                spent[name] += sum(us) * 1e-6 / n_threads
    gc.enable()
    return {name: percentiles(us) for name, us in taken.items()}


def percentiles(us: list[float]) -> dict[str, float | None]:
    """The percentiles for which there are enough calls, and the number of calls."""
    told: dict[str, float | None] = {
        percentile_name(p): float(np.percentile(us, p)) if len(us) * (100 - p) >= 100 * (p > 50) else None
        for p in PERCENTILES
    }
    return told | {"calls": len(us)}


def calls_per_second(call: Call, batches: list[Any], n_threads: int, seconds: float) -> float:
    """Warm calls per second of ``n_threads`` threads, each calling continuously."""
    done = [0] * n_threads
    barrier = threading.Barrier(n_threads)

    def work(thread: int) -> None:
        mine = batches[thread::n_threads]
        barrier.wait()
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for batch in mine[:ROW]:
                call(batch)
            done[thread] += len(mine[:ROW])

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(n_threads)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / (time.perf_counter() - start)


def scaling(call: Call, batches: list[Any], rounds: int, seconds: float) -> float:
    """Ratio of calls completed by two threads and by one: the median of rounds in which they take turns."""
    ratios = [
        calls_per_second(call, batches, 2, seconds) / calls_per_second(call, batches, 1, seconds)
        for _ in range(rounds)
    ]
    return float(np.median(ratios))


def hashing(us: float, n: int) -> tuple[Call, list[bytes]]:
    """A call that only hashes, for about ``us`` microseconds, without the interpreter lock; and what it hashes."""
    size, took = 1 << 16, []
    for _ in range(20):
        start = time.perf_counter()
        hashlib.sha256(bytes(size))
        took.append((time.perf_counter() - start) * 1e6)
    size = max(int(size * us / float(np.median(took))), MIN_WITHOUT_LOCK)
    return hashlib.sha256, [random.Random(i).randbytes(size) for i in range(min(n, ROW))] * 2


def measure_size(source: Source, peers: dict[str, Any], n: int, effort: float) -> dict[str, Any]:
    """All contenders with ``n`` documents per call, ``effort`` times as long as usual."""
    rng, n_batches = np.random.default_rng(n), max(2 * ROW, math.ceil(CALLS * effort * min(1, 100 / n)))
    batches = [np.ascontiguousarray(source.X[rng.integers(0, len(source.X), n)]) for _ in range(n_batches)]
    expected = [as_scores(source.live.predict(batch, raw_score=True, num_threads=1)) for batch in batches]
    calls, differ = agreeing(contenders(source, peers, n), batches, expected)
    engines = engine_calls(source.model, n)
    cell: dict[str, Any] = {"documents": n, "n_threads": 1, "engine": source.model.engine_for(n), "differ": differ}
    cell["calls"] = {}
    for kind in ("warm", "cold"):
        cell["calls"][kind] = {
            str(threads): measure(calls, batches, kind == "cold", threads, BUDGET * effort) for threads in (1, 2)
        }
    cell["engines"] = {
        kind: {
            name: us["median"]
            for name, us in measure(engines, batches[:400], kind == "cold", 1, BUDGET * effort).items()
        }
        for kind in ("warm", "cold")
    }
    scaled: dict[str, tuple[Call, list[Any]]] = {name: (call, batches) for name, call in calls.items()}
    scaled[HASHING] = hashing(cell["calls"]["warm"]["1"][CONTENDER]["median"], len(batches))
    cell["two_threads"] = {name: scaling(*of_name, 3, 0.2 * effort) for name, of_name in scaled.items()}
    return cell


def overhead(rounds: int) -> dict[str, float]:
    """Microseconds of a call with one document and one tree, and of the kernels' part of it."""
    X = np.random.default_rng(0).normal(size=(500, 20))
    booster = lightgbm.train({"num_leaves": 4, "verbose": -1}, lightgbm.Dataset(X, X[:, 0]), 1)
    model, x, sums = gpuqs.from_model(booster), X[:1].copy(), np.empty((1, 1))
    program = model._programs.get(model.engine_for(1), "exact", None)
    scorer, bound = program.scorer, program.bound  # type: ignore[attr-defined]
    calls: dict[str, Callable[[], object]] = {
        "Model.predict": lambda: model.predict(x),
        "the compiled call, its answer's memory given": lambda: scorer.score(bound, x, sums, 1),
        "Booster.predict": lambda: booster.predict(x, num_threads=1),
    }
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(200):
                call()
            taken[name].append((time.perf_counter() - start) / 200 * 1e6)
    return {name: float(np.median(us)) for name, us in taken.items()}


def draw(report: dict[str, Any], path: Any) -> None:
    """Plot medians by documents per call: one row per model, warm and cold, one thread."""
    models = report["models"]
    figure, axes = plt.subplots(
        len(models), 2, figsize=(11, 4.5 * len(models)), sharex=True, sharey="row", squeeze=False, layout="constrained"
    )
    names = list(dict.fromkeys(n for model in models for cell in model["cells"] for n in cell["calls"]["warm"]["1"]))
    for row, model in zip(axes, models, strict=True):
        for ax, kind in zip(row, ("warm", "cold"), strict=True):
            for name in names:
                cells = [cell for cell in model["cells"] if name in cell["calls"][kind]["1"]]
                us = [[cell["calls"][kind]["1"][name][p] for cell in cells] for p in ("median", "p99")]
                color = "k" if name == CONTENDER else f"C{names.index(name)}"
                ax.plot([cell["documents"] for cell in cells], us[0], "o-", color=color, label=name)
                high = [np.nan if tail is None else tail for tail in us[1]]
                ax.fill_between([c["documents"] for c in cells], us[0], high, color=color, alpha=0.1)
            ax.set(xscale="log", yscale="log", title=f"{model['model']}, {kind}", xlabel="documents per call")
            ax.grid(alpha=0.3)
        row[0].set_ylabel("us per call")
    lines = {line.get_label(): line for ax in axes.flat for line in ax.get_lines()}
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=5)
    figure.suptitle(f"{report['processor']}, one thread; lines: medians, shaded: up to the 99th percentile")
    figure.savefig(path, dpi=110)


def measure_model(n_trees: int, n_leaves: int, sizes: tuple[int, ...], effort: float) -> dict[str, Any]:
    name = f"LightGBM {n_trees:,} x {n_leaves}"
    source = of_lightgbm(name, lambdamart(n_trees, n_leaves), documents(10_000))
    peers, reasons = build(source, list(PEERS))
    cells = []
    for n in progress(sizes, name):
        cells.append(measure_size(source, peers, n, effort))
        print(*small_calls({"model": name, "cells": cells[-1:]}), "", sep="\n", flush=True)
    return {"model": name, "features": source.X.shape[1], "not_held": reasons, "cells": cells}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="50 trees, few calls, nothing written")
    args = parser.parse_args()
    report: dict[str, Any] = {
        "processor": processor(),
        "load": f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} processors",
        "versions": f"gpuqs {gpuqs.__version__}, {cpu_fallback.available_isas()[0]}, LightGBM {lightgbm.__version__}, "
        f"Python {platform.python_version()}, NumPy {np.__version__}",
        "overhead": overhead(20 if args.quick else 200),
    }
    told = (f"{name} {us:.2f}" for name, us in report["overhead"].items())
    print("one document, one tree, us per call:", *told, sep="\n  ")
    if args.quick:
        report["models"] = [measure_model(50, 64, (1, 10), 0.02)]
        return
    report["models"] = [measure_model(*size, SIZES, 1.0) for size in ((1_000, 64), (100, 31))]
    stem = keep("small", report)
    lines = [line for model in report["models"] for line in (*small_calls(model), "")]
    stem.with_suffix(".md").write_text(f"# Small calls: {report['processor']}\n\n" + "\n".join(lines))
    draw(report, stem.with_suffix(".png"))


if __name__ == "__main__":
    main()
