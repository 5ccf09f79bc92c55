"""Paper 004, Table 5: blocking parameters chosen by guided sampling, compared with an exhaustive search."""

from __future__ import annotations

import time
from itertools import product
from pathlib import Path

import datasets
from baselines.registry import SYSTEMS
from baselines.tuned import Call, Job, candidates
from interleave import by_turns, progress

from gpuqs.tuning.blocking import SHARES, SURVIVING
from lab.blocking import choices, order_of
from lab.plan import Given, Point, Scale, Table
from lab.timing import Cell, Cells, Contenders, describe, forest_of, put

#: Values of d and s in the exhaustive search, up to all documents and trees.
GRID = (1, 4, 16, 64, 256, 1_024, 4_096)
#: Orders, and which parameters they take.
ORDERS = {order: SYSTEMS[order].parameters for order in ("DSD", "SDS", "DSDS", "SDSD")}


def exhaustive(point: Point) -> list[tuple[str, Given]]:
    """Every order with every d and s of the grid."""
    most = {"d": point.documents, "s": point.model.trees}
    out: list[tuple[str, Given]] = []
    for order, names in ORDERS.items():
        values = (sorted({min(value, most[p]) for value in GRID}) for p in names)
        out += [(order, dict(zip(names, chosen, strict=True))) for chosen in product(*values)]
    return out


def guided(point: Point) -> list[tuple[str, str, Given]]:
    """The cases that Proposition 1 leaves, sampled: case, order, d and s."""
    return [(name, order_of(name), given) for name in SURVIVING for given in choices(name, point, SHARES)]


def measure(table: Table, scale: Scale, data: Path | None = None) -> tuple[Cells, list[dict[str, object]]]:
    """Time and best choice of both searches, and by how much the guided search's best is slower."""
    cells: Cells = {}
    models = []
    for point in progress(scale.reduced(table.points), table.name):
        forest = forest_of(point.model, data)
        X = datasets.documents(datasets.SHAPES[point.model.shape], point.documents, data)
        name = point.model.called(data is not None)
        models.append(describe(name, forest, X))
        job = Job(name, forest, X)
        sampled, all_of_them = guided(point), exhaustive(point)
        contenders = Contenders(job, scale)
        calls = {f"{name} {dict(given)}": call_of(contenders, order, given) for name, order, given in sampled}
        grid = {f"{order} {dict(given)}": call_of(contenders, order, given) for order, given in all_of_them}
        took = [seconds_of(contenders, each) for each in (calls, grid)]
        both = by_turns({**calls, **grid}, 3, scale.budget)  # timed together, to compute the error
        best = {label: min(of, key=lambda name: both[name].median) for label, of in (("guided", calls), ("all", grid))}
        error = 100 * (both[best["guided"]].median / min(timing.median for timing in both.values()) - 1)
        rows = {
            "seconds of the guided sampling": (took[0], {"measured": len(calls)}),
            "seconds of the exhaustive search": (took[1], {"measured": len(grid), "best": best["all"]}),
            "error, %": (error, {"best": best["guided"]}),
        }
        for label, (value, told) in rows.items():
            put(cells, point.panel, label, point.x, Cell(value, told))
    return cells, models


def call_of(contenders: Contenders, order: str, given: Given) -> Call:
    """An order with its parameters."""
    numbers = {p: int(value) for p, value in given.items()}
    return next(candidates(SYSTEMS[order], contenders.job, numbers))[1]


def seconds_of(contenders: Contenders, calls: dict[str, Call]) -> float:
    """Total seconds of one call of each; their scores are checked."""
    total = 0.0
    for name, call in calls.items():
        start = time.perf_counter()
        scores = call()
        total += time.perf_counter() - start
        contenders.check(name, scores)
    return total
