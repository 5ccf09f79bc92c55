"""What the compiled CPU engines share: a bound scorer, its values, and the calls into it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuqs import cpu_fallback
from gpuqs.engines.base import Engine, Program
from gpuqs.layout.leaves import LeafValues


@dataclass(frozen=True)
class CpuProgram(Program):
    """A forest bound to C++: `scorer` finds exit leaves, `bound` holds their values."""

    scorer: Any
    bound: cpu_fallback.Values


class CpuEngine(Engine):
    """An engine whose program is a `CpuProgram`."""

    def score(
        self, program: Program, documents: np.ndarray, sums: np.ndarray, n_threads: int, started: bool = False
    ) -> None:
        assert isinstance(program, CpuProgram)
        program.scorer.score(program.bound, documents, sums, n_threads, started)

    def leaves(self, program: Program, documents: np.ndarray, out: np.ndarray, n_threads: int) -> None:
        assert isinstance(program, CpuProgram)
        program.scorer.leaves(program.bound, documents, out, n_threads)


def bind(values: LeafValues, scorer: object) -> CpuProgram:
    """The program of a bound scorer."""
    return CpuProgram(values, scorer, cpu_fallback.Values(values))
