"""Every CPU engine on every instruction set against LightGBM and XGBoost: same rows, by turns.

    python bench/engines.py            # 1,000 trees x 64 and x 32 leaves, 10,000 documents
    python bench/engines.py --quick    # a smoke run
    python bench/engines.py --large    # and 20,000 trees x 64 leaves, some minutes more

Scores are checked for bit equality before anything is timed. Figures go to bench/results/.
"""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Callable
from pathlib import Path

import lightgbm
import numpy as np
import xgboost
from interleave import Timing, by_turns, clock, keep, processor
from models import documents, enlarged, lambdamart, xgboost_ranker

import gpuqs
from gpuqs import cpu_fallback
from gpuqs.engines import ENGINES

#: Engines whose kernels differ from one instruction set to the next; the others run on the best.
PER_ISA = ("vqs", "bitslice")


def contender(model: gpuqs.Model, X: np.ndarray, isa: str, **options: object) -> Callable[[], np.ndarray]:
    """A call that scores ``X`` on one instruction set."""

    def call() -> np.ndarray:
        os.environ["GPUQS_ISA"] = isa
        return model.predict(X, "raw", **options)  # type: ignore[arg-type]

    return call


def contenders(model: gpuqs.Model, X: np.ndarray, engines: list[str]) -> dict[str, Callable[[], np.ndarray]]:
    """Engines x instruction sets x precisions on one thread, and on two where threads matter most."""
    isas = cpu_fallback.available_isas()
    calls = {}
    for engine in engines:
        for isa in isas if engine in PER_ISA else isas[:1]:
            for precision in ("exact", "fast") if engine == "bitslice" else ("exact",):
                name = f"{engine} {isa}" + (" fast" if precision == "fast" else "")
                calls[name] = contender(model, X, isa, engine=engine, precision=precision, n_threads=1)
    for engine in [e for e in PER_ISA if e in engines]:
        calls[f"{engine} {isas[0]}, 2 threads"] = contender(model, X, isas[0], engine=engine, n_threads=2)
    return calls


def measure(name: str, path: Path, X: np.ndarray, engines: list[str], rounds: int) -> dict:
    """Check and time one model; a row per contender."""
    model = gpuqs.load(path)
    calls = contenders(model, X, engines)
    if path.suffix == ".txt":
        library, booster = "LightGBM", lightgbm.Booster(model_file=path)
        expected = booster.predict(X, raw_score=True)
        source = {
            f"{library}{', 2 threads' if n > 1 else ''}": lambda n=n: booster.predict(X, raw_score=True, num_threads=n)
            for n in (1, 2)
        }
    else:
        library, booster = "XGBoost", xgboost.Booster(model_file=path)
        expected = booster.inplace_predict(X, predict_type="margin")

        def predict(n_threads: int) -> np.ndarray:
            booster.set_param({"nthread": n_threads})
            return booster.inplace_predict(X, predict_type="margin")

        source = {f"{library}{', 2 threads' if n > 1 else ''}": lambda n=n: predict(n) for n in (1, 2)}
    for label, call in calls.items():
        if "fast" not in label and not np.array_equal(call(), expected):
            raise SystemExit(f"{name}: {label} differs from {library}")
    timings = by_turns({**source, **calls}, rounds)
    return {
        "model": name,
        "library": library,
        "documents": len(X),
        "rows": {label: row(timing, len(X), timings[library]) for label, timing in timings.items()},
    }


def row(timing: Timing, n: int, library: Timing) -> dict[str, float]:
    return {
        "us_per_document": timing.median / n * 1e6,
        "minimum_us": timing.minimum / n * 1e6,
        "times_library": library.median / timing.median,
    }


def ratios(result: dict) -> list[str]:
    """Ratios of medians from this run for the speed-ups that the project promises."""
    rows, library = result["rows"], result["library"]
    best = cpu_fallback.available_isas()[0]

    def of(a: str, b: str) -> str | None:
        if a not in rows or b not in rows:
            return None
        return f"{a} over {b}: {rows[b]['us_per_document'] / rows[a]['us_per_document']:.2f}x"

    pairs = [("qs " + best, library)]
    pairs += [(f"vqs {isa}", "qs " + best) for isa in cpu_fallback.available_isas()]
    pairs += [(f"bitslice {isa}{fast}", library) for isa in cpu_fallback.available_isas() for fast in ("", " fast")]
    pairs += [(f"bitslice {best}", "vqs " + best), (f"bitslice {best}", "qs " + best)]
    pairs += [(f"{e} {best}, 2 threads", f"{e} {best}") for e in PER_ISA]
    return [line for line in (of(a, b) for a, b in pairs) if line]


def stages(path: Path, X: np.ndarray, rounds: int) -> dict[str, dict[str, dict[str, float]]]:
    """Where bitslice spends its time: nanoseconds per document and stage, by instruction set and precision."""
    model, out = gpuqs.load(path), {}
    for isa in cpu_fallback.available_isas():
        os.environ["GPUQS_ISA"] = isa
        params = dict(model._calls.chooser.way_of("bitslice", len(X), cpu_fallback.machine()).params)
        for precision in ("exact", "fast"):
            program = ENGINES["bitslice"].prepare(model.forest, precision, params=params)
            sums = np.empty((len(X), program.values.n_outputs), program.values.sum_dtype)
            seconds = [program.scorer.time_stages(program.bound, X, sums) for _ in range(rounds)]
            out[f"{isa} {precision}"] = {
                stage: float(np.median([each[stage] for each in seconds])) / len(X) * 1e9 for stage in seconds[0]
            }
    return out


