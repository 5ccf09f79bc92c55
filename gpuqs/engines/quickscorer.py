"""`qs` and `vqs`: QuickScorer and V-QuickScorer on the CPU, over one layout."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

from gpuqs import cpu_fallback
from gpuqs.devices.base import Device
from gpuqs.engines.base import CALL
from gpuqs.engines.cpu import CpuEngine, CpuProgram, bind, category_cost, kilonodes
from gpuqs.forest import Forest
from gpuqs.layout.leaves import leaf_values
from gpuqs.layout.quickscorer import build_quickscorer, mask_bits_for
from gpuqs.layout.ranks import RankTables

MAX_LEAVES = 64
#: Instruction sets without wide registers take so many times as long.
NARROW = {"portable": 3.5, "sse4.2": 1.9}


def _supports(forest: Forest) -> str | None:
    if forest.n_leaves > MAX_LEAVES:
        return f"a tree has {forest.n_leaves} leaves; bitvectors hold {MAX_LEAVES}"
    return None


class QuickScorer(CpuEngine):
    """QuickScorer (paper 002, Algorithm 2), sequential, thresholds tested in strides of Δ = 4."""

    name: ClassVar[str] = "qs"
    summary: ClassVar[str] = "QuickScorer, one document at a time"

    #: Documents that are turned feature-major together.
    document_block: ClassVar[int] = 16
    #: Nanoseconds per node and document.
    node: ClassVar[float] = 0.23

    def supports(self, forest: Forest) -> str | None:
        return _supports(forest)

    def cost(self, forest: Forest, n_documents: int) -> float:
        return CALL + n_documents * kilonodes(forest) * self.node + category_cost(forest, n_documents)

    def prepare(
        self,
        forest: Forest,
        precision: str,
        *,
        ranks: Callable[[], RankTables] | None = None,
        device: Device | None = None,
    ) -> CpuProgram:
        mask_bits = mask_bits_for(forest.n_leaves)
        assert mask_bits is not None
        layout = build_quickscorer(forest, tree_block=max(forest.n_trees, 1), mask_bits=mask_bits)
        scorer = cpu_fallback.QuickScorer(
            layout,
            forest.n_features,
            single=forest.input_dtype == "float32",
            vectorised=False,
            document_block=self.document_block,
            isa=cpu_fallback.isa(),
        )
        return bind(leaf_values(forest, layout.ranges, precision), scorer)


class VQuickScorer(CpuEngine):
    """V-QuickScorer (paper 001; paper 000, section 4), in tree blocks and document blocks."""

    name: ClassVar[str] = "vqs"
    summary: ClassVar[str] = "V-QuickScorer, 8 or 16 documents at a time"

    #: τ: the bitvectors of a block stay in the L1 and L2 caches next to its tests.
    tree_block: ClassVar[int] = 1024
    document_block: ClassVar[int] = 64
    #: Nanoseconds per node and document: up to 32 leaves, more.
    node: ClassVar[dict[bool, float]] = {True: 0.08, False: 0.105}

    def supports(self, forest: Forest) -> str | None:
        return _supports(forest)

    def cost(self, forest: Forest, n_documents: int) -> float:
        isa = cpu_fallback.instruction_set()
        rows = math.ceil(n_documents / isa.lanes) * isa.lanes
        nodes = rows * kilonodes(forest) * self.node[forest.n_leaves <= 32] * NARROW.get(isa.name, 1.0)
        return CALL + nodes + category_cost(forest, n_documents)

    def prepare(
        self,
        forest: Forest,
        precision: str,
        *,
        ranks: Callable[[], RankTables] | None = None,
        device: Device | None = None,
    ) -> CpuProgram:
        layout = build_quickscorer(forest, self.tree_block, 32 if forest.n_leaves <= 32 else 64)
        scorer = cpu_fallback.QuickScorer(
            layout,
            forest.n_features,
            single=forest.input_dtype == "float32",
            vectorised=True,
            document_block=self.document_block,
            isa=cpu_fallback.isa(),
        )
        return bind(leaf_values(forest, layout.ranges, precision), scorer)
