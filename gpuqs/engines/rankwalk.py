"""`rankwalk`: branch-free walks over ranks of one byte, or all tests on them, for few documents at a time."""

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
from gpuqs.layout.ranks import MAX_THRESHOLDS, RankTables, most_thresholds
from gpuqs.layout.rankwalk import (
    FOLLOWING,
    MAX_ENTRIES,
    MAX_LEAVES,
    MOST_LANES,
    PATH_PLACES,
    REGISTERS_TOGETHER,
    TREE_BLOCK,
    WALKING,
    WALKING_NARROW,
    WALKS,
    RankWalkLayout,
    build_rankwalk,
    most_entries,
)

#: Bytes of the narrowest registers.
NARROW_LANES = 16


class RankWalk(CpuEngine):
    """Twelve trees side by side, all walked as far as the deepest of them goes; more documents are asked all tests."""

    name: ClassVar[str] = "rankwalk"
    summary: ClassVar[str] = "ranks of one byte: branch-free walks, or registers full of documents through all tests"

    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("tree_block", f"τ: trees of a block, in whole groups of {WALKS}", TREE_BLOCK, 1, 1 << 20),
        Parameter("document_block", "δ: documents that are coded, and pass a tree block, together", 128, 1, 4096),
    )
    #: Nanoseconds per step of a walk, and per column to code a document.
    step: ClassVar[float] = 0.48
    #: As much per step of what would be a walk.
    followed_step: ClassVar[float] = 0.32
    column: ClassVar[float] = 8.0
    #: Of more documents: nanoseconds per node of those that pass it together, and of each register of them; per tree
    #: and column of each document. So that they are to walks as measured on a Zen 3, 1,000 trees x 64 leaves.
    node: ClassVar[float] = 0.26
    register_node: ClassVar[float] = 0.24
    tree: ClassVar[float] = 0.3
    searched_column: ClassVar[float] = 2.9
    #: What a call reads once lies in order, and is asked for ahead (a Zen 5, 1 to 100 documents of 1,000 x 64).
    cold_node: ClassVar[float] = 0.35
    #: So many times as long where `bitslice` has words of 512 documents: they speed up its part, of this one none (an
    #: Intel server with AVX-512, 100 documents of 1,000 x 64).
    beside_wide_words: ClassVar[float] = 1.35

    def supports(self, forest: Forest) -> str | None:
        if forest.n_leaves > MAX_LEAVES:
            return f"a tree has {forest.n_leaves} leaves; walks by rank hold {MAX_LEAVES}"
        columns = find_columns(forest)
        if (most := most_thresholds(columns)) > MAX_THRESHOLDS:
            return f"a feature has {most} distinct thresholds; ranks hold {MAX_THRESHOLDS}"
        if (most := most_entries(columns)) > MAX_ENTRIES:
            return f"its columns take up to {most} bytes of rank; nodes tell {MAX_ENTRIES} apart"
        return None

    def cost(self, forest: Forest, n_documents: int) -> float:
        steps, columns = int(forest.tree_depth.sum()) * 1e-3, forest.n_features * 1e-3
        isa = cpu_fallback.instruction_set()
        lanes = min(isa.widest_word // 8, MOST_LANES)
        follows = isa.has_paths and forest.n_leaves <= PATH_PLACES
        if n_documents <= (FOLLOWING if follows else WALKING if lanes > NARROW_LANES else WALKING_NARROW):
            work = n_documents * (steps * (self.followed_step if follows else self.step) + columns * self.column)
        else:
            registers = math.ceil(n_documents / lanes)
            together = math.ceil(registers / REGISTERS_TOGETHER)
            if registers > 2:  # three are asked as four
                registers = together * REGISTERS_TOGETHER
            work = kilonodes(forest) * (together * self.node + registers * self.register_node)
            work += n_documents * (forest.n_trees * 1e-3 * self.tree + columns * self.searched_column)
            if isa.widest_word > 256:
                work *= self.beside_wide_words
        return CALL + work + category_cost(forest, n_documents)

    def _lay_out(
        self, forest: Forest, ranks: Callable[[], RankTables], settings: dict[str, int], machine: tuple[str, bool]
    ) -> RankWalkLayout:
        tree_block = -(-settings["tree_block"] // WALKS) * WALKS
        return build_rankwalk(forest, ranks(), tree_block, cpu_fallback.instruction_set(machine[0]).has_paths)

    def _bind(
        self, forest: Forest, layout: RankWalkLayout, settings: dict[str, int], **common: Any
    ) -> cpu_fallback.RankWalk:
        each = len(layout.ranks.columns) + len(layout.entries) + int(np.diff(layout.block_offsets).max(initial=0))
        return cpu_fallback.RankWalk(layout, document_block=fitting(settings["document_block"], 128, each), **common)
