"""`rankwalk`: walks over ranks of one byte, jumps, or all tests, for few documents at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from gpuqs import cpu_fallback
from gpuqs.cpu_fallback import Machine
from gpuqs.engines.base import CALL
from gpuqs.engines.cpu import CATEGORY_COLUMN, CpuEngine, category_cost, fitting, kilonodes
from gpuqs.engines.parameters import Parameter
from gpuqs.forest import Forest
from gpuqs.layout.columns import find_columns
from gpuqs.layout.ranks import MAX_THRESHOLDS, RankTables, max_thresholds
from gpuqs.layout.rankwalk import (
    JUMP_PLACES,
    JUMPING,
    MAX_ENTRIES,
    MAX_LANES,
    MAX_LEAVES,
    REGISTERS_TOGETHER,
    TREE_BLOCK,
    WALKING,
    WALKING_NARROW,
    WALKS,
    RankWalkLayout,
    build_rankwalk,
    max_entries,
)

#: Bytes of the narrowest registers.
NARROW_LANES = 16


class RankWalk(CpuEngine):
    """Few documents walk twelve trees side by side, or jump through 64 tests at once; more evaluate all tests."""

    name: ClassVar[str] = "rankwalk"
    summary: ClassVar[str] = "ranks of one byte: walks, jumps, or registers full of documents through all tests"

    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("tree_block", f"τ: trees of a block, in whole groups of {WALKS}", TREE_BLOCK, 1, 1 << 20),
        Parameter("document_block", "δ: documents that are coded, and pass a tree block, together", 128, 1, 4096),
    )
    #: Nanoseconds per document: for walks, per step; for jumps, per tree, per word, and per word and doubling of its
    #: steps; for either, per column (False: walks, True: jumps). Jumps are assumed even for forests with too many
    #: entries for jump words.
    step: ClassVar[float] = 0.67
    jump_tree: ClassVar[float] = 1.4
    jump_word: ClassVar[float] = 1.0
    jump_doubling: ClassVar[float] = 0.07
    column: ClassVar[dict[bool, float]] = {False: 12.5, True: 4.5}
    #: Nanoseconds if documents evaluate all tests: per node, by the bytes of a register, for each group of registers
    #: that pass it together and for each register; per column; per document and tree; per document and column.
    node: ClassVar[dict[int, float]] = {16: 0.67, 32: 0.37, 64: 0.1}
    register_node: ClassVar[dict[int, float]] = {16: 0.52, 32: 0.29, 64: 0.55}
    searched_column: ClassVar[float] = 30.0
    tree: ClassVar[float] = 0.3
    searched_value: ClassVar[float] = 1.25
    #: How many times as long jumps through words and through pairs of words, and all tests, take on Intel's processors
    #: that have fast gathers: fewer of their units can do this.
    words_with_gathers: ClassVar[float] = 1.2
    pairs_with_gathers: ClassVar[float] = 1.9
    tests_with_gathers: ClassVar[float] = 1.6
    cold_call: ClassVar[float] = 14.0
    cold_node: ClassVar[float] = 0.17
    cold_exit: ClassVar[float] = 0.0
    cold_column: ClassVar[float] = 8.0
    cold_value: ClassVar[float] = 0.4

    def why_not(self, forest: Forest) -> str | None:
        if forest.n_leaves > MAX_LEAVES:
            return f"a tree has {forest.n_leaves} leaves; walks by rank hold {MAX_LEAVES}"
        columns = find_columns(forest)
        if (most := max_thresholds(columns)) > MAX_THRESHOLDS:
            return f"a feature has {most} distinct thresholds; ranks hold {MAX_THRESHOLDS}"
        if (most := max_entries(columns)) > MAX_ENTRIES:
            return f"its columns take up to {most} bytes of rank; nodes tell {MAX_ENTRIES} apart"
        return None

    def cost(self, forest: Forest, n_documents: int, machine: Machine | None = None) -> float:
        trees, columns = forest.n_trees * 1e-3, len(forest.tested) * 1e-3
        isa = cpu_fallback.instruction_set(machine.isa if machine else None)
        lanes = min(isa.widest_word // 8, MAX_LANES)
        if n_documents <= (JUMPING if isa.has_jumps else WALKING if lanes > NARROW_LANES else WALKING_NARROW):
            if isa.has_jumps:
                nodes = max(forest.n_nodes // max(forest.n_trees, 1), 1)
                in_pairs = nodes > JUMP_PLACES
                words = trees * 2 if in_pairs else trees / (JUMP_PLACES // nodes)
                doublings = math.log2(max(int(forest.tree_depth.max(initial=0)), 1))
                of_trees = trees * self.jump_tree + words * (self.jump_word + self.jump_doubling * doublings)
                if isa.gathers:
                    of_trees *= self.pairs_with_gathers if in_pairs else self.words_with_gathers
            else:
                of_trees = int(forest.tree_depth.sum()) * 1e-3 * self.step
            work = n_documents * (of_trees + columns * self.column[isa.has_jumps])
        else:
            registers = math.ceil(n_documents / lanes)
            together = math.ceil(registers / REGISTERS_TOGETHER)
            if registers > 2:  # three take as long as four
                registers = together * REGISTERS_TOGETHER
            work = kilonodes(forest) * (together * self.node[lanes] + registers * self.register_node[lanes])
            work *= self.tests_with_gathers if isa.gathers else 1.0
            work += n_documents * (trees * self.tree + columns * self.searched_value) + columns * self.searched_column
        return CALL + work + category_cost(forest, n_documents, once=CATEGORY_COLUMN)

    def _lay_out(
        self, forest: Forest, ranks: Callable[[], RankTables], settings: dict[str, int], machine: Machine
    ) -> RankWalkLayout:
        tree_block = -(-settings["tree_block"] // WALKS) * WALKS
        return build_rankwalk(forest, ranks(), tree_block, cpu_fallback.instruction_set(machine.isa).has_jumps)

    def _bind(
        self, forest: Forest, layout: RankWalkLayout, settings: dict[str, int], **common: Any
    ) -> cpu_fallback.RankWalk:
        each = len(layout.ranks.columns) + len(layout.entries) + int(np.diff(layout.block_offsets).max(initial=0))
        document_block = fitting(settings["document_block"], self._default("document_block"), each)
        return cpu_fallback.RankWalk(layout, document_block=document_block, **common)
