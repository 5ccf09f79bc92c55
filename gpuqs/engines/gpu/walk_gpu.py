"""`walk_gpu`: tree walks on GPUs, one launch from row to score, for few documents and for trees of any size."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from gpuqs.cpu_fallback import Machine
from gpuqs.devices.base import GpuDevice
from gpuqs.engines.gpu.engine import LAUNCH, GpuEngine
from gpuqs.forest import Forest
from gpuqs.layout.leaves import leaf_values
from gpuqs.layout.ranks import RankTables
from gpuqs.layout.walk_gpu import MAX_POSITIONS, build_preorder

if TYPE_CHECKING:
    from gpuqs.engines.gpu.walk_placed import WalkPlacedForest, WalkSettings


class WalkGpu(GpuEngine):
    """A thread for each tree of a document: scores have the same bits as the CPU engines', in both precisions.

    Parameters
    ----------
    settings : WalkSettings, optional
    """

    name: ClassVar[str] = "walk_gpu"
    summary: ClassVar[str] = "tree walks on a GPU, one launch from row to score: few documents, trees of any depth"

    def __init__(self, settings: WalkSettings | None = None) -> None:
        self._settings = settings

    def cost(self, forest: Forest, n_documents: int, machine: Machine | None = None) -> float:
        levels = math.log2(max(forest.n_leaves, 2))
        in_turn = 6 + 0.0075 * forest.n_trees  # a document's leaf values are added one after another
        return LAUNCH + in_turn + n_documents * forest.n_trees * (8.3 + 3.3 * levels) * 1e-6

    def _why_not(self, forest: Forest) -> str | None:
        if max(len(forest.leaf_value), forest.category_words.size) >= MAX_POSITIONS:
            return "it has more leaves or words of category sets than 30 bits count"
        return None

    def _place(
        self, forest: Forest, precision: str, ranks: Callable[[], RankTables], device: GpuDevice
    ) -> WalkPlacedForest:
        from gpuqs.engines.gpu.walk_placed import WalkPlacedForest, WalkSettings  # few users have a GPU

        layout = build_preorder(forest)
        values = leaf_values(forest, layout.position, precision)
        return WalkPlacedForest(device, forest, layout, values, self._settings or WalkSettings())
