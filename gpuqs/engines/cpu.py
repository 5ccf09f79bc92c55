"""What the compiled CPU engines share: a bound scorer, its values, the calls into it, the cost of category sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuqs import cpu_fallback
from gpuqs.engines.base import Engine, Program
from gpuqs.forest import CATEGORICAL, Forest
from gpuqs.layout.leaves import LeafValues

#: Nanoseconds per category set and document, where sets are laid out by column.
CATEGORY_SET = 5.0


@dataclass(frozen=True)
class CpuProgram(Program):
    """A forest bound to C++: `scorer` finds exit leaves, `bound` holds their values."""

    scorer: Any
    bound: cpu_fallback.Values


class CpuEngine(Engine):
    """An engine whose program is a `CpuProgram`."""

    def score(self, program: Program, documents: Any, sums: Any, n_threads: int = 1, started: bool = False) -> None:
        assert isinstance(program, CpuProgram)
        program.scorer.score(program.bound, documents, sums, n_threads, started)

    def leaves(self, program: Program, documents: Any, out: Any, n_threads: int = 1) -> None:
        assert isinstance(program, CpuProgram)
        program.scorer.leaves(program.bound, documents, out, n_threads)


def bind(values: LeafValues, scorer: object) -> CpuProgram:
    """The program of a bound scorer."""
    return CpuProgram(values, scorer, cpu_fallback.Values(values))


def kilonodes(forest: Forest) -> float:
    """Thousands of nodes, so that nanoseconds a node become microseconds; one node at least."""
    return max(forest.n_nodes, 1) * 1e-3


def category_cost(forest: Forest, n_documents: int, each: float = CATEGORY_SET) -> float:
    """Microseconds that category sets take, at ``each`` nanoseconds per set and document."""
    return n_documents * int(np.count_nonzero(forest.routing & CATEGORICAL)) * 1e-3 * each
