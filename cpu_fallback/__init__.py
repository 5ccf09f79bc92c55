"""The compiled CPU kernels, which instruction sets they can use here, and how many threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from gpuqs.cpu_fallback.arrow import ArrowTable
from gpuqs.cpu_fallback.few import FewDocuments, costs_age, costs_changed, few_first
from gpuqs.cpu_fallback.links import Link
from gpuqs.cpu_fallback.processors import default_threads, effective_threads
from gpuqs.cpu_fallback.scorer import (
    INSTRUCTION_SETS,
    QUICKSCORER,
    Bitslice,
    Coded,
    InstructionSet,
    QuickScorer,
    RankWalk,
    Values,
    Walk,
    available_isas,
    compiles,
    forced_isa,
    latency,
    table_part,
)
from gpuqs.errors import DeviceError

__all__ = [
    "INSTRUCTION_SETS",
    "QUICKSCORER",
    "ArrowTable",
    "Bitslice",
    "Coded",
    "FewDocuments",
    "InstructionSet",
    "Link",
    "QuickScorer",
    "RankWalk",
    "Values",
    "Walk",
    "available_isas",
    "compiles_programs",
    "costs_age",
    "costs_changed",
    "default_threads",
    "effective_threads",
    "few_first",
    "instruction_set",
    "isa",
    "latency",
    "made_for",
    "table_part",
]


class _Making(threading.local):
    """What this thread makes a program for: the instruction set, and whether with machine code; None: it makes none."""

    machine: tuple[str, bool] | None = None


_making = _Making()


@contextmanager
def made_for(machine: tuple[str, bool]) -> Iterator[None]:
    """Have `isa` and `compiles_programs` tell this machine, whatever the environment says while a program is made."""
    before, _making.machine = _making.machine, machine
    try:
        yield
    finally:
        _making.machine = before


def isa() -> str:
    """The instruction set in use: the best of this processor's, or what ``GPUQS_ISA`` names."""
    return _choose(forced_isa()) if _making.machine is None else _making.machine[0]


@cache
def _choose(forced: str | None) -> str:
    here = available_isas()
    if not forced:
        return here[0]
    if forced not in here:
        raise DeviceError(f"GPUQS_ISA={forced} is not one that this processor has: {', '.join(here)}")
    return forced


def instruction_set() -> InstructionSet:
    """The instruction set in use, with all that is known of it."""
    name = isa()
    return next(known for known in INSTRUCTION_SETS if known.name == name and known.is_here)


def compiles_programs(on: str | None = None) -> bool:
    """Whether tree programs become machine code: not without an encoder for that instruction set (the one in use),
    nor where processes may not write code.

    ``GPUQS_MACHINE_CODE=0`` forbids it.
    """
    return compiles(on or isa()) if _making.machine is None else _making.machine[1]
