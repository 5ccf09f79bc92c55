"""`walk`: a plain tree walk on the CPU, for trees that no bitvector holds."""

from __future__ import annotations

from typing import ClassVar

from gpuqs import cpu_fallback
from gpuqs.engines.cpu import CpuEngine, CpuProgram, bind
from gpuqs.forest import Forest
from gpuqs.layout.leaves import leaf_values
from gpuqs.layout.nodes import build_walk, fits_walk


class Walk(CpuEngine):
    """From the root to a leaf, tree by tree, over blocks of documents."""

    name: ClassVar[str] = "walk"
    summary: ClassVar[str] = "plain tree walk, for trees of any depth"

    tree_block: ClassVar[int] = 16
    #: Fewest and most documents that go through a tree while it is in the cache.
    document_blocks: ClassVar[tuple[int, int]] = (256, 4096)
    #: Most values of documents that a thread holds (16 MiB of float64).
    max_values: ClassVar[int] = 1 << 21

    def supports(self, forest: Forest) -> str | None:
        return None if fits_walk(forest) else "its trees and columns are too many for the links of a walk"

    def prepare(self, forest: Forest, precision: str) -> CpuProgram:
        layout = build_walk(forest, self.tree_block)
        scorer = cpu_fallback.Walk(
            layout,
            forest.n_features,
            single=forest.input_dtype == "float32",
            document_block=self._document_block(forest, len(layout.columns)),
            isa=cpu_fallback.isa(),
        )
        return bind(leaf_values(forest, layout.ranges, precision), scorer)

    def _document_block(self, forest: Forest, n_columns: int) -> int:
        """Enough documents for what it takes to bring the largest tree into the cache."""
        fewest, most = self.document_blocks
        wanted = min(max(forest.n_leaves // 8, fewest), most)
        return max(min(wanted, self.max_values // max(n_columns, 1)) // 16 * 16, 16)
