"""Measures candidates on the user's rows, within a budget: warm up, screen, take turns, duel with the default."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from gpuqs.devices import HOST, Device
from gpuqs.engines import ENGINES, Program
from gpuqs.engines.parameters import Changed
from gpuqs.errors import GpuqsError
from gpuqs.forest import Forest
from gpuqs.tuning.loops import candidates
from gpuqs.tuning.machine import hierarchy
from gpuqs.tuning.plan import Candidate, Tuned, Way

#: The default is kept unless another candidate takes less than this share of its time.
CLEARLY = 0.98
#: Parameters are tried only for engines that take, with their defaults, at most this many times as long as the best.
_WORTH_TUNING = 1.6
#: After the first readings only candidates that take at most this many times as long as the best go on ...
_SCREENED = 1.3
#: ... and at most this many of them.
_FINALISTS = 4
#: Candidates predicted to take more than this many times as long as the best measured one are not measured.
_HOPELESS = 6.0
#: Share of a size's time after which no further candidate is screened.
_SCREENING = 0.6
#: Share of it after which no further round of the finalists begins.
_TURNS = 0.85
#: Upper limit of rounds, and of turns of a duel: more would show nothing new.
_MAX_ROUNDS = 40
#: Least seconds of one reading: long compared with the clock's resolution and with an interrupt.
_READING = 2e-4
#: Readings of a candidate at first, of which the shortest counts, ...
_FIRST_READINGS = 3
#: ... or fewer, if more than this many seconds have passed.
_FIRST_SECONDS = 5e-3
#: Upper limit of programs that are held at a time.
_MAX_PROGRAMS = 8
#: Upper limit of the batches that calls cycle through, so that branch predictors do not learn one by heart.
_MAX_BATCHES = 64

#: An engine and its parameters: what programs are made for.
Key: TypeAlias = tuple[str, Changed]


def typical(readings: list[float]) -> float:
    """The lower quartile: other work on the machine lengthens readings, and a single short one may be luck."""
    return float(np.quantile(readings, 0.25))


class Clock:
    """A clock with a budget of seconds."""

    def __init__(self, budget_s: float, now: Callable[[], float] = time.perf_counter) -> None:
        self.now, self._began, self.budget_s = now, now(), budget_s

    @property
    def used(self) -> float:
        return self.now() - self._began


@dataclass(frozen=True)
class Asked:
    """What to tune.

    Parameters
    ----------
    forest : Forest
    rows : array [R, n_features]
        The user's rows, on the device or on the host: batches are cut from them.
    max_threads : int
    predict : callable
        Microseconds that an engine with its defaults is predicted to take for a number of documents, or None.
    default : callable
        How a number of documents is scored without a plan.
    prepare : callable
        Makes the program of an engine with parameters.
    engines : list of str
        The engines that can run the forest.
    progress : callable
        Called with the milliseconds that have passed, and with their total.
    device : Device
        The device that scores.
    """

    forest: Forest
    rows: Any
    max_threads: int
    predict: Callable[[str, int], float | None]
    default: Callable[[int], Candidate]
    prepare: Callable[[str, Changed], Program]
    engines: list[str]
    progress: Callable[[int, int | None], object]
    device: Device = HOST


class Search:
    """The search for one model; `run` is called for each size of a batch."""

    def __init__(self, asked: Asked, clock: Clock) -> None:
        self._asked, self._clock = asked, clock
        self.programs: dict[Key, Program] = {}
        self._longest = 0.0  # seconds to make a program

    def run(self, n_documents: int, until: float) -> Tuned:
        """The best way to score batches of ``n_documents``, found before ``until`` seconds of the budget are used."""
        asked, began = self._asked, self._clock.used
        share = max(until - began, 0.0)
        batches = _Batches(asked.rows, n_documents, asked.forest.n_outputs, asked.device)
        default = asked.default(n_documents)
        if share == 0.0:
            predicted = replace(default, predicted=asked.predict(default.engine, n_documents))
            return Tuned(n_documents, 0, 0, (predicted,))
        listed = candidates(
            asked.forest, n_documents, asked.max_threads, hierarchy(), asked.predict, default, asked.engines
        )
        default = next(c for c in listed if c.way == default.way)
        times = {default.way: [self._first(default, batches)]}
        # Engines with their defaults come first: for those far behind, no parameters are tried.
        for candidate in sorted(listed, key=lambda c: c.params != ()):
            if candidate.way in times or not self._affordable(candidate, began + _SCREENING * share):
                continue
            best_yet = min(map(min, times.values()))
            if candidate.predicted is not None and candidate.predicted > _HOPELESS * best_yet * 1e6:
                continue
            as_it_is = times.get(Way(candidate.engine, (), candidate.n_threads))
            if candidate.params and as_it_is and as_it_is[0] > _WORTH_TUNING * best_yet:
                continue
            times[candidate.way] = [self._first(candidate, batches)]
        ways = {c.way: c for c in listed}
        final = self._turns([ways[way] for way in times], default, batches, times, began + _TURNS * share)
        best = min(final, key=lambda c: typical(times[c.way]))
        if best.way != default.way:
            best = self._duel(best, default, batches, times, until)
        return _tuned(n_documents, listed, times, best, default)

    def _affordable(self, candidate: Candidate, until: float) -> bool:
        """Whether the candidate's program, if it is still to be made, will be ready in time."""
        return self._clock.used + (0.0 if _key(candidate) in self.programs else self._longest) <= until

    def _first(self, candidate: Candidate, batches: _Batches) -> float:
        """Seconds of a call, after one that warms up, whose scores are compared with the default's."""
        self._report()
        program = self._program(candidate)
        batches.check(candidate, program)
        began, least = self._clock.used, float("inf")
        for _ in range(_FIRST_READINGS):
            least = min(least, self._reading(candidate, program, batches))
            if self._clock.used - began > _FIRST_SECONDS:
                break
        return least

    def _program(self, candidate: Candidate) -> Program:
        key = _key(candidate)
        program = self.programs.pop(key, None)
        if program is None:
            began = self._clock.used
            program = self._asked.prepare(*key)
            self._longest = max(self._longest, self._clock.used - began)
        self.programs[key] = program  # most recently used last
        for oldest in list(self.programs)[:-_MAX_PROGRAMS]:
            del self.programs[oldest]
        return program

    def _reading(self, candidate: Candidate, program: Program, batches: _Batches) -> float:
        """Seconds of a call, until its scores are ready."""
        score, now, calls = batches.scorer(candidate, program), self._clock.now, 0
        began = now()
        while True:
            score()
            calls += 1
            taken = now() - began
            if taken >= _READING or calls >= _MAX_BATCHES:
                return taken / calls

    def _turns(
        self,
        measured: list[Candidate],
        default: Candidate,
        batches: _Batches,
        times: dict[Way, list[float]],
        until: float,
    ) -> list[Candidate]:
        """The finalists, measured in turns, so that passing noise affects all of them equally."""
        measured.sort(key=lambda c: times[c.way][0])
        best = times[measured[0].way][0]
        final = [c for c in measured[:_FINALISTS] if times[c.way][0] <= _SCREENED * best]
        if default not in final:
            final.append(default)
        if len(final) > 1:
            programs = {_key(c): self._program(c) for c in final}
            for turn in range(_MAX_ROUNDS):
                if self._clock.used > until:
                    break
                self._report()
                for candidate in final[turn % len(final) :] + final[: turn % len(final)]:
                    times[candidate.way].append(self._reading(candidate, programs[_key(candidate)], batches))
        return final

    def _duel(
        self,
        best: Candidate,
        default: Candidate,
        batches: _Batches,
        times: dict[Way, list[float]],
        until: float,
    ) -> Candidate:
        """The best or the default, measured in turns; the default is kept unless the other is clearly faster."""
        programs, ratios = {_key(c): self._program(c) for c in (best, default)}, []
        for turn in range(_MAX_ROUNDS):
            if turn and self._clock.used > until:
                break
            self._report()
            taken = {}
            for candidate in (best, default) if turn % 2 else (default, best):
                taken[candidate.way] = self._reading(candidate, programs[_key(candidate)], batches)
                times[candidate.way].append(taken[candidate.way])
            ratios.append(taken[best.way] / max(taken[default.way], 1e-12))
        least = min(times[best.way]) / max(min(times[default.way]), 1e-12)
        return best if max(statistics.median(ratios), least) < CLEARLY else default

    def _report(self) -> None:
        total = int(self._clock.budget_s * 1000)
        self._asked.progress(min(int(self._clock.used * 1000), total), total)


