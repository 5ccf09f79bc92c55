"""The systems of the papers compared with gpuqs's engines: checked bit for bit, tuned, and timed in turns.

    python bench/systems.py            # 1,000 trees x 64 leaves, oblivious ones too; some minutes
    python bench/systems.py --large    # and 20,000 x 64
    python bench/systems.py --made-up  # made-up forests in place of trained ones, which take minutes
    python bench/systems.py --quick    # a smoke run of a minute, nothing written

Only checked systems are timed, on one thread. Figures go to bench/results/, the list of all systems to
bench/systems.md. The first run compiles the systems (bench/baselines/), and the two that are generated from the forest.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "tests"))  # the checks use the tests' forests

from baselines.check import Verdict, cases, check, check_engine, differing
from baselines.compiler import compiler
from baselines.counts import visited_nodes
from baselines.oblivious_forest import oblivious_like
from baselines.orderings import ORDERINGS
from baselines.registry import ENGINES_OF_PAPERS, SYSTEMS
from baselines.report import markdown, systems_page
from baselines.tuned import Call, Job, tune
from datasets import MSN
from interleave import by_turns, keep, processor, progress
from made_up import chained, lambdamart_like
from models import documents, oblivious, ranker

import gpuqs
from gpuqs import cpu_fallback
from gpuqs.engines import ENGINES

ON_CPU = [name for name, engine in ENGINES.items() if engine.device == "cpu"]
PAGE = Path(__file__).with_name("systems.md")


def measure(job: Job, rounds: int, budget: float) -> dict[str, Any]:
    """Tune and time every system that can score the forest, and gpuqs's engines."""
    model = gpuqs.from_model(job.forest)
    expected = model.predict(job.X, "raw", engine="walk")
    calls: dict[str, Call] = {}
    parameters: dict[str, dict[str, int]] = {}
    not_timed = {}
    reasons = model.engines()
    for engine in (*ENGINES_OF_PAPERS, "bitslice"):
        absent = "runs on GPUs" if engine in ENGINES else "not in this version of gpuqs"
        reason = reasons[engine] if engine in ON_CPU else absent
        if reason is None:
            calls[engine] = partial(model.predict, job.X, "raw", engine=engine, n_threads=1)
        else:
            not_timed[engine] = reason
    for system in progress(SYSTEMS.values(), f"tuning, {job.name}"):
        reason = system.refuses(job.forest)
        if reason is None:
            parameters[system.name], calls[system.name] = tune(system, job, budget)
        else:
            not_timed[system.name] = reason
    for name, call in calls.items():
        if differing(call(), expected):
            raise SystemExit(f"{job.name}: {name} and walk give other scores")
    timings = by_turns(calls, rounds, budget * 20)
    us = {name: t.median / len(job.X) * 1e6 for name, t in timings.items()}
    return {
        "model": job.name,
        "documents": len(job.X),
        "trees": job.forest.n_trees,
        "rows": {
            name: {
                "us_per_document": us[name],
                "minimum_us": timings[name].minimum / len(job.X) * 1e6,
                "times_qs": us["qs"] / us[name],
                "parameters": parameters.get(name, {}),
            }
            for name in us
        },
        "not_timed": not_timed,
        "visited_nodes": visited_nodes(job.forest, job.X[:100]),
        "orderings": [told for o in ORDERINGS if (told := o.told(us))],
    }


def check_all() -> dict[str, Verdict]:
    """Check every system and engine of the papers against the reference; end the run if one differs."""
    made = {(o, few): list(cases(o, few)) for o, few in ((False, False), (True, False), (False, True))}
    verdicts = {s.name: check(s, made[s.oblivious, s.generated]) for s in progress(SYSTEMS.values(), "checking")}
    for engine in ENGINES_OF_PAPERS:
        if engine in ON_CPU:
            verdicts[engine] = check_engine(engine, made[engine == "qs_oblivious", False])
    for name, verdict in verdicts.items():
        print(f"{name}: {verdict.differ} of {verdict.rows:,} rows of {verdict.forests} forests differ")
    wrong = [f"{name}: {v.example}" for name, v in verdicts.items() if v.differ]
    if wrong:
        raise SystemExit("\n".join(wrong))
    return verdicts


def jobs(quick: bool, large: bool, made_up: bool) -> Iterator[Job]:
    if quick:
        X = documents(200)
        yield Job("made-up 50 x 16", lambdamart_like(50, 16, X), X)
        yield Job("made-up oblivious 50 x 16", oblivious_like(50, 4, X), X)
        return
    X = documents(2_000)
    if made_up:
        yield Job("made-up LambdaMART 1,000 x 64", lambdamart_like(1_000, 64, X), X)
        yield Job("made-up oblivious 1,000 x 64", oblivious_like(1_000, 6, X), X)
    else:
        yield Job("LightGBM LambdaMART 1,000 x 64", gpuqs.load(ranker(MSN, 1_000, 64)).forest, X)
        yield Job("CatBoost, oblivious, 1,000 x 64", oblivious(MSN, 1_000, 64), X)
    yield Job("made-up chains 1,000 x 64, as paper 002, Table V", chained(1_000, 64, X), X)
    if large and made_up:
        yield Job("made-up LambdaMART 20,000 x 64", lambdamart_like(20_000, 64, X), X[:1_000])
    elif large:
        yield Job("LightGBM LambdaMART 20,000 x 64", gpuqs.load(ranker(MSN, 20_000, 64)).forest, X[:1_000])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="50 trees, 200 documents, nothing written")
    parser.add_argument("--large", action="store_true", help="also 20,000 trees x 64 leaves")
    parser.add_argument("--made-up", action="store_true", help="made-up forests in place of trained ones")
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    rounds, budget = (3, 1.0) if args.quick else (args.rounds, 10.0)
    verdicts = check_all()
    report: dict[str, Any] = {
        "processor": processor(),
        "load": f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} processors",
        "versions": f"gpuqs {gpuqs.__version__}, {cpu_fallback.available_isas()[0]}, {compiler()[1]}, "
        f"Python {platform.python_version()}, NumPy {np.__version__}",
        "checks": {name: vars(verdict) for name, verdict in verdicts.items()},
        "results": [measure(job, rounds, budget) for job in jobs(args.quick, args.large, args.made_up)],
    }
    print("\n" + markdown(report))
    if not args.quick:
        stem = keep("systems", report)
        stem.with_suffix(".md").write_text(markdown(report))
        PAGE.write_text(systems_page(report))


if __name__ == "__main__":
    main()
