"""Other libraries on the same models and rows, in turns with gpuqs; bench/peers/ has a file for each.

    python bench/libraries.py            # models of four libraries; figures go to bench/results/
    python bench/libraries.py --large    # and 20,000 trees x 64 leaves
    python bench/libraries.py --quick    # a smoke run of small models, nothing written
    python bench/libraries.py --peers YDF "ONNX Runtime"    # these beside the models' own libraries, nothing written

One thread and all; calls with 1 to 100,000 documents. Before anything is timed, each contender's scores are compared
with those of the library that trained the model, for every call size and number of threads: gpuqs's must have the
same bits. Peers that are not installed (`pip install '.[peers]'`), cannot load a model, give other scores, or would
take too long are left out, and the figures say why.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from energy import NoEnergy, Zone, microjoules, packages
from interleave import by_turns, keep, processor
from peers.base import Contender, OfThreads, Source
from peers.registry import PEERS
from sources import sources

import gpuqs
from gpuqs import cpu_fallback

#: Calls are not reduced below this many documents, or the fixed cost of a call would be attributed to documents.
FEW = 100
#: Short calls are timed in groups of at most this many with different documents, since one call's data fits in caches.
MAX_CALLS = 50
#: Documents whose scores are compared first; those of timed calls are compared as well.
CHECKED = 1_000
#: Allowed difference of a peer's scores from those of the model's library, relative to the largest score.
TOLERANCE = 1e-3
#: Contenders of gpuqs whose scores must be bit-identical.
EXACT = ("gpuqs", "gpuqs, encoded")


@dataclass(frozen=True)
class Effort:
    """How long a run may take."""

    sizes: tuple[int, ...] = (1, 10, 100, 1_000, 10_000, 100_000)
    rounds: int = 9
    budget: float = 6.0  # seconds after which a cell gets no further round
    longest: float = 1.5  # seconds of a call beyond which it gets fewer documents


@dataclass(frozen=True)
class Calls:
    """Calls that are timed together, each with other documents."""

    contender: Contender
    batches: list[Any]
    documents: int  #: of each call

    def __call__(self) -> None:
        for batch in self.batches:
            self.contender.score(batch)

    @property
    def scored(self) -> int:
        return len(self.batches) * self.documents

    def compared(self, expected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Scores and expected scores: of all calls if they have few documents, else of the first and the last."""
        last = len(self.batches) - 1
        chosen = [*range(last + 1)] if self.documents <= FEW else sorted({0, last})
        scores = [as_scores(self.contender.score(self.batches[at])) for at in chosen]
        right = expected[: self.scored].reshape(last + 1, self.documents)[chosen]
        return np.concatenate(scores), right.reshape(-1)


def ours(source: Source, n_threads: int, with_encoded: bool) -> dict[str, Contender]:
    """gpuqs, exact and fast; also from documents encoded beforehand if a peer prepares its own."""
    model = source.model
    chosen = 1 if n_threads == 1 else None  # all threads: gpuqs chooses how many to use for small batches

    def predict(precision: str, rows: Any) -> np.ndarray:
        # scikit-learn's predict gives the averaged value; the others give raw scores.
        output = "value" if source.library == "scikit-learn" else "raw"
        return model.predict(rows, output, n_threads=chosen, precision=precision)  # type: ignore[arg-type]

    contenders = {"gpuqs": Contender(partial(predict, "exact")), "gpuqs, fast": Contender(partial(predict, "fast"))}
    if with_encoded:
        contenders["gpuqs, encoded"] = Contender(partial(predict, "exact"), model.encode)
        contenders["gpuqs, encoded, fast"] = Contender(partial(predict, "fast"), model.encode)
    return contenders


def build(source: Source, names: list[str]) -> tuple[dict[str, OfThreads], dict[str, str]]:
    """The peers that can load the model, its own library first, and why others cannot."""
    built: dict[str, OfThreads] = {}
    reasons: dict[str, str] = {}
    for name in dict.fromkeys([source.library, *names]):
        peer = PEERS[name]
        reason = peer.absent() or peer.refuses(source)
        if reason is None:
            try:
                of_threads = peer.build(source)
                of_threads(1)
                built[name] = of_threads
            except Exception as problem:  # record a converter's failure instead of ending the run
                reason = f"building failed: {type(problem).__name__}: {problem}"
        if reason is not None:
            reasons[name] = reason
    return built, reasons


