"""The parameters with which a system scores a forest fastest, among those that are tried."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
from interleave import by_turns

from baselines.program import Program
from baselines.registry import System
from gpuqs.forest import Forest

Call = Callable[[], np.ndarray]
#: A choice of parameters, and the system with it.
Choice = tuple[dict[str, int], partial[np.ndarray]]
#: Values tried for each parameter, in trees and documents; larger ones than the forest or batch are cut.
TRIED = {"v": (1, 2, 4, 8, 16, 32), "tau": (16, 128, 1_000, 100_000), "d": (8, 64, 512, 100_000), "s": (1, 4, 32, 256)}
#: Values tried for s if scorers are merged trees.
BLOCKS_TRIED = (1, 4)
#: Pairs of a document and a tree in the first trial, which decides which choices are tried first on all documents.
FIRST_PAIRS = 2_500_000
#: The first trial uses a multiple of this many documents, so that every v has whole vectors.
WHOLE = max(TRIED["v"])
#: At least this many choices are tried on all documents, and at most this many of the fastest are timed in turns.
NEAR = 6
#: Minimum calls of each choice when timing in turns: one to warm up, and three rounds.
CALLS = 4
#: Parameters that are fixed when a program is built; the others are passed to calls.
BUILT = ("v", "tau")


@dataclass(frozen=True)
class Job:
    name: str
    forest: Forest
    X: np.ndarray


def tried(system: System, job: Job, parameter: str, built: Mapping[str, int]) -> list[int]:
    """The values of one parameter that make a difference for this forest and batch; d is in whole vectors of v."""
    tau, v = built.get("tau", 1), built.get("v", 1)
    values = BLOCKS_TRIED if parameter == "s" and "tau" in system.parameters else TRIED[parameter]
    scorers = -(-job.forest.n_trees // tau) if "tau" in system.parameters else job.forest.n_trees
    most = {"v": 32, "tau": job.forest.n_trees, "d": len(job.X), "s": scorers}[parameter]
    if parameter == "d":
        return sorted({max(min(value, most) // v, 1) * v for value in values})
    return sorted({min(value, most) for value in values})


def candidates(system: System, job: Job, given: Mapping[str, int] | None = None) -> Iterator[Choice]:
    """The system with every tried combination of its parameters, except those given."""
    given = given or {}

    def values_of(names: list[str], built: Mapping[str, int]) -> Iterator[dict[str, int]]:
        values = ([given[p]] if p in given else tried(system, job, p, built) for p in names)
        return (dict(zip(names, chosen, strict=True)) for chosen in product(*values))

    for built in values_of([p for p in BUILT if p in system.parameters], {}):
        program = Program(system, job.forest, job.X.dtype, missing=False, **built)
        for passed in values_of([p for p in ("d", "s") if p in system.parameters], built):
            yield built | passed, partial(program.score, job.X, **passed)


def tune(
    system: System, job: Job, budget: float, given: Mapping[str, int] | None = None
) -> tuple[dict[str, int], Call]:
    """The parameters with which the system scored all documents fastest, and the system with them.

    Fewer documents would not suffice: the best block may be the whole batch. Every choice is timed once on a few,
    then once on all, the promising ones first, until `budget` seconds are spent; those near the fastest are then timed
    in turns, as many as that time allows.
    """
    choices = list(candidates(system, job, given))
    if len(choices) == 1:
        return choices[0]
    few = job.X[: max(FIRST_PAIRS // job.forest.n_trees // WHOLE, 1) * WHOLE]
    if len(few) < len(job.X):
        choices = sorted(choices, key=lambda choice: seconds(partial(choice[1].func, few, **choice[1].keywords)))
    once: dict[int, float] = {}
    for at, (_, call) in enumerate(choices):
        if at >= NEAR and sum(once.values()) > budget:
            break
        once[at] = seconds(call)
    near = sorted(once, key=once.__getitem__)
    near = near[: min(NEAR, max(1, int(budget / CALLS / once[near[0]])))]
    if len(near) > 1:
        timings = by_turns({str(at): choices[at][1] for at in near}, CALLS - 1, budget)
        near.sort(key=lambda at: timings[str(at)].minimum)
    return choices[near[0]]


def seconds(call: Call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
