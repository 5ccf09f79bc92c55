"""`bitslice_gpu`: bit slices on GPUs, one bit per document, a boolean program per tree."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from gpuqs.cpu_fallback import Machine
from gpuqs.devices.base import GpuDevice
from gpuqs.engines.gpu.engine import LAUNCH, GpuEngine
from gpuqs.engines.gpu.placed import MAX_GRID
from gpuqs.forest import Forest
from gpuqs.layout.bitslice import MAX_PREDICATES, gray_values, why_not
from gpuqs.layout.bitslice_gpu import MAX_COLUMNS, MAX_LEAVES, build_rows
from gpuqs.layout.leaves import leaf_values
from gpuqs.layout.ranks import RankTables

if TYPE_CHECKING:
    from gpuqs.engines.gpu.bitslice_placed import BitslicePlacedForest, BitsliceSettings


class BitsliceGpu(GpuEngine):
    """The bit-sliced engine on a GPU: its scores have the same bits as the CPU's, in both precisions.

    Parameters
    ----------
    settings : BitsliceSettings, optional
    """

    name: ClassVar[str] = "bitslice_gpu"
    summary: ClassVar[str] = "bit-sliced on a GPU: 32 documents a word, a boolean program per tree"

    def __init__(self, settings: BitsliceSettings | None = None) -> None:
        self._settings = settings

    def cost(self, forest: Forest, n_documents: int, machine: Machine | None = None) -> float:
        in_turn = 15 + 0.02 * forest.n_trees  # a document's leaf values are added one after another
        each = 0.5 + 0.0025 * forest.n_features + 2.3e-5 * forest.n_nodes + 0.001 * forest.n_trees
        return 2 * LAUNCH + in_turn + n_documents * each * 1e-3

    def _why_not(self, forest: Forest) -> str | None:
        if (reason := why_not(forest, MAX_LEAVES, MAX_COLUMNS)) is not None:
            return reason
        if forest.n_outputs > MAX_GRID:
            return f"it has {forest.n_outputs:,} outputs, more than the {MAX_GRID:,} of one launch"
        padded = 2 * max(len(forest.leaf_value), 64 * forest.n_trees) * forest.leaf_value.shape[1]
        if max(padded, forest.category_words.size) >= 1 << 31:
            return "it has more leaf values or words of category sets than 32-bit indices count"
        return None

    def _place(
        self, forest: Forest, precision: str, ranks: Callable[[], RankTables], device: GpuDevice
    ) -> BitslicePlacedForest:
        from gpuqs.engines.gpu.bitslice_placed import BitslicePlacedForest, BitsliceSettings  # few users have a GPU

        settings = self._settings or BitsliceSettings()
        layout = build_rows(forest, ranks(), settings.max_predicates or MAX_PREDICATES, settings.evaluation)
        values = leaf_values(forest, layout.position, precision)
        values = gray_values(values, np.diff(forest.leaf_offsets), layout.oblivious)
        return BitslicePlacedForest(device, forest, layout, values, settings)
