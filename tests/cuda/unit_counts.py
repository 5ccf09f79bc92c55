"""Instructions that the bit-sliced kernels run per unit of work, by their machine code, and the budget for them.

    python unit_counts.py           # print the table; `make gate` does
    python unit_counts.py accept    # make what is counted now the budget

Only the loop that does a kernel's work is counted, with its inner loops, weighted by the layout of a trained model
(`budget.json`, written by `bench/gpu_budget.py models`). Shared memory is what a thread block is launched with for that
model.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import nvrtc_build
from machine_code import Code, Skip
from nvrtc_build import ARCHITECTURES

from gpuqs.devices import nvrtc
from gpuqs.engines.gpu.kernels import summed

BUDGET = Path(__file__).with_name("budget.json")
SIZE = "1,000 x 64"
#: A budget is the count times this, because another version of NVRTC may schedule otherwise.
MARGIN = 1.01
#: Upper limits that are wanted per unit, whatever a kernel takes now.
TARGETS = {"rank_documents<float, float, true>": 12, "steps<2>": 10}
TARGETS |= {f"sum_fast<{w}>": 160 for w in (1, 2)}
TARGETS |= {f"sum_exact<double, double, true, {w}, {d}>": 240 for w in (1, 2) for d in summed("float64", small=True)}
Model = dict[str, float]


@dataclass(frozen=True)
class Work:
    """Where a kernel's work is in its machine code.

    Parameters
    ----------
    unit : str
        Unit of work; for 1,024 documents unless it says otherwise.
    main : tuple of str
        Opcodes of the loop that does the work.
    units : float
        Units that a warp does in a trip of that loop.
    trips, skips
        As `machine_code.Code.runs` has them.
    mark : tuple of str and float
        An opcode, and how many of them a unit is known to run: wrong weights show up here.
    """

    unit: str
    main: tuple[str, ...]
    units: float
    trips: dict[str, float] = field(default_factory=dict)
    skips: tuple[Skip, ...] = ()
    mark: tuple[str, float] = ("", 0)


def works(model: Model) -> dict[str, tuple[str, Work]]:
    """File and work of each kernel in the budget, by name."""
    nodes, planes, length = model["nodes a tree"], model["planes a tree"], model["nodes of a program"]
    bits, rank_planes = model["rank bits a column"], model["rank planes a column"]
    groups, pushes, special = model["groups a tree"], model["pushes a step"], model["steps with flags"]
    rows, pages = model["rows a segment"], model["pages a tree"]
    found = {
        "rank_documents<float, float, true>": (
            "rank_documents.cu",
            # A trip is a batch of four words of documents, and eight levels, some of which the model's columns have.
            # No column has more levels, or is categorical.
            Work("column step of 32 documents", ("VOTE",), 4 * bits, {"F2I": 0.0, "LD.E": 0.0},
                 (Skip("F2I", "VOTE", 0.0, loops=True), Skip("LD.E", "F2I", 0.0, loops=True),
                  Skip("LDS", "LD.E", bits / 8), Skip("VOTE", "LDS", rank_planes - bits)),
                 ("VOTE", rank_planes / bits)),
        ),
    }  # fmt: skip
    for w in (1, 2):
        found[f"decode_predicates<{w}>"] = (
            "decode_predicates.cu",
            Work("row", ("STG",), rows * w, {"LDG": model["high bits a segment"]}, (Skip("STG", "BAR", rows / 16),),
                 ("STG", 1 / w)),
        )  # fmt: skip
        found[f"steps<{w}>"] = (
            "steps.cu",
            # A trip is a group of eight steps; the model has no oblivious trees. Three planes are in registers.
            # A tree ends with a page: if it has several, what it takes once is counted for each page.
            Work("node", ("VOTE",), nodes / groups * w, {"STG": planes - 3, "LDG": pushes / special},
                 (Skip("STS", "LDS", 0.0), Skip("STG", "VOTE", pages / groups, loops=True),
                  Skip("LDG", "STG", special, loops=True)), ("VOTE", 2 * groups / nodes / w)),
        )  # fmt: skip
        found[f"sum_fast<{w}>"] = ("sum_fast.cu", Work("tree", ("LDG", "LDS"), 2, mark=("LDS", 32)))
        # A trip is 32 trees of 128 documents, in which four warps run each role's code.
        found[f"sum_few<double, double, {w}>"] = (
            "sum_few.cu",
            Work("tree", ("DADD", "LDG"), 1, mark=("DADD", 32)),
        )
        for d in summed("float64", small=True):
            found[f"sum_exact<double, double, true, {w}, {d}>"] = (
                "sum_exact.cu",
                # A trip is 32 trees of 256 documents, or 8 of 1,024; each of the eight warps does an eighth.
                Work("tree", ("DADD", "LDG"), 1, mark=("DADD", 32)),
            )
        found[f"slots<{w}>"] = (
            "slots.cu",
            Work("node", ("STG", "LDS"), nodes * w, {"LDG": length / 8, "ST": planes},
                 mark=("STS", (2 * length + planes) / nodes / w)),
        )  # fmt: skip
    return dict(sorted(found.items()))


@dataclass(frozen=True)
class UnitCount:
    """What a kernel takes on one architecture.

    Parameters
    ----------
    instructions : float
        Of a warp, per unit.
    shared : dict
        Those that use shared memory, by opcode.
    mark : float
        The mark's count divided by its known number.
    registers, spills : int
        Registers of a thread; spills of the kernel.
    """

    instructions: float
    shared: dict[str, float]
    mark: float
    registers: int
    spills: int


def count(code: Code, work: Work) -> tuple[float, dict[str, float], float]:
    """Instructions per unit, those that use shared memory by opcode, and the mark's count over its known number."""
    runs = code.runs(code.outermost(*work.main), work.trips, work.skips)
    shared: dict[str, float] = {}
    for opcode, n in runs:
        if opcode.startswith(("LDS", "STS")):
            shared[opcode] = shared.get(opcode, 0.0) + n / work.units
    mark, known = work.mark
    seen = sum(n for opcode, n in runs if opcode.startswith(mark)) / work.units
    return sum(n for _, n in runs) / work.units, shared, seen / known


