"""`walk`: a plain tree walk on the CPU, for trees that no bitvector holds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

from gpuqs import cpu_fallback
from gpuqs.engines.base import CALL
from gpuqs.engines.cpu import CpuEngine, category_cost
from gpuqs.forest import Forest
from gpuqs.layout.ranks import RankTables
from gpuqs.layout.walk import WalkLayout, build_walk, fits_walk


class Walk(CpuEngine):
    """From the root to a leaf, tree by tree, over blocks of documents."""

    name: ClassVar[str] = "walk"
    summary: ClassVar[str] = "plain tree walk, for trees of any depth"

    #: Nanoseconds per node that a walk visits; twice that where too few documents keep the walks apart.
    visit: ClassVar[float] = 1.4
    tree_block: ClassVar[int] = 16
    #: Fewest and most documents that go through a tree while it is in the cache.
    document_blocks: ClassVar[tuple[int, int]] = (256, 4096)
    #: Most values of documents that a thread holds (16 MiB of float64).
    max_values: ClassVar[int] = 1 << 21

    def supports(self, forest: Forest) -> str | None:
        return None if fits_walk(forest) else "its trees and columns are too many for the links of a walk"

    def cost(self, forest: Forest, n_documents: int) -> float:
        visits = forest.n_trees * (1.5 * math.log2(max(forest.n_leaves, 2)) + 1) * 1e-3
        walks = n_documents * visits * self.visit * (2 if n_documents < 16 else 1)
        return CALL + walks + category_cost(forest, n_documents)

    def _lay_out(self, forest: Forest, ranks: Callable[[], RankTables]) -> WalkLayout:
        return build_walk(forest, self.tree_block)

    def _bind(self, forest: Forest, layout: WalkLayout, **common: Any) -> cpu_fallback.Walk:
        document_block = self._document_block(forest, len(layout.columns))
        return cpu_fallback.Walk(layout, document_block=document_block, **common)

    def _document_block(self, forest: Forest, n_columns: int) -> int:
        """Enough documents for what it takes to bring the largest tree into the cache."""
        fewest, most = self.document_blocks
        wanted = min(max(forest.n_leaves // 8, fewest), most)
        return max(min(wanted, self.max_values // max(n_columns, 1)) // 16 * 16, 16)
