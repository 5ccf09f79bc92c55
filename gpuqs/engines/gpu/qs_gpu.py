"""`qs_gpu`: GPU-QuickScorer (paper 000, section 6), on the caller's current stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from gpuqs.devices.base import GpuDevice
from gpuqs.engines.base import Engine, Program
from gpuqs.engines.gpu.forest import GpuForest, Settings
from gpuqs.forest import Forest
from gpuqs.layout.leaves import leaf_values, number_leaves
from gpuqs.layout.word_tuples import count_tuples

#: Words of one tree that the largest shared memory of today's devices holds.
MAX_WORDS = 227 * 1024 // 4 - 64
#: Tuples that a node takes on average, at most: long left chains take many.
MAX_TUPLES_PER_NODE = 64


@dataclass(frozen=True)
class GpuProgram(Program):
    """A forest laid out for one device, and copied there."""

    forest: GpuForest

    def ready(self) -> GpuForest:
        """The forest on its device, for launches; a graph that is being captured keeps it."""
        self.forest.device.retain(self.forest)
        return self.forest


class QsGpu(Engine):
    """GPU-QuickScorer.

    Parameters
    ----------
    settings : Settings, optional
    """

    name: ClassVar[str] = "qs_gpu"
    device: ClassVar[str] = "cuda"
    summary: ClassVar[str] = "GPU-QuickScorer: a thread block a document, leaf bitvectors in shared memory"

    def __init__(self, settings: Settings | None = None) -> None:
        self._settings = settings or Settings()

    def supports(self, forest: Forest) -> str | None:
        bits = {"mask32": 32, "mask64": 64}.get(self._settings.form or "words", MAX_WORDS * 32)
        if forest.n_leaves > bits:
            return f"a tree has {forest.n_leaves:,} leaves, more than {bits:,}"
        words = -(-forest.n_leaves // 32)  # a test touches no more of them
        n_tuples = forest.n_nodes * words
        if words > MAX_TUPLES_PER_NODE:
            n_tuples = count_tuples(forest, number_leaves(forest), 32)
            if n_tuples > MAX_TUPLES_PER_NODE * forest.n_nodes:
                return f"its trees are long chains: {n_tuples:,} tuples for {forest.n_nodes:,} nodes"
        if max(n_tuples, forest.leaf_value.size, forest.category_words.size) >= 1 << 31:
            return "it may have more tuples, leaf values or words of category sets than 32-bit indices count"
        return None

    def prepare(self, forest: Forest, precision: str, device: GpuDevice) -> GpuProgram:
        """Lay the forest out for a device, copy it there, and wait for the copy."""
        ranges = number_leaves(forest)
        values = leaf_values(forest, ranges, precision)
        return GpuProgram(values, GpuForest(device, forest, ranges, values, self._settings))

    def score(self, program: Program, documents: Any, sums: Any, n_threads: int = 1) -> None:
        """Fill ``sums`` with the documents' sums, both on the program's device; ``n_threads`` is not used.

        ``documents`` may also be integers.
        """
        assert isinstance(program, GpuProgram)
        program.ready().score(documents, sums)

    def leaves(self, program: Program, documents: Any, out: Any, n_threads: int = 1) -> None:
        """Fill ``out`` with exit leaf numbers; arguments as for `score`."""
        assert isinstance(program, GpuProgram)
        program.ready().leaves(documents, out)

    def per_tree(self, program: Program, documents: Any, out: Any) -> None:
        """Fill ``out`` ([D, T, width]) with the exit leaves' values; arguments as for `score`."""
        assert isinstance(program, GpuProgram)
        program.ready().per_tree(documents, out)
