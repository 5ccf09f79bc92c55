"""`qs`, `vqs`, `bwqs` and `qs_oblivious`: QuickScorer and its variants on the CPU, over one layout."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from gpuqs import cpu_fallback
from gpuqs.cpu_fallback import Machine
from gpuqs.engines.base import CALL
from gpuqs.engines.cpu import CATEGORY_COLUMN, CpuEngine, category_cost, fitting, microseconds
from gpuqs.engines.parameters import Parameter
from gpuqs.forest import Forest
from gpuqs.layout.columns import find_columns
from gpuqs.layout.oblivious import MAX_LEVELS, build_oblivious, is_oblivious, n_levels
from gpuqs.layout.quickscorer import QuickScorerLayout, build_quickscorer, mask_bits_for
from gpuqs.layout.ranks import RankTables
from gpuqs.layout.reversing import false_trees

MAX_LEAVES = 64
#: Documents that go through a column's tests at once in `bwqs` and `qs_oblivious`.
TOGETHER = 4
#: Time relative to instruction sets with registers of eight floats. NEON has not been timed; its registers are as wide
#: as those of SSE4.2.
WIDTH = {"portable": 3.3, "sse4.2": 1.5, "neon": 1.5, "avx512": 0.6}


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
    """Engines with one layout and one scorer, but each with its own sizes of tree blocks and masks."""

    #: Documents that `qs`'s kernel takes through a column's tests at once: 1 or `TOGETHER`; 0: `vqs`'s kernel runs.
    together: ClassVar[int]

    def why_not(self, forest: Forest) -> str | None:
        if forest.n_leaves > MAX_LEAVES:
            return f"a tree has {forest.n_leaves} leaves; bitvectors hold {MAX_LEAVES}"
        return None

    def _bind(
        self, forest: Forest, layout: QuickScorerLayout, settings: dict[str, int], **common: Any
    ) -> cpu_fallback.QuickScorer:
        each = len(layout.columns) + int(np.diff(layout.block_offsets).max(initial=0)) // 4
        document_block = fitting(settings["document_block"], self._default("document_block"), each)
        return cpu_fallback.QuickScorer(layout, together=self.together, document_block=document_block, **common)


class QuickScorer(_OnQuickScorerLayout):
    """QuickScorer (paper 002, Algorithm 2), sequential, thresholds tested in strides of Δ = 4."""

    name: ClassVar[str] = "qs"
    summary: ClassVar[str] = "QuickScorer, one document at a time"

    parameters: ClassVar[tuple[Parameter, ...]] = (_document_block(16),)
    together: ClassVar[int] = 1
    #: Nanoseconds per document, for each node, tree and column.
    node: ClassVar[float] = 0.18
    tree: ClassVar[float] = 0.6
    column: ClassVar[float] = 6.5
    cold_value: ClassVar[float] = 10.0

    def cost(self, forest: Forest, n_documents: int, machine: Machine | None = None) -> float:
        each = microseconds(forest, node=self.node, tree=self.tree, column=self.column)
        return CALL + n_documents * each + category_cost(forest, n_documents, once=CATEGORY_COLUMN)

    def _lay_out(
        self, forest: Forest, ranks: Callable[[], RankTables], settings: dict[str, int], machine: Machine
    ) -> QuickScorerLayout:
        return build_quickscorer(forest, max(forest.n_trees, 1), _fewest_mask_bits(forest))


class BlockwiseQuickScorer(_OnQuickScorerLayout):
    """BLOCKWISE-QS (paper 002, section 6), in tree blocks and document blocks, false trees reversed."""

    name: ClassVar[str] = "bwqs"
    summary: ClassVar[str] = "blockwise QuickScorer, in blocks of trees and documents"

    #: τ: the bitvectors of four documents (64 KiB) stay in the L2 cache; smaller blocks would go through more columns.
    #: δ: a block's tests (1.9 MiB at 64 leaves) come from memory once per document block.
    parameters: ClassVar[tuple[Parameter, ...]] = (_tree_block(2000), _document_block(256))
    together: ClassVar[int] = TOGETHER
    #: Nanoseconds per document, for each node, tree and column: in a group, and on its own (`lone_`).
    node: ClassVar[float] = 0.1
    tree: ClassVar[float] = 0.6
    column: ClassVar[float] = 2.5
    lone_node: ClassVar[float] = 0.19
    lone_tree: ClassVar[float] = 1.0
    lone_column: ClassVar[float] = QuickScorer.column

    def cost(self, forest: Forest, n_documents: int, machine: Machine | None = None) -> float:
        grouped, lone = in_groups(n_documents)
        of_group = microseconds(forest, node=self.node, tree=self.tree, column=self.column)
        of_lone = microseconds(forest, node=self.lone_node, tree=self.lone_tree, column=self.lone_column)
        return CALL + grouped * of_group + lone * of_lone + category_cost(forest, n_documents, once=CATEGORY_COLUMN)

    def _lay_out(
        self, forest: Forest, ranks: Callable[[], RankTables], settings: dict[str, int], machine: Machine
    ) -> QuickScorerLayout:
        reverse = false_trees(forest, find_columns(forest))
        return build_quickscorer(forest, settings["tree_block"], _fewest_mask_bits(forest), reverse)


class ObliviousQuickScorer(_OnQuickScorerLayout):
    """QUICKSCORER-Ω (paper 002, Algorithm 3): one mask per level of oblivious trees."""

    name: ClassVar[str] = "qs_oblivious"
    summary: ClassVar[str] = "QuickScorer for oblivious trees, one test a level"

    parameters: ClassVar[tuple[Parameter, ...]] = (_tree_block(1 << 20), _document_block(64))
    together: ClassVar[int] = TOGETHER
    #: Nanoseconds per document: for each level, in a group and on its own (`lone_`); for each tree and column.
    level: ClassVar[float] = 0.2
    lone_level: ClassVar[float] = 0.42
    tree: ClassVar[float] = 0.3
    column: ClassVar[float] = 1.5
    cold_call: ClassVar[float] = 8.0
    cold_node: ClassVar[float] = 0.11
    cold_tree: ClassVar[float] = 1.5
    cold_exit: ClassVar[float] = 2.3
    cold_value: ClassVar[float] = 7.0

    def why_not(self, forest: Forest) -> str | None:
        if forest.n_leaves > 1 << MAX_LEVELS:
            return f"a tree has {forest.n_leaves} leaves; masks hold {MAX_LEVELS} levels"
        if not is_oblivious(forest):
            return "a tree is not oblivious (complete, with one test a level)"
        return None

    def cost(self, forest: Forest, n_documents: int, machine: Machine | None = None) -> float:
        levels = max(int(n_levels(forest).sum()), 1) * 1e-3
        grouped, lone = in_groups(n_documents)
        of_levels = (grouped * self.level + lone * self.lone_level) * levels
        each = microseconds(forest, tree=self.tree, column=self.column)
        return CALL + of_levels + n_documents * each + category_cost(forest, n_documents, once=CATEGORY_COLUMN)

    def _lay_out(
        self, forest: Forest, ranks: Callable[[], RankTables], settings: dict[str, int], machine: Machine
    ) -> QuickScorerLayout:
        return build_oblivious(forest, settings["tree_block"])


class VQuickScorer(_OnQuickScorerLayout):
    """V-QuickScorer (paper 001; paper 000, section 4), in tree blocks and document blocks."""

    name: ClassVar[str] = "vqs"
    summary: ClassVar[str] = "V-QuickScorer, 8 or 16 documents at a time"

    #: τ: the bitvectors of a block stay in the L1 and L2 caches next to its tests.
    parameters: ClassVar[tuple[Parameter, ...]] = (_tree_block(1024), _document_block(64))
    together: ClassVar[int] = 0
    #: Nanoseconds per place of a document, with registers of eight floats: for each node, by whether trees have at most
    #: 32 leaves, and for each tree. Nodes of oblivious trees take `oblivious` times as long, because most are false.
    node: ClassVar[dict[bool, float]] = {True: 0.058, False: 0.088}
    tree: ClassVar[float] = 0.3
    oblivious: ClassVar[float] = 2.2
    #: How many times as long trees take on Intel's processors that have fast gathers.
    trees_with_gathers: ClassVar[float] = 1.7
    #: Nanoseconds per column, for each document and for each place of a document.
    column: ClassVar[float] = 0.4
    place_column: ClassVar[float] = 0.4
    cold_column: ClassVar[float] = 5.0
    cold_exit: ClassVar[float] = 0.0
    cold_value: ClassVar[float] = 1.5

    def cost(self, forest: Forest, n_documents: int, machine: Machine | None = None) -> float:
        isa = cpu_fallback.instruction_set(machine.isa if machine else None)
        rows = math.ceil(n_documents / isa.lanes) * isa.lanes
        of_node = self.node[forest.n_leaves <= 32] * (self.oblivious if is_oblivious(forest) else 1.0)
        each = microseconds(forest, node=of_node, tree=self.tree)
        each *= self.trees_with_gathers if isa.gathers else 1.0
        columns = n_documents * microseconds(forest, column=self.column)
        columns += rows * microseconds(forest, column=self.place_column)
        columns += category_cost(forest, n_documents, once=CATEGORY_COLUMN)
        return CALL + rows * each * WIDTH.get(isa.name, 1.0) + columns

    def _lay_out(
        self, forest: Forest, ranks: Callable[[], RankTables], settings: dict[str, int], machine: Machine
    ) -> QuickScorerLayout:
        return build_quickscorer(forest, settings["tree_block"], mask_bits=32 if forest.n_leaves <= 32 else 64)


def _fewest_mask_bits(forest: Forest) -> int:
    mask_bits = mask_bits_for(forest.n_leaves)
    assert mask_bits is not None
    return mask_bits
