"""What the compiled CPU engines share: the way from a forest to a bound scorer, calls into it, costs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from gpuqs import cpu_fallback
from gpuqs.cpu_fallback import Machine
from gpuqs.devices.base import Device
from gpuqs.engines.base import Engine, Program
from gpuqs.engines.parameters import NONE_GIVEN, Params
from gpuqs.forest import Forest
from gpuqs.layout.leaves import LeafValues, leaf_values
from gpuqs.layout.ranks import RankTables, build_ranks

#: Nanoseconds per category set and document to turn a category into the column's value.
CATEGORY_SET = 0.5
#: Nanoseconds per category set and call, if an engine goes through documents column by column.
CATEGORY_COLUMN = 10.0
#: About this many documents read all cache lines of a tree's leaf values, at eight values per line; further ones read
#: no new lines. For trees with more than 64 leaves, it is the number of lines instead.
LEAVES_READ = 8
#: Only this many documents wait for their rows to come from memory: later rows are prefetched meanwhile.
VALUES_READ = 128
#: Upper limit of document values that a thread holds (16 MiB of float64).
MAX_VALUES = 1 << 21


@dataclass(frozen=True)
class CpuProgram(Program):
    """A forest bound to C++: `scorer` finds exit leaves, `bound` holds their values."""

    scorer: Any
    bound: cpu_fallback.Values

    def of_trees(self, trees: slice, base_score: np.ndarray) -> CpuProgram:
        """A program with exact sums for only a range of the trees, which shares all of this program's data.

        Its sums have the same bits as those of `Forest.select`. ``trees`` has a start, and a stop that is not less.
        """
        values = self.values.of_trees(trees, base_score)
        return CpuProgram(values, self.scorer, self.bound.of_trees(values))


class CpuEngine(Engine):
    """An engine whose program is a `CpuProgram`."""

    #: Parts of `cold`: microseconds per call; nanoseconds per node, per tree, per tree and document (up to
    #: `LEAVES_READ`), per column, and per column and document (up to `VALUES_READ`). Measured with the same calls as
    #: `cost`, but with 64 MB of other memory read between them.
    cold_call: ClassVar[float] = 12.0
    cold_node: ClassVar[float] = 0.73
    cold_tree: ClassVar[float] = 0.0
    cold_exit: ClassVar[float] = 0.8
    cold_column: ClassVar[float] = 0.0
    cold_value: ClassVar[float] = 4.0

    def cold(self, forest: Forest, n_documents: int, machine: Machine | None = None) -> float:
        per_tree, per_column = (self.cold_tree, self.cold_exit), (self.cold_column, self.cold_value)
        return self.cold_call + cold_reads(forest, n_documents, self.cold_node, per_tree, per_column)

    @abstractmethod
    def _lay_out(
        self, forest: Forest, ranks: Callable[[], RankTables], settings: dict[str, int], machine: Machine
    ) -> Any:
        """The forest as the engine's kernels read it on a machine; ``position`` is as in `LeafRanges`.

        ``settings`` has a value for each of the engine's parameters.
        """

    @abstractmethod
    def _bind(self, forest: Forest, layout: Any, settings: dict[str, int], **common: Any) -> Any:
        """The layout bound to C++; ``common``: arguments that every scorer has."""

    def _bind_values(
        self, forest: Forest, layout: Any, values: LeafValues, isa: str
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
        machine: Machine | None = None,
        params: Params = NONE_GIVEN,
    ) -> CpuProgram:
        settings = self._values(params)
        machine = machine or cpu_fallback.machine()
        layout = self._lay_out(forest, ranks or partial(build_ranks, forest), settings, machine)
        common = {
            "n_features": forest.n_features,
            "single": forest.input_dtype == "float32",
            "isa": machine.isa,
        }
        scorer = self._bind(forest, layout, settings, **common)
        values = leaf_values(forest, layout.position, precision, shared=True)
        values, bound = self._bind_values(forest, layout, values, machine.isa)
        return CpuProgram(values, scorer, bound)

    def score(self, program: Program, documents: Any, sums: Any, n_threads: int = 1, started: bool = False) -> None:
        assert isinstance(program, CpuProgram)
        program.scorer.score(program.bound, documents, sums, n_threads, started)

    def leaves(self, program: Program, documents: Any, out: Any, n_threads: int = 1) -> None:
        assert isinstance(program, CpuProgram)
        program.scorer.leaves(program.bound, documents, out, n_threads)


def fitting(wanted: int, default: int, values_each: int) -> int:
    """Documents of a block: ``wanted``, or fewer if a thread would hold more than `MAX_VALUES` values.

    ``values_each``: values per document. ``default``: this many documents are allowed in any case.
    """
    return min(wanted, max(default, MAX_VALUES // max(values_each, 1)))


def kilonodes(forest: Forest) -> float:
    """Thousands of nodes, so that nanoseconds a node become microseconds; one node at least."""
    return max(forest.n_nodes, 1) * 1e-3


def microseconds(forest: Forest, *, node: float = 0.0, tree: float = 0.0, column: float = 0.0) -> float:
    """Microseconds for a forest, given nanoseconds per node, per tree and per tested column."""
    return kilonodes(forest) * node + (forest.n_trees * tree + len(forest.tested) * column) * 1e-3


def cold_reads(
    forest: Forest, n_documents: int, node: float, tree: tuple[float, float], column: tuple[float, float]
) -> float:
    """Microseconds for reading nodes, trees and columns from memory.

    ``node``: nanoseconds per node; ``tree``, ``column``: once for each, and again for each of the first documents.
    """
    of_tree = tree[0] + tree[1] * min(n_documents, max(LEAVES_READ, forest.n_leaves // LEAVES_READ))
    of_column = column[0] + column[1] * min(n_documents, VALUES_READ)
    return microseconds(forest, node=node, tree=of_tree, column=of_column)


def category_cost(forest: Forest, n: int, each: float = CATEGORY_SET, once: float = 0.0) -> float:
    """Microseconds of category sets: each takes ``once`` nanoseconds, and ``each`` for ``n`` documents or runs."""
    return forest.n_category_sets * (n * each + once) * 1e-3