def contenders_of(source: Source, built: dict[str, OfThreads], n_threads: int) -> dict[str, Contender]:
    """All peers' contenders with ``n_threads`` threads, and ours."""
    theirs = {label: contender for of_threads in built.values() for label, contender in of_threads(n_threads).items()}
    prepared = any(contender.prepare is not np.ascontiguousarray for contender in theirs.values())
    return theirs | ours(source, n_threads, prepared)


def as_scores(scores: Any) -> np.ndarray:
    """Copy scores: a peer may write each call's scores to the same place."""
    return np.array(scores, np.float64).reshape(-1)


def scores_of(contender: Contender, X: np.ndarray) -> np.ndarray:
    return as_scores(contender.score(contender.prepare(X)))


def difference_of(name: str, label: str, scores: np.ndarray, expected: np.ndarray, largest: float) -> float:
    """By how much scores differ at most; ends the run where ours are not what they must be."""
    alike = scores.shape == expected.shape
    difference = float(np.abs(scores - expected).max(initial=0)) if alike else float("inf")
    exact = label in EXACT and not (alike and np.array_equal(scores, expected))
    if exact or (label.startswith("gpuqs") and not difference <= TOLERANCE * largest):
        raise SystemExit(f"{name}: {label} differs from the model's library by up to {difference:g}")
    return difference


def agreement(source: Source, contenders: dict[str, Contender], expected: np.ndarray) -> dict[str, dict[str, Any]]:
    """Each contender's largest difference from the expected scores of the first documents.

    The expected scores are those of the library that trained the model, with one thread: scikit-learn's threads sum
    trees in the order in which they finish.
    """
    largest = float(np.abs(expected).max())
    found = {}
    for label, contender in contenders.items():
        n = min(len(expected), CHECKED, contender.most or CHECKED)
        difference = difference_of(source.name, label, scores_of(contender, source.X[:n]), expected[:n], largest)
        found[label] = {
            "rows": n,
            "largest_difference": difference,
            "largest_score": largest,
            "same_bits": difference == 0,
            "agrees": difference <= TOLERANCE * largest,
        }
    return found


def seconds_of(contender: Contender, X: np.ndarray, longest: float) -> float:
    """Seconds of a call with these documents, extrapolated from calls with fewer."""
    for n in sorted({min(n, len(X)) for n in (FEW, 10 * FEW)}):
        rows = contender.prepare(X[:n])
        once = min(timed(contender, rows) for _ in range(3))
        if once > longest / 3:
            break
    return once * len(X) / n


def timed(contender: Contender, rows: Any) -> float:
    began = time.perf_counter()
    contender.score(rows)
    return time.perf_counter() - began


