"""Instructions, branches and cache misses of a table's rows: by perf if the machine allows it, else by callgrind.

callgrind simulates a branch predictor and two cache levels, the first and the last, with this machine's sizes: a miss
in the first is a reference to the last, called "L3" here.
"""

from __future__ import annotations

import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from baselines.counts import VISITS, visited_by_reversing, visited_nodes
from baselines.registry import SYSTEMS
from baselines.tuned import Job
from interleave import progress

from gpuqs.forest import Forest
from gpuqs.tuning.machine import hierarchy
from lab.counted_process import REPEATS
from lab.plan import Counted, Given, Point, Scale
from lab.timing import Cell, Cells, Contenders, forest_of, groups, put

PROCESS = Path(__file__).with_name("counted_process.py")
#: Documents scored while counting, for engines that process many together: the size of their batch.
TOGETHER = {"bitslice": 512, "bwqs": 256, "vqs": 128}
#: Documents scored while counting, for all others.
FEW = 32
PERF_EVENTS = {
    "instructions": "instructions",
    "branches": "branches",
    "branch mispredictions": "branch-misses",
    "L3 references": "cache-references",
    "L3 misses": "cache-misses",
}
#: callgrind's names of the same events.
CALLGRIND_EVENTS = {
    "instructions": ("Ir",),
    "branches": ("Bc", "Bi"),
    "branch mispredictions": ("Bcm", "Bim"),
    "L3 references": ("I1mr", "D1mr", "D1mw"),
    "L3 misses": ("ILmr", "DLmr", "DLmw"),
}
#: Remarks on each tool's counts.
HOW = {
    "callgrind": "It simulates a branch predictor, a first and a last level of caches: L3 references are what misses "
    "the first.",
    "perf": "L3 references and misses are the processor's own events of those names.",
}


@cache
def tool() -> str:
    """The available tool: "perf", "callgrind", or "" if there is neither."""
    if shutil.which("perf"):
        run = subprocess.run(["perf", "stat", "-x,", "-e", "instructions", "true"], capture_output=True, text=True)
        if run.returncode == 0 and re.match(r"\d+,", run.stderr):
            return "perf"
    header = Path("/usr/include/valgrind/callgrind.h")
    return "callgrind" if shutil.which("valgrind") and header.exists() else ""


#: An extra row: what reversing saves if a sample of documents decides which trees are reversed.
BY_SAMPLE = "QS, trees reversed by a sample"


def count(counted: Counted, scale: Scale, data: Path | None = None) -> Cells:
    """Counts per document and tree; shares in percent."""
    cells: Cells = {}
    for (spec, _), points in progress(list(groups(scale.reduced(counted.points, ends=1))), "counting"):
        forest = forest_of(spec, data)
        X = datasets.documents(datasets.SHAPES[spec.shape], max(TOGETHER.values()), data)
        contenders = Contenders(Job(f"counting, {spec.called(data is not None)}", forest, X), scale)
        visits = visited(forest, X) if "visited nodes" in counted.counters else {}
        entered = [(row, point, contenders.enter(row, point)) for row in counted.rows for point in points]
        asked = {
            name: contender(row.systems[0], contenders.parameters[name])
            for row, _, name in entered
            if name in contenders.calls
        }
        if not tool():
            entered = [(row, point, "(neither perf nor valgrind counts here)") for row, point, _ in entered]
            asked = {}
        counts = dict(zip(asked, counts_of(forest, X, list(asked.values())), strict=True))
        for row, point, name in entered:
            values = counts.get(name, {}) | visits.get(row.label, {})
            given = asked[name]["given"] if name in asked else {}
            fill(cells, counted, row.label, point, values, "" if name in asked else name[1:-1], given)
        if visits:
            fill(cells, counted, BY_SAMPLE, points[0], visits[BY_SAMPLE], "", {})
    return cells


def notes(counted: Counted) -> list[str]:
    """Notes for the page: how events were counted, and for how many documents."""
    shares = ", but shares in percent" if any("%" in counter for counter in counted.counters) else ""
    more = ", ".join(f"{n} by {system}" for system, n in TOGETHER.items())
    how = f"Counted by {tool() or 'nothing that is installed'}, a document and tree{shares}. {HOW.get(tool(), '')}"
    return [how.strip(), f"Counted on {FEW} documents, or as many as an engine takes together: {more}."]


def contender(system: str, parameters: Given) -> dict[str, Any]:
    """What the counted process needs to know about a contender."""
    given = {p: value for p, value in parameters.items() if p not in ("system", "delta")}
    system = str(parameters.get("system", system))  # the fastest of several systems
    if system not in SYSTEMS:
        given.pop("tau", None)
    return {"system": system, "given": given, "documents": TOGETHER.get(system, FEW)}