def latencies(path: Path, X: np.ndarray, rounds: int) -> dict:
    """Small batches through the Python API, with different documents in each call."""
    model, booster = gpuqs.load(path), lightgbm.Booster(model_file=path)
    os.environ.pop("GPUQS_ISA", None)
    out = {}
    for n in (1, 10, 100):
        batches = [np.ascontiguousarray(X[i * n : (i + 1) * n]) for i in range(50)]
        if not all(np.array_equal(model.predict(x), booster.predict(x, raw_score=True)) for x in batches):
            raise SystemExit(f"{n} documents: LightGBM's scores differ")

        def each(predict: Callable[[np.ndarray], object], batches: list = batches) -> Callable[[], None]:
            def call() -> None:
                for batch in batches:
                    predict(batch)

            return call

        timings = by_turns(
            {
                "gpuqs": each(model.predict),
                "LightGBM": each(lambda x: booster.predict(x, raw_score=True, num_threads=1)),
            },
            rounds,
        )
        out[str(n)] = {k: t.median / len(batches) * 1e6 for k, t in timings.items()} | {"engine": model.engine_for(n)}
    return out


def markdown(report: dict) -> str:
    lines = [f"# Engines on {report['processor']}", "", f"{report['versions']}. Medians of rounds taken by turns.", ""]
    for result in report["results"]:
        lines += [f"## {result['model']}, {result['documents']:,} documents", ""]
        lines += ["| | us/document | minimum | times " + result["library"] + " |", "|---|---|---|---|"]
        for label, r in result["rows"].items():
            lines.append(
                f"| {label} | {r['us_per_document']:.3f} | {r['minimum_us']:.3f} | {r['times_library']:.1f} |"
            )
        lines += ["", *[f"- {line}" for line in result["ratios"]], ""]
    shape = f"{report.get('n_trees', 1_000):,} x 64"  # reports without this entry come from full runs
    of_tree = " (and per document and tree: a thousandth)" if shape.startswith("1,000 ") else ""
    lines += [f"## Stages of bitslice, {shape}: ns per document{of_tree}", ""]
    lines += [f"clock {report['ghz']:.2f} GHz: a nanosecond is that many cycles", ""]
    names = list(next(iter(report["stages"].values())))
    lines += [f"| | {' | '.join(names)} |", "|---" * (1 + len(names)) + "|"]
    for label, parts in report["stages"].items():
        lines.append(f"| {label} | {' | '.join(f'{parts[name]:.0f}' for name in names)} |")
    lines.append("")
    if report["latencies"]:
        lines += [f"## Small batches, {shape}, microseconds a call", "", "| documents | gpuqs | engine | LightGBM |"]
        lines += ["|---|---|---|---|"]
        for n, r in report["latencies"].items():
            lines.append(f"| {n} | {r['gpuqs']:.1f} | {r['engine']} | {r['LightGBM']:.1f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="50 trees, 1,000 documents, nothing written")
    parser.add_argument("--large", action="store_true", help="also 20,000 trees x 64 leaves")
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    n_trees, X = (50, documents(1_000)) if args.quick else (1_000, documents(10_000))
    engines = ["bitslice", "rankwalk", "vqs", "qs", "walk"]
    jobs = [(f"LightGBM LambdaMART {n_trees:,} x {n}", lambdamart(n_trees, n), X, engines) for n in (64, 32)]
    jobs.append((f"XGBoost rank:ndcg {n_trees:,} x 64", xgboost_ranker(n_trees, 64), X, engines))
    if args.large:
        big = enlarged(lambdamart(1_000, 64), 20_000)
        jobs.append(("LightGBM 20,000 x 64 (1,000 trained, thresholds redrawn)", big, X[:2_048], ["bitslice", "vqs"]))
    results = []
    for name, path, rows, chosen in jobs:
        result = measure(name, path, rows, chosen, 3 if args.quick else args.rounds)
        result["ratios"] = ratios(result)
        results.append(result)
        print(f"\n{name}", *result["ratios"], sep="\n  ")
    report = {
        "processor": processor(),
        "versions": f"gpuqs {gpuqs.__version__}, LightGBM {lightgbm.__version__}, XGBoost {xgboost.__version__}, "
        f"Python {platform.python_version()}, NumPy {np.__version__}",
        "results": results,
        "n_trees": n_trees,
        "ghz": clock(),
        "stages": stages(lambdamart(n_trees, 64), X, 3 if args.quick else args.rounds),
        "latencies": latencies(lambdamart(n_trees, 64), X, 3 if args.quick else args.rounds),
    }
    print("\n" + markdown(report))
    if not args.quick:
        stem = keep("engines", report)
        stem.with_suffix(".md").write_text(markdown(report))


if __name__ == "__main__":
    main()
