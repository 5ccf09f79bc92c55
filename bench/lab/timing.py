"""Timing a table's rows at its points: systems are checked bit for bit, then timed in turns per model and batch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import datasets
import models
import numpy as np
from baselines.check import differing
from baselines.counts import visited_nodes
from baselines.registry import SYSTEMS
from baselines.tuned import Call, Job, tune
from interleave import by_turns, progress

import gpuqs
from gpuqs import cpu_fallback
from gpuqs.engines import ENGINES
from gpuqs.forest import Forest
from lab import gpu
from lab.plan import Given, Point, Row, Scale, Spec, Table


class Differs(SystemExit):
    """A system gave other scores than gpuqs's tree walks: the run ends, and nothing is reported."""


@dataclass(frozen=True)
class Cell:
    """A system's value at one point with its parameters, or the reason why there is none."""

    value: float | None = None
    parameters: Given = field(default_factory=dict)
    reason: str = ""


#: By panel, row and x.
Cells = dict[str, dict[str, dict[str, Cell]]]


def put(cells: Cells, panel: str, label: str, x: int | str, cell: Cell) -> None:
    cells.setdefault(panel, {}).setdefault(label, {})[str(x)] = cell


@lru_cache(maxsize=2)
def forest_of(spec: Spec, data: Path | None = None) -> Forest:
    shape = datasets.SHAPES[spec.shape]
    if spec.oblivious:
        return models.oblivious(shape, spec.trees, spec.leaves, data)
    return gpuqs.load(models.ranker(shape, spec.trees, spec.leaves, data)).forest


def groups(points: Iterable[Point]) -> Iterator[tuple[tuple[Spec, int], list[Point]]]:
    """The points of each model and batch, which are timed together."""
    found: dict[tuple[Spec, int], list[Point]] = {}
    for point in points:
        found.setdefault((point.model, point.documents), []).append(point)
    return iter(found.items())


class Contenders:
    """The calls of one model and batch, each checked against the scores of gpuqs's tree walks."""

    def __init__(self, job: Job, scale: Scale) -> None:
        self.job = job
        self.scale = scale
        self.model = gpuqs.from_model(job.forest)
        self.expected = self.model.predict(job.X, "raw", engine="walk")
        self.calls: dict[str, Call] = {}
        self.parameters: dict[str, Given] = {}

    def enter(self, row: Row, point: Point) -> str:
        """Prepare the row's call for a point, unless an equal one exists; return its name, or why not in brackets."""
        choices = [{**given, **dict(point.given)} for given in row.choices(point)]
        made: list[tuple[Given, Call]] = []
        reasons = []
        for name in row.systems:
            reason = self.refuses(name, choices[0])
            if reason is None:
                made += [self._tuned(name, given) for given in choices]
            else:
                reasons.append(reason)
        if not made:
            return f"({'; '.join(dict.fromkeys(reasons))})"
        parameters, call = made[0] if len(made) == 1 else self._fastest(made)
        if len(row.systems) == 1:
            parameters = {p: value for p, value in parameters.items() if p != "system"}
        name = f"{row.label} {parameters}"
        if name not in self.calls:
            self.check(name, call(), gpu.differing if row.systems == ("qs_gpu",) else differing)
            self.calls[name], self.parameters[name] = call, parameters
        return name

    def refuses(self, name: str, given: Given) -> str | None:
        """Why a system does not score the forest here, or None."""
        if name in SYSTEMS:
            system = SYSTEMS[name]
            if system.generated and self.job.forest.n_nodes > self.scale.max_generated:
                n = self.job.forest.n_nodes
                return f"{n:,} nodes; generated code is compiled up to {self.scale.max_generated:,}"
            return system.refuses(self.job.forest)
        if given.get("isa", cpu_fallback.available_isas()[0]) not in cpu_fallback.available_isas():
            return f"the processor has no {given['isa']}"
        if name == "qs_gpu":
            return gpu.absent()
        return None if name == "auto" else self.model.engines()[name]

    def _tuned(self, name: str, given: Given) -> tuple[Given, Call]:
        if name == "qs_gpu":
            tau = {"tau": int(given["tau"])} if "tau" in given else {}
            return tau, gpu.scorer(self.job, tau.get("tau"))
        if name not in SYSTEMS:
            options = {p: value for p, value in given.items() if p in ("n_threads", "isa")}
            return options | constants(name), partial(predict, self.model, self.job.X, name, **options)
        numbers = {p: int(value) for p, value in given.items()}
        parameters, call = tune(SYSTEMS[name], self.job, self.scale.budget, numbers)
        return {"system": name, **parameters}, call

    def _fastest(self, made: list[tuple[Given, Call]]) -> tuple[Given, Call]:
        timings = by_turns({str(at): call for at, (_, call) in enumerate(made)}, 3, self.scale.budget)
        return made[min(range(len(made)), key=lambda at: timings[str(at)].minimum)]

    def check(self, name: str, scores: Any, differing: Callable[[Any, np.ndarray], int] = differing) -> None:
        """End the run where scores differ."""
        wrong = differing(scores, self.expected)
        if wrong:
            raise Differs(f"{self.job.name}: {name}: {wrong} of {len(self.expected)} scores differ from walk's")

    def times(self) -> dict[str, float]:
        """Microseconds per document, by call."""
        timings = by_turns(self.calls, self.scale.rounds, self.scale.budget) if self.calls else {}
        return {name: timing.median / len(self.job.X) * 1e6 for name, timing in timings.items()}