def fill(
    cells: Cells,
    counted: Counted,
    label: str,
    point: Point,
    values: Mapping[str, float],
    reason: str,
    given: Given,
) -> None:
    """Enter a row's counts, with the given parameters, into the panels of the counters."""
    for counter in counted.counters:
        panel = f"{counter}, {point.panel}" if counted.by_panel else counter
        if counter in values:
            put(cells, panel, label, point.x, Cell(values[counter], given))
        elif reason:
            put(cells, panel, label, point.x, Cell(reason=reason))


def visited(forest: Forest, X: np.ndarray) -> dict[str, dict[str, float]]:
    """Nodes visited per document and tree, by row."""
    nodes = visited_nodes(forest, X[:FEW])
    turned = visited_by_reversing(forest, sample=X[FEW : 5 * FEW], X=X[:FEW])
    by_row = {"QS" if name == "qs" else name: nodes[kind] for name, (kind, _) in VISITS.items()}
    by_row |= {"bwqs": turned["as gpuqs says"], BY_SAMPLE: turned["as a sample says"]}
    share = 100 / nodes["nodes"]
    return {label: {"visited nodes": n, "visited nodes, % of all": n * share} for label, n in by_row.items()}


def counts_of(forest: Forest, X: np.ndarray, contenders: list[dict[str, Any]]) -> list[dict[str, float]]:
    """Each contender's events per document and tree; empty if no tool is available."""
    if not contenders:
        return []
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job"
        job.write_bytes(pickle.dumps({"forest": forest, "X": X, "contenders": contenders}))
        events = under_perf(job, len(contenders)) if tool() == "perf" else under_callgrind(job)
    return [shares(each, c["documents"] * forest.n_trees) for each, c in zip(events, contenders, strict=True)]


def shares(events: Mapping[str, float], pairs: int) -> dict[str, float]:
    """Counters by our names, per document and tree."""
    counted = {name: value / pairs for name, value in events.items()}
    if counted.get("L3 references"):
        counted["L3 misses, % of references"] = 100 * counted["L3 misses"] / counted["L3 references"]
    return counted


def under_callgrind(job: Path) -> list[dict[str, float]]:
    """Events of each contender, simulated."""
    out = job.with_name("callgrind")
    levels = [f"--{name}={size},{ways},64" for name, size, ways in simulated_caches()]
    command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--branch-sim=yes", "--cache-sim=yes", *levels]
    run([*command, f"--callgrind-out-file={out}", sys.executable, str(PROCESS), str(job), "callgrind"])
    parts = sorted(job.parent.glob("callgrind.*"), key=lambda path: int(path.suffix[1:]))
    return [read_callgrind(path.read_text()) for path in parts[1::2]]  # each follows its warm-up's dump


def simulated_caches() -> list[tuple[str, int, int]]:
    """Option, size and ways of callgrind's caches: this machine's, with the last reduced to a power of two."""
    first, _, last = hierarchy().sizes
    return [("I1", 32 << 10, 8), ("D1", first, ways_of(first)), ("LL", 1 << (last.bit_length() - 1), 16)]


def ways_of(size: int) -> int:
    """Eight ways, or the next number that gives a power of two of sets, as callgrind needs: twelve for 48 KiB."""
    lines = size // 64
    ways = lines // (lines & -lines)
    while ways < 8:
        ways *= 2
    return ways


def read_callgrind(text: str) -> dict[str, float]:
    """The counters of one dump, by our names."""
    names = re.search(r"^events: (.*)$", text, re.MULTILINE)
    totals = re.search(r"^(?:totals|summary): (.*)$", text, re.MULTILINE)
    if names is None or totals is None:
        raise RuntimeError("callgrind wrote no totals")
    of = dict(zip(names[1].split(), map(float, totals[1].split()), strict=False))
    return {ours: sum(of.get(event, 0.0) for event in theirs) for ours, theirs in CALLGRIND_EVENTS.items()}


def under_perf(job: Path, n: int) -> list[dict[str, float]]:
    """Events of each contender, as the processor counts them."""
    control, answers, out = (str(job.with_name(name)) for name in ("control", "answers", "events"))
    os.mkfifo(control)
    os.mkfifo(answers)
    events = ",".join(PERF_EVENTS.values())
    command = ["perf", "stat", "-x,", "-o", out, "-e", events, "--delay=-1", f"--control=fifo:{control},{answers}"]
    found = []
    for number in range(n):
        run([*command, sys.executable, str(PROCESS), str(job), "perf", str(number), control, answers])
        found.append(read_perf(Path(out).read_text()))
    return found


def read_perf(text: str) -> dict[str, float]:
    """The counters of one run, by our names; what the processor does not count is left out."""
    told = {event: float(value) for value, event in re.findall(r"^([\d.]+),[^,]*,([^,:]+)", text, re.MULTILINE)}
    return {ours: told[event] / REPEATS for ours, event in PERF_EVENTS.items() if event in told}


def run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONHASHSEED": "0"})
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
