"""Which engine scores a number of documents, and why: what `Model.explain` gives."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Choice:
    """One engine's row in an `Explanation`."""

    engine: str
    summary: str
    microseconds: float | None
    reason: str | None


@dataclass(frozen=True)
class Explanation:
    """Which engine scores so many documents, and what the others were predicted to cost.

    Printing it gives a table. ``choices`` has one row per engine; ``reason`` is set where an engine
    cannot run the model, and ``microseconds`` where it can and its cost was measured. ``isa`` is the instruction
    set, or the device, that runs the engine.
    """

    engine: str
    n_documents: int
    isa: str
    choices: tuple[Choice, ...]

    def __str__(self) -> str:
        lines = [f"{self.n_documents:,} documents: {self.engine} ({self.isa}, predicted for one thread)"]
        for choice in self.choices:
            mark = "->" if choice.engine == self.engine else "  "
            if choice.reason is not None:
                cost = f"cannot: {choice.reason}"
            elif choice.microseconds is None:
                cost = f"{'not measured':>26}   {choice.summary}"
            else:
                each = choice.microseconds / max(self.n_documents, 1)
                cost = f"{each:12,.3f} us a document   {choice.summary}"
            lines.append(f"{mark} {choice.engine:<10} {cost}")
        return "\n".join(lines)

    __repr__ = __str__
