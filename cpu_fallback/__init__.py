"""The compiled CPU kernels, which instruction sets they can use here, and how many threads."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from gpuqs.cpu_fallback.arrow import ArrowTable
from gpuqs.cpu_fallback.float_modes import in_default_float_mode
from gpuqs.cpu_fallback.links import Link
from gpuqs.cpu_fallback.plain_calls import (
    NAMES_OF_THREADS,
    PlainCalls,
    PlainFirst,
    TreeRange,
    costs_age,
    costs_changed,
    plain_first,
)
from gpuqs.cpu_fallback.processors import default_threads, effective_threads
from gpuqs.cpu_fallback.scorer import (
    INSTRUCTION_SETS,
    QUICKSCORER,
    Bitslice,
    Coded,
    ForestWalk,
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
    "NAMES_OF_THREADS",
    "QUICKSCORER",
    "ArrowTable",
    "Bitslice",
    "Coded",
    "ForestWalk",
    "InstructionSet",
    "Link",
    "Machine",
    "PlainCalls",
    "PlainFirst",
    "QuickScorer",
    "RankWalk",
    "TreeRange",
    "Values",
    "Walk",
    "available_isas",
    "compiles_programs",
    "costs_age",
    "costs_changed",
    "default_threads",
    "effective_threads",
    "in_default_float_mode",
    "instruction_set",
    "isa",
    "latency",
    "machine",
    "plain_first",
    "table_part",
]


def isa() -> str:
    """The instruction set in use: the best of this processor's, or what ``GPUQS_ISA`` names."""
    return _choose(forced_isa())


@cache
def _choose(forced: str | None) -> str:
    here = available_isas()
    if not forced:
        return here[0]
    if forced not in here:
        raise DeviceError(f"GPUQS_ISA={forced} is not one that this processor has: {', '.join(here)}")
    return forced


def instruction_set(name: str | None = None) -> InstructionSet:
    """An instruction set of this processor, with its properties: the one in use unless another is named."""
    name = name or isa()
    return next(known for known in INSTRUCTION_SETS if known.name == name and known.is_here)


def compiles_programs(on: str | None = None) -> bool:
    """Whether tree programs become machine code for an instruction set, the one in use unless another is named.

    They do if there is an encoder for it, and processes may write code; ``GPUQS_MACHINE_CODE=0`` forbids it.
    """
    return compiles(on or isa())


class Machine(NamedTuple):
    """What programs are made for: an instruction set, and whether generated machine code can run here."""

    isa: str
    compiles: bool


def machine() -> Machine:
    """The machine with the instruction set in use."""
    name = isa()  # read once: another thread may change the environment
    return Machine(name, compiles_programs(name))
