"""Fail the n-th call of a kind, n = 1, 2, ..., until a run meets no fault; require success or a clear error, no leak.

    LD_PRELOAD=failing_calls.cpp.so python sweep.py SCENARIO KIND [ARGUMENT ...]

Prints the outcomes as JSON. If gpuqs is at fault, an assertion fails or the process ends or hangs.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import json
import os
import sys
import traceback
from collections import Counter
from pathlib import Path

from scenarios import Command, Encode, Load, NewThread, Predict, Save, Scenario

from gpuqs.cpu_fallback import scorer, svmlight

#: Kinds of calls, by their numbers in failing_calls.cpp.
KINDS = (
    *("own_memory", "large_memory", "map", "protect", "thread"),
    *("open", "read", "write", "fsync", "rename", "close"),
)
#: Messages of Python and NumPy themselves when no memory is left.
NOT_OURS = ("can't allocate", "without exception set", "without setting an exception")
#: A run longer than this counts as hung.
HANG_SECONDS = 60

_calls = ctypes.CDLL(None)
_calls.faults_disarm.restype = _calls.faults_held.restype = ctypes.c_long
_calls.faults_arm.argtypes = ctypes.c_int, ctypes.c_long, ctypes.c_int


def disarm() -> int:
    """Disarm; return how many calls of the armed kind were made."""
    while True:
        try:
            return _calls.faults_disarm()
        except MemoryError:  # the fault hit only here
            continue


def held() -> dict[str, int]:
    """Counters that a leak would increase."""
    gc.collect()
    return {
        "memory of gpuqs": _calls.faults_held(),
        "files": len(os.listdir("/proc/self/fd")),
    }


def one_run(scenario: Scenario, kind: str, n: int, from_then_on: bool) -> tuple[str, bool]:
    """The outcome's name, and whether a call failed."""
    scenario.begin()
    outcome = "success"
    faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
    try:
        _calls.faults_arm(KINDS.index(kind), n, from_then_on)
        scenario.act()
    except scenario.clear as error:
        outcome = type(error).__name__
    except (RuntimeError, SystemError) as error:
        if kind != "large_memory" or not any(words in str(error) for words in NOT_OURS):
            raise
        outcome = f"{type(error).__name__} of Python's"
    finally:
        seen = disarm()
    scenario.check(outcome == "success")
    faulthandler.cancel_dump_traceback_later()
    return outcome, seen >= n


def one_run_of_a_child(scenario: Scenario, kind: str, n: int, from_then_on: bool) -> tuple[str, bool]:
    """As `one_run`, in a forked process, which has no threads yet (threads, once started, are kept)."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.write(send, json.dumps(one_run(scenario, kind, n, from_then_on)).encode())
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(send)
    with open(receive, "rb") as answer:
        told = answer.read()
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the process ended with {os.waitstatus_to_exitcode(status)}"
    outcome, failed = json.loads(told)
    return outcome, failed


def sweep(scenario: Scenario, kind: str, from_then_on: bool) -> Counter[str]:
    run = one_run_of_a_child if kind == "thread" else one_run
    outcomes: Counter[str] = Counter()
    n = 0
    while True:
        n += 1
        print(f"{kind} {n}{' and later' if from_then_on else ''}", file=sys.stderr, flush=True)
        outcome, failed = run(scenario, kind, n, from_then_on)
        if not failed:
            assert outcome == "success", f"{outcome} without a fault"
            return outcomes
        outcomes[outcome] += 1


def scenario_of(name: str, arguments: list[str]) -> Scenario:
    if name == "load":
        return Load(Path(arguments[0]))
    if name == "predict":
        return Predict(arguments[0], int(arguments[1]), int(arguments[2]))
    if name == "new thread":
        return NewThread()
    if name == "encode":
        return Encode(int(arguments[0]))
    if name == "save":
        return Save(Path(arguments[0]))
    return Command(*map(Path, arguments[:3]), int(arguments[3]))


def main() -> None:
    name, kinds, *arguments = sys.argv[1:]
    scenario = scenario_of(name, arguments)
    assert _calls.faults_aim(os.path.dirname(scorer.__file__).encode() + b"/") >= 2, (scorer, svmlight)
    told = {}
    for kind in kinds.split(","):
        if kind != "thread":
            for _ in range(2):  # the first runs allocate what is kept permanently
                one_run(scenario, kind, 10**9, False)
        before = held()
        outcomes: Counter[str] = Counter()
        # If every allocation failed, Python itself could not go on: "large_memory" fails only once.
        for from_then_on in (False, True) if kind != "large_memory" else (False,):
            outcomes += sweep(scenario, kind, from_then_on)
        assert held() == before, f"{kind}: {before} became {held()}"
        told[kind] = outcomes
    print(json.dumps(told))


if __name__ == "__main__":
    main()
