"""How often a kernel's instructions run, by the loops and forward branches of its machine code.

A loop is the code from the target of a backward branch to the branch; loops that overlap count as one. Code after the
last unconditional EXIT, or from the target of a divergent vote (BRA.DIV) on, is out of line and ignored. A forward
branch skips a *region*. Everything else is assumed to run whenever the code around it runs: an upper bound.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gpuqs.forks import lazy

INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)(.*)")
Span = tuple[int, int]


def read_listings(listing: str) -> dict[str, list[str]]:
    """What nvdisasm prints, by kernel: ``.L_x_1:`` for a label, ``BRA .L_x_1`` for a branch, ``@P0 BRA .L_x_1`` for a
    conditional one (and ``@P EXIT``), else the opcode with its modifiers."""
    kernels: dict[str, list[str]] = {}
    code: list[str] = []
    for line in listing.splitlines():
        if section := re.match(r"\.text\.(\S+):", line):
            code = kernels.setdefault(section[1], [])
        elif label := re.match(r"(\.L_x_\d+:)", line):
            code.append(label[1])
        elif found := INSTRUCTION.search(line):
            target = re.search(r"\((\.L_x_\d+)\)", found[3]) if found[2].startswith("BRA") else None
            uniform = re.match(r"\s+!?UP\d", found[3])  # `BRA.U UP0, ...`, as for sm_100 and sm_120
            conditional = bool(found[1] or uniform) and found[2].startswith(("BRA", "EXIT"))
            code.append(f"{'@P ' * conditional}{found[2]}{f' {target[1]}' if target else ''}")
    return kernels


def words_of(entry: str) -> tuple[bool, str, str | None]:
    """Split an entry of `read_listings` that is no label: whether it is conditional, its opcode, its branch target."""
    conditional = entry.startswith("@P ")
    opcode, *target = entry.removeprefix("@P ").split()
    return conditional, opcode, target[0] if target else None


@dataclass(frozen=True)
class Skip:
    """Regions that run only in some of the trips around them.

    Parameters
    ----------
    has, without : str
        Beginnings of opcodes that the region has, and that it does not have.
    share : float
        Share of the trips that run it.
    loops : bool
        Whether the region has loops.
    """

    has: str
    without: str
    share: float
    loops: bool = False


class Code:
    """A kernel's instructions, loops and forward branches; ``entries`` as `read_listings` gives them."""

    def __init__(self, entries: Sequence[str]) -> None:
        labels: dict[str, int] = {}
        self.opcodes: list[str] = []
        self._branches: list[tuple[int, str, bool]] = []
        last_exit = None
        for entry in entries:
            if entry.endswith(":"):
                labels[entry[:-1]] = len(self.opcodes)
                continue
            conditional, opcode, target = words_of(entry)
            if target is not None:
                self._branches.append((len(self.opcodes), target, conditional))
            elif opcode == "EXIT" and not conditional:
                last_exit = len(self.opcodes)
            self.opcodes.append(opcode)
        self._labels = labels
        diverging = [labels[target] for at, target, _ in self._branches if self.opcodes[at].startswith("BRA.DIV")]
        self._end = min([*diverging, len(self.opcodes) if last_exit is None else last_exit])

    @lazy
    def _jumps(self) -> list[tuple[int, int, bool]]:
        """Branches of the code in line: source, target, whether conditional."""
        jumps = ((at, self._labels[target], conditional) for at, target, conditional in self._branches)
        return [jump for jump in jumps if max(jump[:2]) <= self._end and jump[0] != jump[1]]

    @lazy
    def loops(self) -> list[Span]:
        """First instruction and the one after the last; outer loops before those nested in them."""
        found = sorted({(to, at + 1) for at, to, _ in self._jumps if to <= at})
        merged: list[Span] = []
        for begin, end in found:
            for i, (b, e) in enumerate(merged):
                if b == begin or b < begin < e < end:
                    merged[i] = (b, max(e, end))
                    break
            else:
                merged.append((begin, end))
        return sorted(merged, key=lambda loop: (loop[0], -loop[1]))

    def has(self, span: Span, opcode: str) -> bool:
        return self.count(span, opcode) > 0

    def count(self, span: Span, opcode: str) -> int:
        """Number of instructions in a span whose opcode begins with ``opcode``."""
        return sum(of.startswith(opcode) for of in self.opcodes[slice(*span)])

    def outermost(self, *opcodes: str) -> Span:
        """The only outermost loop that has all of these opcodes."""
        found = [
            loop
            for loop in self.loops
            if all(self.has(loop, opcode) for opcode in opcodes) and not any(inside(loop, o) for o in self.loops)
        ]
        if len(found) != 1:
            raise ValueError(f"{len(found)} loops have {', '.join(opcodes)}, not one")
        return found[0]

    def runs(self, main: Span, trips: dict[str, float], skips: Sequence[Skip] = ()) -> list[tuple[str, float]]:
        """Opcode of each instruction of the loop ``main``, and how often it runs per trip.

        Parameters
        ----------
        main : tuple of int
            One of `loops`.
        trips : dict
            Trips of an inner loop per trip of the loop around it, by an opcode that it has; the first match counts.
        skips : sequence of Skip

        Raises
        ------
        ValueError
            An inner loop has none of the opcodes.
        """
        weights = [1.0] * (main[1] - main[0])

        def weigh(span: Span, factor: float) -> None:
            for i in range(*span):
                weights[i - main[0]] *= factor

        within = [loop for loop in self.loops if inside(loop, main)]
        for loop in within:
            fitting = [n for opcode, n in trips.items() if self.has(loop, opcode)]
            if not fitting:
                raise ValueError(f"a loop is not known: {' '.join(self.opcodes[slice(*loop)])}")
            weigh(loop, fitting[0])
        regions = sorted(
            (at + 1, to) for at, to, conditional in self._jumps if conditional and main[0] <= at < to <= main[1]
        )
        for skip in skips:
            behind = 0  # regions that begin in one already weighed are parts of it
            for region in regions:
                fits = any(inside(loop, region) for loop in self.loops) == skip.loops
                if region[0] >= behind and fits and self.has(region, skip.has) and not self.has(region, skip.without):
                    weigh(region, skip.share)
                    behind = region[1]
        return list(zip(self.opcodes[slice(*main)], weights, strict=True))


def inside(span: Span, other: Span) -> bool:
    """Whether a span is a proper part of another one."""
    return other[0] <= span[0] and span[1] <= other[1] and span != other
