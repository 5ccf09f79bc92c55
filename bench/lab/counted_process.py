"""The process whose events are counted: prepares the contenders of a file and scores with each between two marks.

    valgrind --tool=callgrind --instr-atstart=no ... python counted_process.py JOB callgrind
    perf stat --delay=-1 --control=fifo:CONTROL,ANSWERS ... python counted_process.py JOB perf NUMBER CONTROL ANSWERS

Each contender scores before it is counted, so that its code is ready and its caches are warm. Under callgrind, which
simulates at a hundredth of the speed, a few documents do this: they already read all parts of the forest that are used.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "tests")]

from baselines.compiler import compiled
from baselines.program import Program
from baselines.registry import SYSTEMS

import gpuqs
from lab.timing import predict

#: How often a contender scores under perf, since perf's own marks are counted, too.
REPEATS = 20
#: Documents that fill simulated caches.
WARMING = 8


def ready(job: dict[str, Any], contender: dict[str, Any]) -> Callable[[np.ndarray], object]:
    """Prepare a contender; return its call."""
    name, given = contender["system"], contender["given"]
    if name in SYSTEMS:
        built = {p: given[p] for p in ("v", "tau") if p in given}
        passed = {p: given[p] for p in ("d", "s") if p in given}
        program = Program(SYSTEMS[name], job["forest"], job["X"].dtype, missing=False, **built)
        return lambda X: program.score(X, **passed)
    model = gpuqs.from_model(job["forest"])
    return lambda X: predict(model, X, name, **given)


def under_callgrind(job: dict[str, Any]) -> None:
    client = compiled(Path(__file__).with_name("client.cpp"))
    for at, contender in enumerate(job["contenders"]):
        call, X = ready(job, contender), job["X"][: contender["documents"]]
        call(X)
        client.count_start()
        call(X[:WARMING])
        client.count_dump(b"warming")  # zeroing instead would give negative totals if machine code was made meanwhile
        call(X)
        client.count_dump(f"contender {at}".encode())
        client.count_stop()


def under_perf(job: dict[str, Any], number: str, control: str, answers: str) -> None:
    contender = job["contenders"][int(number)]
    call, X = ready(job, contender), job["X"][: contender["documents"]]
    call(X)
    with open(control, "w") as asks, open(answers) as told:

        def ask(what: str) -> None:
            print(what, file=asks, flush=True)
            told.readline()

        ask("enable")
        for _ in range(REPEATS):
            call(X)
        ask("disable")


if __name__ == "__main__":
    with open(sys.argv[1], "rb") as file:
        described = pickle.load(file)  # written by lab.counting
    if sys.argv[2] == "callgrind":
        under_callgrind(described)
    else:
        under_perf(described, *sys.argv[3:])
