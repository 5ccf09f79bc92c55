"""The compiled CPU engines' common part: the way from a forest to a bound scorer, calls into it, costs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gpuqs import cpu_fallback
from gpuqs.devices.base import Device
from gpuqs.engines.base import Engine, Program
from gpuqs.forest import CATEGORICAL, Forest
from gpuqs.layout.leaves import LeafValues, leaf_values
from gpuqs.layout.ranks import RankTables, build_ranks

#: Nanoseconds per category set and document, where sets are laid out by column.
CATEGORY_SET = 5.0


@dataclass(frozen=True)
class CpuProgram(Program):
    """A forest bound to C++: `scorer` finds exit leaves, `bound` holds their values."""

    scorer: Any
    bound: cpu_fallback.Values


class CpuEngine(Engine):
    """An engine whose program is a `CpuProgram`."""

    @abstractmethod
    def _lay_out(self, forest: Forest, ranks: Callable[[], RankTables]) -> Any:
        """The forest as the engine's kernels read it; has `LeafRanges` as ``ranges``."""

    @abstractmethod
    def _bind(self, forest: Forest, layout: Any, **common: Any) -> Any:
        """The layout bound to C++; ``common`` is for every scorer."""

    def _bind_values(
        self, forest: Forest, layout: Any, values: LeafValues
    ) -> tuple[LeafValues, cpu_fallback.Values]:
        """Leaf values in the engine's order, and bound to C++."""
        return values, cpu_fallback.Values(values)

    def prepare(
        self,
        forest: Forest,
        precision: str,
        *,
        ranks: Callable[[], RankTables] | None = None,
        device: Device | None = None,
    ) -> CpuProgram:
        layout = self._lay_out(forest, ranks or partial(build_ranks, forest))
        common = {
            "n_features": forest.n_features,
            "single": forest.input_dtype == "float32",
            "isa": cpu_fallback.isa(),
        }
        scorer = self._bind(forest, layout, **common)
        values, bound = self._bind_values(forest, layout, leaf_values(forest, layout.ranges, precision))
        return CpuProgram(values, scorer, bound)

    def score(self, program: Program, documents: Any, sums: Any, n_threads: int = 1, started: bool = False) -> None:
        assert isinstance(program, CpuProgram)
        program.scorer.score(program.bound, documents, sums, n_threads, started)

    def leaves(self, program: Program, documents: Any, out: Any, n_threads: int = 1) -> None:
        assert isinstance(program, CpuProgram)
        program.scorer.leaves(program.bound, documents, out, n_threads)


def kilonodes(forest: Forest) -> float:
    """Thousands of nodes, so that nanoseconds a node become microseconds; one node at least."""
    return max(forest.n_nodes, 1) * 1e-3


def category_cost(forest: Forest, n_documents: int, each: float = CATEGORY_SET) -> float:
    """Microseconds that category sets take, at ``each`` nanoseconds per set and document."""
    return n_documents * int(np.count_nonzero(forest.routing & CATEGORICAL)) * 1e-3 * each