def constants(engine: str) -> dict[str, int]:
    """Default block sizes of a QuickScorer engine."""
    if engine != "bwqs":
        return {}
    stated = {parameter.name: parameter.default for parameter in ENGINES[engine].parameters}
    return {"tau": stated["tree_block"], "delta": stated["document_block"]}


def predict(model: gpuqs.Model, X: np.ndarray, engine: str, n_threads: int = 1, isa: str | None = None) -> np.ndarray:
    """Scores of one engine; ``n_threads`` 0 means all threads."""
    before = os.environ.get("GPUQS_ISA")
    if isa is not None:
        os.environ["GPUQS_ISA"] = isa
    try:
        scores: np.ndarray = model.predict(X, "raw", engine=engine, n_threads=n_threads or None)
        return scores
    finally:
        if before is not None:
            os.environ["GPUQS_ISA"] = before
        elif isa is not None:
            del os.environ["GPUQS_ISA"]


def measure(table: Table, scale: Scale, data: Path | None = None) -> tuple[Cells, list[dict[str, Any]]]:
    """Every row at every point in the table's unit, and descriptions of the models."""
    cells: Cells = {}
    described: dict[Spec, Any] = {}
    for (spec, n), points in progress(list(groups(scale.reduced(table.points))), table.name):
        forest = forest_of(spec, data)
        name = spec.called(data is not None)
        job = Job(f"{table.name}, {name}", forest, datasets.documents(datasets.SHAPES[spec.shape], n, data))
        if spec not in described:
            described[spec] = describe(name, forest, job.X)
        contenders = Contenders(job, scale)
        entered = {(row.label, point): contenders.enter(row, point) for row in table.rows for point in points}
        times = contenders.times()
        for (label, point), name in entered.items():
            cell = Cell(reason=name[1:-1])
            if name in times:
                cell = Cell(table.unit.of(times[name], point), contenders.parameters[name])
            put(cells, point.panel, label, point.x, cell)
    return cells, list(described.values())


def describe(name: str, forest: Forest, X: np.ndarray) -> dict[str, Any]:
    """A model in numbers: which system is faster depends on the nodes that each visits.

    The numbers also reveal late trees with few leaves, which occur when training can find no more splits.
    """
    leaves = np.diff(forest.leaf_offsets)[-1_000:]
    visits = visited_nodes(forest, X[:16])
    return {
        "model": name,
        "leaves of the last 1,000 trees": float(leaves.mean()),
        "nodes on a walk": visits["walks"],
        "on the longest": visits["predicated"],
        "false nodes": visits["false nodes"],
    }