class _Batches:
    """Batches of one size, cut from the rows, and the scores that all ways must give. Sums lie where the rows do."""

    def __init__(self, rows: Any, n_documents: int, n_outputs: int, device: Device) -> None:
        self._device, self._where = device, device if device.holds(rows) else HOST
        last = len(rows) - n_documents
        step = max(last // (_MAX_BATCHES - 1), 1)
        self._batches = [rows[at : at + n_documents] for at in range(0, last + 1, step)][:_MAX_BATCHES]
        self._shape = n_documents, n_outputs
        self._sums: Any = None
        self._want: bytes | None = None
        self._next = 0

    def scorer(self, candidate: Candidate, program: Program) -> Callable[[], None]:
        """A function that scores the next batch, and waits for the scores."""
        run, synchronize = self._device.run, self._device.synchronize
        fill, sums = self._fill(candidate, program), self._memory(program)

        def score() -> None:
            batch = self._batches[self._next % len(self._batches)]
            self._next += 1
            run(fill, batch, sums)
            synchronize()

        return score

    def check(self, candidate: Candidate, program: Program) -> None:
        """Compare a candidate's scores with those of the first that was measured, the default."""
        sums = self._memory(program)
        sums[...] = 0
        self._device.run(self._fill(candidate, program), self._batches[0], sums)
        got = self._where.to_host(sums).tobytes()
        if self._want is None:
            self._want = got
        elif got != self._want:
            raise GpuqsError(
                f"{candidate.label} gives other scores than the default; nothing was tuned; please report it, "
                "unless X was written to during tuning"
            )

    def _fill(self, candidate: Candidate, program: Program) -> Callable[[Any, Any], None]:
        return partial(ENGINES[candidate.engine].score, program, n_threads=candidate.n_threads)

    def _memory(self, program: Program) -> Any:
        if self._sums is None:
            self._sums = self._where.empty(self._shape, program.values.sum_dtype)
        return self._sums


def _key(candidate: Candidate) -> Key:
    return candidate.engine, candidate.params


def _tuned(
    n_documents: int, listed: list[Candidate], times: dict[Way, list[float]], best: Candidate, default: Candidate
) -> Tuned:
    """The candidates with their costs: the chosen one first, then by time; those not measured last."""

    def rank(candidate: Candidate) -> tuple[bool, bool, float]:
        way = candidate.way
        return way != best.way, way not in times, typical(times[way]) if way in times else 0.0

    ordered = sorted(listed, key=rank)
    measured = tuple(
        replace(c, measured=typical(times[c.way]) * 1e6) if c.way in times else c for c in ordered
    )
    return Tuned(n_documents, 0, next(i for i, c in enumerate(measured) if c.way == default.way), measured)


def search(asked: Asked, sizes: list[int], clock: Clock) -> tuple[tuple[Tuned, ...], dict[Key, Program]]:
    """What is best for batches of each size, within the clock's budget; and the programs that were chosen.

    Time that a size leaves over goes to those after it. When the budget is used up, sizes get the default, unmeasured.
    """
    search, found = Search(asked, clock), []
    for done, n_documents in enumerate(sizes):
        left = max(clock.budget_s - clock.used, 0.0)
        found.append(search.run(n_documents, clock.used + left / (len(sizes) - done)))
    chosen = {_key(tuned.best) for tuned in found}
    total = int(clock.budget_s * 1000)
    asked.progress(total, total)
    return tuple(found), {key: program for key, program in search.programs.items() if key in chosen}
