"""The systems of the papers beside gpuqs's engines: checked bit for bit, tuned, and timed by turns.

    python bench/systems.py            # 1,000 trees x 64 leaves, oblivious ones too; some minutes
    python bench/systems.py --large    # and 20,000 x 64
    python bench/systems.py --made-up  # made-up forests in place of trained ones, which take minutes to train
    python bench/systems.py --quick    # a smoke run of a minute, nothing written

Nothing is timed that has not been checked. Figures go to bench/results/, the list of all systems to bench/systems.md.
One thread. The first run compiles the systems (bench/baselines/), and the two that are generated from the forest.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "tests"))  # the checks use the tests' forests

from baselines.check import Verdict, cases, check, check_engine, differing
from baselines.compiler import compiler
from baselines.counts import visited_nodes
from baselines.oblivious_forest import oblivious_like
from baselines.orderings import ORDERINGS
from baselines.program import Program
from baselines.registry import ENGINES_OF_PAPERS, SYSTEMS, System
from baselines.report import markdown, systems_page
from interleave import by_turns, processor, progress, results_at
from made_up import chained, lambdamart_like
from models import documents, enlarged, lambdamart

import gpuqs
from gpuqs import cpu_fallback
from gpuqs.engines import ENGINES
from gpuqs.forest import Forest

ON_CPU = [name for name, engine in ENGINES.items() if engine.device == "cpu"]
Call = Callable[[], np.ndarray]
PAGE = Path(__file__).with_name("systems.md")
#: What is tried for each parameter, trees and documents; larger ones than the forest or batch are cut.
TRIED = {"v": (1, 2, 4, 8, 16, 32), "tau": (16, 128, 1_000, 100_000), "d": (8, 64, 512, 100_000), "s": (1, 4, 32, 256)}
#: And for s where scorers are merged trees.
BLOCKS_TRIED = (1, 4)


@dataclass(frozen=True)
class Job:
    name: str
    forest: Forest
    X: np.ndarray


def tried(system: System, job: Job, parameter: str, tau: int) -> list[int]:
    """The values of one parameter that differ for this forest and batch."""
    values = BLOCKS_TRIED if parameter == "s" and "tau" in system.parameters else TRIED[parameter]
    scorers = -(-job.forest.n_trees // tau) if "tau" in system.parameters else job.forest.n_trees
    most = {"v": 32, "tau": job.forest.n_trees, "d": len(job.X), "s": scorers}[parameter]
    return sorted({min(value, most) for value in values})


def candidates(system: System, job: Job) -> Iterator[tuple[dict[str, int], Call]]:
    """The system with every choice of its parameters that is tried."""
    built = [p for p in ("v", "tau") if p in system.parameters]
    passed = [p for p in ("d", "s") if p in system.parameters]
    for values in product(*(tried(system, job, p, 1) for p in built)):
        chosen = dict(zip(built, values, strict=True))
        program = Program(system, job.forest, job.X.dtype, missing=False, **chosen)
        for among in product(*(tried(system, job, p, chosen.get("tau", 1)) for p in passed)):
            blocks = dict(zip(passed, among, strict=True))
            yield chosen | blocks, partial(program.score, job.X, **blocks)


def tune(system: System, job: Job, budget: float) -> tuple[dict[str, int], Call]:
    """The parameters with which the system scored the documents fastest, and the system so."""
    tried_out = list(candidates(system, job))
    if len(tried_out) == 1:
        return tried_out[0]
    timings = by_turns({str(at): call for at, (_, call) in enumerate(tried_out)}, 3, budget)
    return tried_out[min(range(len(tried_out)), key=lambda at: timings[str(at)].minimum)]


def measure(job: Job, rounds: int, budget: float) -> dict[str, Any]:
    """Tune and time every system that holds the forest, and gpuqs's engines."""
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
    """Every system and engine of the papers against the reference; ends the run where one differs."""
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
    else:
        yield Job("LightGBM LambdaMART 1,000 x 64", gpuqs.load(lambdamart(1_000, 64)).forest, X)
    yield Job("made-up chains 1,000 x 64, as paper 002, Table V", chained(1_000, 64, X), X)
    yield Job("made-up oblivious 1,000 x 64", oblivious_like(1_000, 6, X), X)
    if large and made_up:
        yield Job("made-up LambdaMART 20,000 x 64", lambdamart_like(20_000, 64, X), X[:1_000])
    elif large:
        name = "LightGBM 20,000 x 64 (1,000 trained, thresholds redrawn)"
        yield Job(name, gpuqs.load(enlarged(lambdamart(1_000, 64), 20_000)).forest, X[:1_000])


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
        stem = results_at("systems")
        stem.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
        stem.with_suffix(".md").write_text(markdown(report))
        PAGE.write_text(systems_page(report))


if __name__ == "__main__":
    main()
