"""`qs_gpu`: GPU-QuickScorer (paper 000, section 6), on the caller's current stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from gpuqs.cpu_fallback import Machine
from gpuqs.devices.base import GpuDevice
from gpuqs.engines.gpu.engine import GpuEngine
from gpuqs.forest import Forest
from gpuqs.layout.leaves import leaf_values, number_leaves
from gpuqs.layout.ranks import RankTables

if TYPE_CHECKING:
    from gpuqs.engines.gpu.qs_placed import QsPlacedForest, QsSettings

#: Upper limit of words in one tree: what fits the largest shared memory of today's devices.
MAX_WORDS = 227 * 1024 // 4 - 64
#: Upper limit of tuples per node on average; long left chains have many.
MAX_TUPLES_PER_NODE = 64


class QsGpu(GpuEngine):
    """GPU-QuickScorer.

    Parameters
    ----------
    settings : QsSettings, optional
    """

    name: ClassVar[str] = "qs_gpu"
    summary: ClassVar[str] = "GPU-QuickScorer: a thread block for a document or four, leaf bitvectors in shared memory"
    own_sums: ClassVar[bool] = True

    def __init__(self, settings: QsSettings | None = None) -> None:
        self._settings = settings

    def cost(self, forest: Forest, n_documents: int, machine: Machine | None = None) -> None:
        return None  # its exact sums are in another order than the CPU's: it runs only on request

    def _why_not(self, forest: Forest) -> str | None:
        form = self._settings.form if self._settings else None
        bits = {"mask32": 32, "mask64": 64}.get(form or "words", MAX_WORDS * 32)
        if forest.n_leaves > bits:
            return f"a tree has {forest.n_leaves:,} leaves, more than {bits:,}"
        words = -(-forest.n_leaves // 32)  # the most that one test touches
        n_tuples = forest.n_nodes * words
        if words > MAX_TUPLES_PER_NODE:
            from gpuqs.layout.qs_gpu import count_tuples  # few users have a GPU

            n_tuples = count_tuples(forest, number_leaves(forest), 32)
            if n_tuples > MAX_TUPLES_PER_NODE * forest.n_nodes:
                return f"its trees are long chains: {n_tuples:,} tuples for {forest.n_nodes:,} nodes"
        if max(n_tuples, forest.leaf_value.size, forest.category_words.size) >= 1 << 31:
            return "it may have more tuples, leaf values or words of category sets than 32-bit indices count"
        return None

    def _place(
        self, forest: Forest, precision: str, ranks: Callable[[], RankTables], device: GpuDevice
    ) -> QsPlacedForest:
        from gpuqs.engines.gpu.qs_placed import QsPlacedForest, QsSettings  # few users have a GPU

        ranges = number_leaves(forest)
        values = leaf_values(forest, ranges.position, precision)
        return QsPlacedForest(device, forest, ranges, values, self._settings or QsSettings())
