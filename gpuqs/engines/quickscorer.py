"""`qs`, `vqs`, `bwqs` and `qs_oblivious`: QuickScorer and its variants on the CPU, over one layout."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from gpuqs import cpu_fallback
from gpuqs.engines.base import CALL
from gpuqs.engines.cpu import CpuEngine, category_cost, fitting, kilonodes
from gpuqs.engines.parameters import Parameter
from gpuqs.forest import Forest
from gpuqs.layout.columns import find_columns
from gpuqs.layout.oblivious import MAX_LEVELS, build_oblivious, level_nodes, n_levels
from gpuqs.layout.quickscorer import QuickScorerLayout, build_quickscorer, mask_bits_for
from gpuqs.layout.ranks import RankTables
from gpuqs.layout.reversing import false_trees

MAX_LEAVES = 64
#: Documents that go through a column's tests at once in `bwqs` and `qs_oblivious`.
TOGETHER = 4
#: Instruction sets without wide registers take so many times as long. NEON, which nobody has timed yet, has
#: registers as wide as SSE4.2.
NARROW = {"portable": 3.5, "sse4.2": 1.9, "neon": 1.9}


def _tree_block(default: int) -> Parameter:
    return Parameter("tree_block", "τ: trees of a block", default, 1, 1 << 20)


def _document_block(default: int) -> Parameter:
    meaning = "δ: documents that are turned feature-major, and pass a tree block, together"
    return Parameter("document_block", meaning, default, 1, 4096)


def in_groups(n_documents: int) -> tuple[int, int]:
    """Places in groups of `TOGETHER`, which cost the same whether filled or not, and documents on their own: 0 or 1."""
    lone = n_documents % TOGETHER == 1
    return -(-(n_documents - lone) // TOGETHER) * TOGETHER, int(lone)


class _OnQuickScorerLayout(CpuEngine):
    """One layout, in tree blocks and masks of each engine's own sizes, and one scorer."""

    #: Documents with which `qs`'s kernel goes through a column's tests at once, 1 or `TOGETHER`; 0: `vqs`'s kernel.
    together: ClassVar[int]

    def supports(self, forest: Forest) -> str | None:
        if forest.n_leaves > MAX_LEAVES:
            return f"a tree has {forest.n_leaves} leaves; bitvectors hold {MAX_LEAVES}"
        return None

    def _bind(
        self, forest: Forest, layout: QuickScorerLayout, settings: dict[str, int], **common: Any
    ) -> cpu_fallback.QuickScorer:
        default = next(parameter.default for parameter in self.parameters if parameter.name == "document_block")
        each = len(layout.columns) + int(np.diff(layout.block_offsets).max(initial=0)) // 4
        document_block = fitting(settings["document_block"], default, each)
        return cpu_fallback.QuickScorer(layout, together=self.together, document_block=document_block, **common)


class QuickScorer(_OnQuickScorerLayout):
    """QuickScorer (paper 002, Algorithm 2), sequential, thresholds tested in strides of Δ = 4."""

    name: ClassVar[str] = "qs"
    summary: ClassVar[str] = "QuickScorer, one document at a time"

    parameters: ClassVar[tuple[Parameter, ...]] = (_document_block(16),)
    together: ClassVar[int] = 1
    #: Nanoseconds per node and document, and per column: between none, by which a Zen 3 was described, and the 14 of an
    #: Intel server of 2.6 GHz (100 trees x 31 leaves).
    node: ClassVar[float] = 0.23
    column: ClassVar[float] = 8.0

    def cost(self, forest: Forest, n_documents: int) -> float:
        each = kilonodes(forest) * self.node + len(forest.tested) * 1e-3 * self.column
        return CALL + n_documents * each + category_cost(forest, n_documents)

    def _lay_out(
        self, forest: Forest, ranks: Callable[[], RankTables], settings: dict[str, int], machine: tuple[str, bool]
    ) -> QuickScorerLayout:
        return build_quickscorer(forest, max(forest.n_trees, 1), _fewest_mask_bits(forest))