def kept() -> dict[str, dict]:
    """`models`, `shared memory` of thread blocks, and the `budget` by kernel and architecture."""
    return json.loads(BUDGET.read_text())


@cache
def counted(kernel: str, architecture: int) -> UnitCount:
    file, work = works(kept()["models"][SIZE])[kernel]
    facts = nvrtc_build.facts_of(file, architecture, (kernel,))[kernel]
    return UnitCount(*count(Code(facts.code), work), facts.registers, facts.count("LDL", "STL"))


def over_budget(kernel: str, architecture: int) -> str | None:
    """Describe what a kernel takes beyond its budget; None if it is within it."""
    seen, limit = counted(kernel, architecture), kept()["budget"][kernel][str(architecture)]
    if seen.instructions <= limit and not seen.spills:
        return None
    return (
        f"{kernel} on sm_{architecture}: {seen.instructions:.2f} instructions a unit, {limit:.1f} are in the budget, "
        f"and {seen.spills} spills"
    )


def table() -> str:
    """The counts of every kernel and architecture, in Markdown; bold where they are above the target."""
    known = kept()
    heads = ["kernel", "unit", "target", *(f"sm_{a}" for a in ARCHITECTURES), "shared memory", "spills"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for kernel, (_, work) in works(known["models"][SIZE]).items():
        seen = [counted(kernel, architecture) for architecture in ARCHITECTURES]
        most = TARGETS.get(kernel)
        cells = [f"`{kernel}`", work.unit, "-" if most is None else str(most)]
        for c in seen:
            missed = "**" * (most is not None and c.instructions > most)
            cells.append(f"{missed}{c.instructions:.1f}{missed} ({c.registers})")
        cells += [f"{known['shared memory'][kernel]:,}", str(sum(c.spills for c in seen))]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def accept() -> None:
    known = kept()
    known["budget"] = {
        kernel: {str(a): math.ceil(counted(kernel, a).instructions * MARGIN * 10) / 10 for a in ARCHITECTURES}
        for kernel in works(known["models"][SIZE])
    }
    known["nvrtc"] = list(nvrtc.version())
    BUDGET.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["accept"]:
        accept()
    print(f"SASS instructions of a warp a unit of work, registers of a thread in parentheses:\n\n{table()}")
