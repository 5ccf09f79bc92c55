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

    tree_block: ClassVar[int] = 64
    document_block: ClassVar[int] = 256

    def supports(self, forest: Forest) -> str | None:
        return None if fits_walk(forest) else "its trees and columns are too many for the links of a walk"

    def prepare(self, forest: Forest, precision: str) -> CpuProgram:
        layout = build_walk(forest, self.tree_block)
        scorer = cpu_fallback.Walk(
            layout,
            forest.n_features,
            single=forest.input_dtype == "float32",
            document_block=self.document_block,
            isa=cpu_fallback.isa(),
        )
        return bind(leaf_values(forest, layout.ranges, precision), scorer)