class BlockwiseQuickScorer(_OnQuickScorerLayout):
    """BLOCKWISE-QS (paper 002, section 6), in tree blocks and document blocks, false trees reversed."""

    name: ClassVar[str] = "bwqs"
    summary: ClassVar[str] = "blockwise QuickScorer, in blocks of trees and documents"

    #: τ: the bitvectors of four documents (64 KiB) stay in the L2 cache; smaller blocks would go through more columns.
    #: δ: a block's tests (1.9 MiB at 64 leaves) come from memory once for so many documents.
    parameters: ClassVar[tuple[Parameter, ...]] = (_tree_block(2000), _document_block(256))
    together: ClassVar[int] = TOGETHER
    #: Nanoseconds per document, node and column, so that it is to `qs` as measured by turns on a Zen 3: 0.65 times as
    #: long at 1,000 trees x 64 leaves, 0.75 at 1,000 x 8. At 20,000 x 64 it is 0.5. The column: between 1.4,
    #: measured there, and the 4.3 of that Intel server.
    node: ClassVar[float] = 0.145
    column: ClassVar[float] = 3.0
    #: And of a document on its own: per node up to 1.3 times `qs`'s.
    lone_node: ClassVar[float] = 0.3
    lone_column: ClassVar[float] = QuickScorer.column

    def cost(self, forest: Forest, n_documents: int) -> float:
        grouped, lone = in_groups(n_documents)
        nodes = (grouped * self.node + lone * self.lone_node) * kilonodes(forest)
        columns = (grouped * self.column + lone * self.lone_column) * len(forest.tested) * 1e-3
        return CALL + nodes + columns + category_cost(forest, n_documents)

    def _lay_out(
        self, forest: Forest, ranks: Callable[[], RankTables], settings: dict[str, int], machine: tuple[str, bool]
    ) -> QuickScorerLayout:
        reverse = false_trees(forest, find_columns(forest))
        return build_quickscorer(forest, settings["tree_block"], _fewest_mask_bits(forest), reverse)


class ObliviousQuickScorer(_OnQuickScorerLayout):
    """QUICKSCORER-Ω (paper 002, Algorithm 3): one mask a level of oblivious trees."""

    name: ClassVar[str] = "qs_oblivious"
    summary: ClassVar[str] = "QuickScorer for oblivious trees, one test a level"

    parameters: ClassVar[tuple[Parameter, ...]] = (_tree_block(1 << 20), _document_block(64))
    together: ClassVar[int] = TOGETHER
    #: Nanoseconds per level and document, of groups and of a document on its own, so that it is to `qs` per node as
    #: measured by turns at 1,000 trees x 64 leaves on a Zen 3.
    level: ClassVar[float] = 0.55
    lone_level: ClassVar[float] = 0.85

    def supports(self, forest: Forest) -> str | None:
        if forest.n_leaves > 1 << MAX_LEVELS:
            return f"a tree has {forest.n_leaves} leaves; masks hold {MAX_LEVELS} levels"
        if level_nodes(forest) is None:
            return "a tree is not oblivious (complete, with one test a level)"
        return None

    def cost(self, forest: Forest, n_documents: int) -> float:
        levels = max(int(n_levels(forest).sum()), 1) * 1e-3
        grouped, lone = in_groups(n_documents)
        return CALL + (grouped * self.level + lone * self.lone_level) * levels + category_cost(forest, n_documents)

    def _lay_out(
        self, forest: Forest, ranks: Callable[[], RankTables], settings: dict[str, int], machine: tuple[str, bool]
    ) -> QuickScorerLayout:
        return build_oblivious(forest, settings["tree_block"])


class VQuickScorer(_OnQuickScorerLayout):
    """V-QuickScorer (paper 001; paper 000, section 4), in tree blocks and document blocks."""

    name: ClassVar[str] = "vqs"
    summary: ClassVar[str] = "V-QuickScorer, 8 or 16 documents at a time"

    #: τ: the bitvectors of a block stay in the L1 and L2 caches next to its tests.
    parameters: ClassVar[tuple[Parameter, ...]] = (_tree_block(1024), _document_block(64))
    together: ClassVar[int] = 0
    #: Nanoseconds per node and document: up to 32 leaves, more.
    node: ClassVar[dict[bool, float]] = {True: 0.08, False: 0.105}

    def cost(self, forest: Forest, n_documents: int) -> float:
        isa = cpu_fallback.instruction_set()
        rows = math.ceil(n_documents / isa.lanes) * isa.lanes
        nodes = rows * kilonodes(forest) * self.node[forest.n_leaves <= 32] * NARROW.get(isa.name, 1.0)
        return CALL + nodes + category_cost(forest, n_documents)

    def _lay_out(
        self, forest: Forest, ranks: Callable[[], RankTables], settings: dict[str, int], machine: tuple[str, bool]
    ) -> QuickScorerLayout:
        return build_quickscorer(forest, settings["tree_block"], mask_bits=32 if forest.n_leaves <= 32 else 64)


def _fewest_mask_bits(forest: Forest) -> int:
    mask_bits = mask_bits_for(forest.n_leaves)
    assert mask_bits is not None
    return mask_bits