def calls_of(contender: Contender, X: np.ndarray, n: int, longest: float, together: float) -> Calls:
    """Calls that take about ``together`` seconds; with fewer documents than ``n`` where one would take too long."""
    once = seconds_of(contender, X[:n], longest)
    documents = n if once <= longest else max(min(n, FEW), int(n * longest / once))
    calls = max(1, min(MAX_CALLS, len(X) // documents, int(together / once)))
    batches = [contender.prepare(X[at * documents : (at + 1) * documents]) for at in range(calls)]
    return Calls(contender, batches, documents)


def measure_cell(
    name: str,
    contenders: dict[str, Contender],
    X: np.ndarray,
    expected: np.ndarray,
    n: int,
    effort: Effort,
    zones: list[Zone] | None,
) -> dict[str, Any]:
    """Time every contender with ``n`` documents per call, except peers whose scores are not as expected."""
    able = {label: one for label, one in contenders.items() if one.most is None or n <= one.most}
    together = effort.budget / effort.rounds / len(able)
    made = {label: calls_of(contender, X, n, effort.longest, together) for label, contender in able.items()}
    largest = float(np.abs(expected).max())
    where = f"{name}, {n:,} documents a call"
    apart = {label: difference_of(where, label, *calls.compared(expected), largest) for label, calls in made.items()}
    differ = {label: difference for label, difference in apart.items() if not difference <= TOLERANCE * largest}
    right = {label: calls for label, calls in made.items() if label not in differ}
    timings = by_turns(right, effort.rounds, effort.budget)
    cell: dict[str, Any] = {
        "us_per_document": {label: t.median / right[label].scored * 1e6 for label, t in timings.items()},
        "minimum_us": {label: t.minimum / right[label].scored * 1e6 for label, t in timings.items()},
        "fewer_documents": {label: calls.documents for label, calls in right.items() if calls.documents < n},
        "differ": differ,
    }
    if zones is not None:
        used = {label: microjoules(calls, zones) for label, calls in right.items()}
        cell["uj_per_document"] = {label: uj / right[label].scored for label, uj in used.items()}
    return cell


def measure(source: Source, names: list[str], effort: Effort, zones: list[Zone] | None) -> dict[str, Any]:
    """One model: who can load it, who agrees, and how long they take."""
    began, forest, sizes = time.perf_counter(), source.model.forest, effort.sizes
    X = np.resize(source.X, (max(max(sizes), len(source.X)), source.X.shape[1]))
    cells: list[dict[str, Any]] = []
    checked: dict[str, dict[str, Any]] = {}
    built, reasons = build(source, names)
    for n_threads in sorted({1, cpu_fallback.effective_threads(None)}):
        contenders = contenders_of(source, built, n_threads)
        if n_threads == 1:
            expected = scores_of(contenders[source.library], source.X)
        found = agreement(source, contenders, expected)
        agreeing = {label: contender for label, contender in contenders.items() if found[label]["agrees"]}
        for n in sizes:
            print(f"{source.name}: {n:,} documents, {n_threads} threads", flush=True)
            cell = measure_cell(source.name, agreeing, X, np.resize(expected, len(X)), n, effort, zones)
            cells.append({"documents": n, "threads": n_threads, **cell})
        checked = found | checked
    return {
        "model": source.name,
        "library": source.library,
        "trees": forest.n_trees,
        "leaves": source.model.n_leaves,
        "features": forest.n_features,
        "not_held": reasons,
        "agreement": checked,
        "cells": cells,
        "seconds": time.perf_counter() - began,
    }


def availability(names: list[str]) -> dict[str, dict[str, Any]]:
    """What each peer is, its version here, or why it is absent."""
    told = {}
    for name in names:
        peer = PEERS[name]
        absent = peer.absent()
        told[name] = {
            "distribution": peer.distribution,
            "version": None if absent else peer.version(),
            "absent": absent,
            "rows": peer.rows,
            "threads": peer.threads,
        }
    return told


def table(result: dict[str, Any]) -> str:
    """A model's figures, to be read during the run: one line per contender, one column per cell."""
    cells = result["cells"]
    lines = [f"\n{result['model']}: us per document, by documents per call / threads"]
    lines.append(f"{'':24}" + "".join(f"{c['documents']:,}/{c['threads']}".rjust(12) for c in cells))
    for label, found in result["agreement"].items():
        figures = [f"{c['us_per_document'][label]:.2f}" if label in c["us_per_document"] else "" for c in cells]
        agrees = f"   differs by up to {found['largest_difference']:.2g}"
        lines.append(f"{label:24}" + "".join(figure.rjust(12) for figure in figures) + agrees)
    return "\n".join([*lines, *(f"  {name}: {reason}" for name, reason in result["not_held"].items())])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few trees and documents, nothing written")
    parser.add_argument("--large", action="store_true", help="also 20,000 x 64")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS), metavar="NAME")
    args = parser.parse_args()
    effort = Effort((1, 1_000), 3, 0.3, 0.1) if args.quick else Effort()
    try:
        zones, energy = packages(), None
    except NoEnergy as problem:
        zones, energy = None, str(problem)
    report: dict[str, Any] = {
        "processor": processor(),
        "load": f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} processors",
        "versions": f"gpuqs {gpuqs.__version__}, {cpu_fallback.available_isas()[0]}, "
        f"Python {platform.python_version()}, NumPy {np.__version__}",
        "no_energy": energy,
        "peers": availability(list(PEERS)),
        "results": [],
    }
    for library, make in sources(args.quick, args.large):
        if report["peers"][library]["absent"] is None:
            report["results"].append(measure(make(), args.peers, effort, zones))
            print(table(report["results"][-1]), flush=True)
    if not args.quick and args.peers == list(PEERS):
        keep("libraries", report)


if __name__ == "__main__":
    main()
