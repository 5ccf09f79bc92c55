"""`qs` and `vqs`: QuickScorer and V-QuickScorer on the CPU, over one layout."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

from gpuqs import cpu_fallback
from gpuqs.engines.base import CALL
from gpuqs.engines.cpu import CpuEngine, category_cost, kilonodes
from gpuqs.forest import Forest
from gpuqs.layout.quickscorer import QuickScorerLayout, build_quickscorer, mask_bits_for
from gpuqs.layout.ranks import RankTables

MAX_LEAVES = 64
#: Instruction sets without wide registers take so many times as long. NEON, which nobody has timed yet, has
#: registers as wide as SSE4.2.
NARROW = {"portable": 3.5, "sse4.2": 1.9, "neon": 1.9}


class _OnQuickScorerLayout(CpuEngine):
    """`qs` and `vqs`: one layout, in tree blocks and masks of their own sizes, and one scorer."""

    vectorised: ClassVar[bool]
    #: Documents that are turned feature-major, and scored, together.
    document_block: ClassVar[int]

    def supports(self, forest: Forest) -> str | None:
        if forest.n_leaves > MAX_LEAVES:
            return f"a tree has {forest.n_leaves} leaves; bitvectors hold {MAX_LEAVES}"
        return None

    def _bind(self, forest: Forest, layout: QuickScorerLayout, **common: Any) -> cpu_fallback.QuickScorer:
        return cpu_fallback.QuickScorer(
            layout, vectorised=self.vectorised, document_block=self.document_block, **common
        )


class QuickScorer(_OnQuickScorerLayout):
    """QuickScorer (paper 002, Algorithm 2), sequential, thresholds tested in strides of Δ = 4."""

    name: ClassVar[str] = "qs"
    summary: ClassVar[str] = "QuickScorer, one document at a time"

    vectorised: ClassVar[bool] = False
    document_block: ClassVar[int] = 16
    #: Nanoseconds per node and document.
    node: ClassVar[float] = 0.23

    def cost(self, forest: Forest, n_documents: int) -> float:
        return CALL + n_documents * kilonodes(forest) * self.node + category_cost(forest, n_documents)

    def _lay_out(self, forest: Forest, ranks: Callable[[], RankTables]) -> QuickScorerLayout:
        mask_bits = mask_bits_for(forest.n_leaves)
        assert mask_bits is not None
        return build_quickscorer(forest, tree_block=max(forest.n_trees, 1), mask_bits=mask_bits)


class VQuickScorer(_OnQuickScorerLayout):
    """V-QuickScorer (paper 001; paper 000, section 4), in tree blocks and document blocks."""

    name: ClassVar[str] = "vqs"
    summary: ClassVar[str] = "V-QuickScorer, 8 or 16 documents at a time"

    #: τ: the bitvectors of a block stay in the L1 and L2 caches next to its tests.
    tree_block: ClassVar[int] = 1024
    vectorised: ClassVar[bool] = True
    document_block: ClassVar[int] = 64
    #: Nanoseconds per node and document: up to 32 leaves, more.
    node: ClassVar[dict[bool, float]] = {True: 0.08, False: 0.105}

    def cost(self, forest: Forest, n_documents: int) -> float:
        isa = cpu_fallback.instruction_set()
        rows = math.ceil(n_documents / isa.lanes) * isa.lanes
        nodes = rows * kilonodes(forest) * self.node[forest.n_leaves <= 32] * NARROW.get(isa.name, 1.0)
        return CALL + nodes + category_cost(forest, n_documents)

    def _lay_out(self, forest: Forest, ranks: Callable[[], RankTables]) -> QuickScorerLayout:
        return build_quickscorer(forest, self.tree_block, mask_bits=32 if forest.n_leaves <= 32 else 64)
