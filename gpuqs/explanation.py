"""The answer of `Model.explain`: which engine scores a number of documents, and what each is predicted to cost."""

from __future__ import annotations

from dataclasses import dataclass

from gpuqs.devices import HOST
from gpuqs.engines import ENGINES
from gpuqs.tuning.plan import Tuned, table


@dataclass(frozen=True)
class Choice:
    """One engine's row in an `Explanation`.

    Attributes
    ----------
    engine : str
    summary : str
        What the engine does, in a line.
    microseconds : float or None
        Predicted time of a call. None where the engine cannot run the model, or is never chosen unless it is asked for.
    reason : str or None
        Why the engine cannot run the model; None where it can.
    """

    engine: str
    summary: str
    microseconds: float | None
    reason: str | None


@dataclass(frozen=True)
class Explanation:
    """Which engine scores a number of documents, and what each engine is predicted to cost. Print it for a table.

    Attributes
    ----------
    engine : str
        The engine that scores them.
    n_documents : int
    where : str
        The instruction set, or the device, that the engine runs on.
    choices : tuple of Choice
        One for each engine.
    tuned : Tuned or None
        The part of the model's plan that is used for this number of documents, with the predicted and the measured
        costs of its candidates; None where the plan is not used, or there is none.
    note : str or None
        Why the model's plan is not used, where it has one.
    planned : str or None
        The engine with its parameters and threads, where the plan chose them.
    n_threads : int
        Threads of a call that does not ask for a number; 1 on a GPU.
    """

    engine: str
    n_documents: int
    where: str
    choices: tuple[Choice, ...]
    tuned: Tuned | None = None
    note: str | None = None
    planned: str | None = None
    n_threads: int = 1

    def __str__(self) -> str:
        how = "predicted" if ENGINES[self.engine].device != HOST.kind else "predicted for one thread"
        if self.n_threads > 1:
            how = f"{self.n_threads} threads, predicted for one"
        if self.planned is not None:
            how = f"by its plan: {self.planned}"
        lines = [f"{self.n_documents:,} documents: {self.engine} ({self.where}, {how})"]
        for choice in self.choices:
            mark = "->" if choice.engine == self.engine else "  "
            if choice.reason is not None:
                cost = f"cannot: {choice.reason}"
            elif choice.microseconds is None:
                cost = f"{'where it is asked for':>26}   {choice.summary}"
            else:
                each = choice.microseconds / max(self.n_documents, 1)
                cost = f"{each:12,.3f} us a document   {choice.summary}"
            lines.append(f"{mark} {choice.engine:<12} {cost}")
        if self.tuned is not None:
            lines.append(table(self.tuned))
        if self.note is not None:
            lines.append(f"The model has a plan that is kept, but not used: {self.note}")
        return "\n".join(lines)

    __repr__ = __str__
