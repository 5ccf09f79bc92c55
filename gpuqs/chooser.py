"""Which engine scores a number of documents: the choice of ``engine="auto"``, by predicted costs or a model's plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

from gpuqs import cpu_fallback
from gpuqs.cpu_fallback import Machine
from gpuqs.devices import HOST, Device, find_device
from gpuqs.engines import ENGINES, engines_on
from gpuqs.engines.base import CALL
from gpuqs.errors import DeviceError, UnsupportedModelError
from gpuqs.explanation import Choice, Explanation
from gpuqs.forest import Forest
from gpuqs.kept import keep_some
from gpuqs.threads import MIN_SHARE, TERMS, threads_of_call, threads_worth
from gpuqs.tuning.calibration import factor  # not lazy: a child forked during an import waits for it forever
from gpuqs.tuning.machine import cache_sizes, target
from gpuqs.tuning.nearby import best_near
from gpuqs.tuning.plan import NEAR, Candidate, Plan, Tuned, Way, unusable

#: By kind of device: beyond this many documents the ranking of engines no longer changes, so larger calls are costed at
#: this size.
MAX_ASKED = {"cpu": 1 << 12, "cuda": 1 << 20}

#: Upper limit of kept choices of each kind.
MAX_KEPT = 1 << 13


class Chooser:
    """Chooses engines for one forest by their costs, and remembers its choices.

    Parameters
    ----------
    forest : Forest
    reasons : mapping
        For every engine's name, None if it can run the forest, else the reason why not.
    plan : Plan, optional
        The result of tuning, on the host or on a GPU.
    """

    def __init__(self, forest: Forest, reasons: Mapping[str, str | None], plan: Plan | None = None) -> None:
        self._forest, self._reasons, self.plan = forest, reasons, plan
        self._chosen: dict[tuple[Any, ...], Way] = {}
        self._planned: dict[tuple[Any, ...], Way] = {}
        self._worth: dict[tuple[Any, ...], int] = {}
        self._unused: dict[tuple[Any, ...], str | None] = {}  # why the plan is not used on a device

    def reasons_on(self, device: Device) -> dict[str, str | None]:
        """For every engine's name, None if it can run the forest for a model on the device, else the reason why not."""
        return {name: self._why_not(name, device) for name in ENGINES}

    def _why_not(self, name: str, device: Device) -> str | None:
        reason, runs_on = self._reasons[name], ENGINES[name].device
        if reason is not None or runs_on == device.kind:
            return reason
        if device is not HOST:
            return f"runs on the CPU; this model is on {device!r}"
        try:
            find_device(runs_on)
        except DeviceError as error:
            return f"runs on a GPU: {error}"
        return None

    def usable_engines(self, device: Device) -> list[str]:
        """The engines that run the forest on a device.

        Raises
        ------
        UnsupportedModelError
            There is none.
        """
        reasons = {name: self._reasons[name] for name in engines_on(device.kind)}
        able = [name for name, reason in reasons.items() if reason is None]
        if not able:
            raise UnsupportedModelError(
                f"this {self._forest.source} model does not run on a GPU: {'; '.join(map(str, reasons.values()))}; "
                "use device='cpu'"
            )
        return able

    def way(self, n_documents: int, device: Device, machine: Machine) -> Way:
        """How to score: by the plan, if there is one for this device, else by predicted costs."""
        if self.plan is None:
            return self.usual(n_documents, device, machine)
        key = (n_documents, device.key, machine, cpu_fallback.costs_age())
        way = self._planned.get(key)
        if way is None:
            way = self._by(self.plan, n_documents, device, machine)
            way = way or self.usual(n_documents, device, machine)
            keep_some(self._planned, key, way, MAX_KEPT)
        return way

    def _by(self, plan: Plan, n_documents: int, device: Device, machine: Machine) -> Way | None:
        """How to score ``n_documents`` by a batch size that was tuned; None: choose as without a plan."""
        tuned = self._tuned(plan, n_documents, device, machine)
        if tuned is None or tuned.best.measured is None:
            return None
        if n_documents == tuned.n_documents or min(n_documents, tuned.n_documents) >= plan.many:
            near = n_documents <= NEAR * tuned.n_documents  # larger calls may be worth more threads
            return replace(tuned.best.way, n_threads=tuned.best.n_threads if near else None, planned=True)

        def growth(candidate: Candidate) -> float | None:
            threads = candidate.n_threads
            if threads > cpu_fallback.default_threads() or unusable(candidate, self._reasons, device.kind) is not None:
                return None
            sizes = n_documents, tuned.n_documents
            here, there = (self.warm_cost(candidate.engine, -(-n // threads), machine) for n in sizes)
            if here is None or there is None or (here - there) * (n_documents - tuned.n_documents) < 0:
                return None  # more documents, less time: the engine changes its method, maybe at another size
            return here / there

        usual = self.usual(n_documents, device, machine)
        threads = threads_of_call(self.threads(usual, n_documents, machine))
        best = best_near(tuned, n_documents, growth, usual, threads)
        return None if best is None else replace(best.way, planned=True)

    def _tuned(self, plan: Plan, n_documents: int, device: Device, machine: Machine) -> Tuned | None:
        return None if self._why_unused(plan, device, machine) is not None else plan.for_batch(n_documents)

    def _why_unused(self, plan: Plan, device: Device, machine: Machine) -> str | None:
        key = device.key, machine
        if key not in self._unused:
            self._unused[key] = plan.why_not(target(device, machine), self._reasons)
        return self._unused[key]

    def cost(self, name: str, n_documents: int, machine: Machine) -> float | None:
        """Microseconds that an engine is predicted to take; on the CPU, with one thread.

        The mean of warm and cold caches: most calls with few documents come between other work, and with many documents
        cold caches cost a small part of the time.
        """
        warm = self.warm_cost(name, n_documents, machine)
        if warm is None or ENGINES[name].device != HOST.kind:
            return warm
        return warm + ENGINES[name].cold(self._forest, n_documents, machine) / 2

    def warm_cost(self, name: str, n_documents: int, machine: Machine) -> float | None:
        """`cost` with warm caches, as `Model.tune` measures."""
        cost = ENGINES[name].cost(self._forest, n_documents, machine)
        if cost is None or ENGINES[name].device != HOST.kind:
            return cost
        return CALL + (cost - CALL) * factor(name, machine)

    def threads(self, way: Way, n_documents: int, machine: Machine, more: float = 0.0) -> int:
        """Threads that scoring ``n_documents`` this way is worth: by the plan, else by predicted costs; 1 on a GPU.

        ``more``: microseconds per document of work other than scoring.
        """
        if way.n_threads is not None:
            return way.n_threads
        if ENGINES[way.engine].device != HOST.kind:
            return 1
        if self._forest.has_linear_leaves:
            more += TERMS * self._forest.n_trees
        key = (way.engine, n_documents, machine, more, cpu_fallback.costs_age())
        worth = self._worth.get(key)
        if worth is None:
            worth = threads_worth(partial(self._share, way.engine, n_documents, machine, more))
            keep_some(self._worth, key, worth, MAX_KEPT)
        return worth

    def _share(self, name: str, n_documents: int, machine: Machine, more: float, n_threads: int) -> float:
        """Predicted microseconds of each of ``n_threads`` threads, which divide either the documents or the trees."""
        of_thread, shares = -(-n_documents // n_threads), []
        if n_threads == 1 or of_thread >= MIN_SHARE:
            shares.append(self.warm_cost(name, of_thread, machine) or 0.0)
        if 1 < n_threads <= ENGINES[name].tree_shares(self._forest, n_documents):
            shares.append((self.warm_cost(name, n_documents, machine) or 0.0) / n_threads)
        return min(shares, default=inf) + of_thread * more

    def usual(self, n_documents: int, device: Device, machine: Machine) -> Way:
        """How to score without a plan: by the engine that is predicted to be fastest."""
        n_documents = min(n_documents, MAX_ASKED[device.kind])
        key = (n_documents, device.kind, machine, cpu_fallback.costs_age())
        way = self._chosen.get(key)
        if way is None:
            costs = {name: self.cost(name, n_documents, machine) for name in self.usable_engines(device)}
            name = min(costs, key=lambda name: (costs[name] is None, costs[name]))
            way = self.way_of(name, n_documents, machine)
            keep_some(self._chosen, key, way, MAX_KEPT)
        return way

    def way_of(self, name: str, n_documents: int, machine: Machine) -> Way:
        """How an engine scores without a plan; `Programs.get` refuses names of no engine."""
        engine = ENGINES.get(name)
        return Way(name, engine.usual(self._forest, n_documents, machine, cache_sizes) if engine else ())

    def explain(self, n_documents: int, device: Device, machine: Machine) -> Explanation:
        """Say which engine would score ``n_documents`` for a model on the device, and why."""
        choices = tuple(
            Choice(
                name,
                ENGINES[name].summary,
                self.cost(name, n_documents, machine) if reason is None else None,
                reason,
            )
            for name, reason in self.reasons_on(device).items()
        )
        where = machine.isa if device is HOST else repr(device)
        tuned = note = None
        if self.plan is not None:
            tuned = self._tuned(self.plan, n_documents, device, machine)
        if self.plan is not None and tuned is None:
            sizes = ", ".join(f"{size.n_documents:,}" for size in self.plan.sizes)
            note = self._why_unused(self.plan, device, machine) or f"it was tuned for {sizes} documents a call"
        way = self.way(n_documents, device, machine)
        threads = threads_of_call(self.threads(way, n_documents, machine))
        planned = Candidate(way.engine, way.params, threads).label if way.planned else None
        return Explanation(way.engine, n_documents, where, choices, tuned, note, planned, threads)
