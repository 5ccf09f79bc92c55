"""`walk`: a plain tree walk on the CPU, for trees that no bitvector holds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from gpuqs import cpu_fallback
from gpuqs.cpu_fallback import Machine
from gpuqs.engines.base import CALL
from gpuqs.engines.cpu import CpuEngine, category_cost, cold_reads, fitting, microseconds
from gpuqs.engines.parameters import Parameter
from gpuqs.forest import Forest
from gpuqs.kept import once_each
from gpuqs.layout.ranks import RankTables
from gpuqs.layout.walk import MAX_LEAVES, WalkLayout, build_walk, has_short_links, max_rows

#: Fewest leaves of a large tree, whose top may be cut off, and most columns per large tree with which tops pay: for the
#: tops, documents are coded on all columns, however few the trees (an AMD EPYC, Zen 4: 20 to 700 columns).
MIN_BELOW, MAX_CODED = 512, 5


class Walk(CpuEngine):
    """From the root to a leaf, tree by tree, over blocks of documents."""

    name: ClassVar[str] = "walk"
    summary: ClassVar[str] = "plain tree walk, for trees of any depth"

    #: Nanoseconds per visited node in trees of up to 256 leaves, and in addition for each doubling of the leaves (an
    #: AMD EPYC, Zen 4: twelve forests of scikit-learn of up to 12,642 leaves; then keys made the latter less).
    visit: ClassVar[float] = 0.75
    doubling: ClassVar[float] = 0.12
    #: Per document and column.
    column: ClassVar[float] = 0.6
    #: Starting takes as long as this share of a document (an Intel server with AVX-512: five forests of 31 to 255
    #: leaves).
    begun: ClassVar[float] = 0.7
    #: If programs go through the tops: the share of the walks' time that remains, and the additional nanoseconds per
    #: document and column (an AMD EPYC, Zen 4, with AVX2: seven forests of scikit-learn of 754 to 12,732 leaves).
    below: ClassVar[float] = 0.75
    coded: ClassVar[float] = 0.5
    cold_call: ClassVar[float] = 13.0
    cold_node: ClassVar[float] = 0.55
    cold_tree: ClassVar[float] = 3.5
    cold_column: ClassVar[float] = 0.5
    cold_value: ClassVar[float] = 1.5
    #: Nodes that come from memory for each visited one: those of its cache line, and of lines prefetched with it.
    nodes_of_visit: ClassVar[int] = 16
    #: The same for walks with gathers: measured on an Intel server (Sapphire Rapids or later), scaled as other engines'
    #: times there compare with their costs; forests of 31 to 31,765 leaves.
    gathered_visit: ClassVar[float] = 0.42
    gathered_doubling: ClassVar[float] = 0.1
    gathered_begun: ClassVar[float] = 0.7
    gathered_cold_call: ClassVar[float] = 12.0
    gathered_cold_node: ClassVar[float] = 0.3
    gathered_cold_exit: ClassVar[float] = 1.7
    gathered_cold_column: ClassVar[float] = 4.0
    #: Fewest and most documents that go through a tree while it is in the cache, if `document_block` is 0.
    document_blocks: ClassVar[tuple[int, int]] = (256, 16384)

    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("tree_block", "τ: trees of a block; 0: by the kernel and the largest tree", 0, 0, 1 << 12),
        Parameter("document_block", "δ: documents that pass a tree together; 0: by the largest tree", 0, 0, 1 << 14),
        Parameter("tops", "1: many documents go through large trees' tops as bit slices; 0: they walk", 1, 0, 1),
    )

    def why_not(self, forest: Forest) -> str | None:
        if forest.n_leaves > MAX_LEAVES:
            return f"a tree has {forest.n_leaves} leaves; walks hold {MAX_LEAVES}"
        return None

    def cost(self, forest: Forest, n_documents: int, machine: Machine | None = None) -> float:
        visit, doubling, begun = self.visit, self.doubling, self.begun
        if walks_nodes_alone(forest, machine):
            visit, doubling, begun = self.gathered_visit, self.gathered_doubling, self.gathered_begun
        each, column = visit + doubling * max(math.log2(max(forest.n_leaves, 2)) - 8, 0), self.column
        if _has_tops(forest, machine) and 2 * n_documents >= _widest_word(machine):
            each, column = each * self.below, column + self.coded
        walked = (n_documents + begun) * _visits(forest) * each * 1e-3
        columns = n_documents * microseconds(forest, column=column)
        return CALL + walked + columns + category_cost(forest, n_documents)

    def cold(self, forest: Forest, n_documents: int, machine: Machine | None = None) -> float:
        if not walks_nodes_alone(forest, machine):
            untouched = max(forest.n_nodes - self.nodes_of_visit * n_documents * _visits(forest), 0.0)
            return super().cold(forest, n_documents, machine) - untouched * self.cold_node * 1e-3
        per_tree, per_column = (0.0, self.gathered_cold_exit), (self.gathered_cold_column, self.cold_value)
        return self.gathered_cold_call + cold_reads(forest, n_documents, self.gathered_cold_node, per_tree, per_column)

    def _lay_out(
        self, forest: Forest, ranks: Callable[[], RankTables], settings: dict[str, int], machine: Machine
    ) -> WalkLayout:
        nodes_alone = walks_nodes_alone(forest, machine)
        tree_block = settings["tree_block"] or _trees_together(forest, nodes_alone)
        with_tops = bool(settings["tops"]) and _has_tops(forest, machine)
        return build_walk(forest, tree_block, nodes_alone=nodes_alone, with_tops=with_tops)

    def _bind(
        self, forest: Forest, layout: WalkLayout, settings: dict[str, int], **common: Any
    ) -> cpu_fallback.Walk:
        each = len(layout.columns) + int(np.diff(layout.block_offsets).max(initial=0)) // 2
        if document_block := settings["document_block"]:
            document_block = fitting(document_block, 16, each)
        else:
            document_block = fitting(_by_largest_tree(forest, self.document_blocks), 16, each) // 16 * 16
        tops = None
        if layout.tops is not None:
            tops = cpu_fallback.Bitslice(layout.tops.programs, word=512, together=1, making=1, **common)
        return cpu_fallback.Walk(layout, document_block=min(document_block, max_rows(layout)), tops=tops, **common)


def _visits(forest: Forest) -> float:
    """Expected nodes and leaves that a document visits: halfway between balanced trees and the greatest depth."""
    doublings = math.log2(max(forest.n_leaves, 2))
    return (doublings * forest.n_trees + int(forest.tree_depth.sum())) / 2 + forest.n_trees


def _trees_together(forest: Forest, nodes_alone: bool) -> int:
    """Trees of a block: walks wait for each other only at its end, but documents keep a leaf number for each tree."""
    if not nodes_alone:
        return 64 if forest.n_leaves <= 4096 else 16
    return 512 if forest.n_leaves <= 1024 else 128


def _by_largest_tree(forest: Forest, document_blocks: tuple[int, int]) -> int:
    """Documents of a block: enough to make up for bringing the largest tree into the cache."""
    fewest, most = document_blocks
    return min(max(forest.n_leaves // 2, fewest), most)


def walks_nodes_alone(forest: Forest, machine: Machine | None) -> bool:
    """Whether walks of the forest on the machine read only nodes, not leaves."""
    return gathers(machine) and has_short_links(forest)


def _widest_word(machine: Machine | None) -> int:
    return cpu_fallback.instruction_set(machine.isa if machine else None).widest_word


def _has_tops(forest: Forest, machine: Machine | None) -> bool:
    """Whether programs go through the trees' tops, where many documents spend about half of their walks."""
    compiles = (machine or cpu_fallback.machine()).compiles
    return compiles and not walks_nodes_alone(forest, machine) and _have_tops(forest)


@once_each
def _have_tops(forest: Forest) -> bool:
    n_large = np.count_nonzero(np.diff(forest.leaf_offsets) >= MIN_BELOW)
    many = n_large * MAX_CODED >= len(forest.tested) and 2 * n_large >= forest.n_trees
    return bool(n_large and many and not forest.has_categories)


def gathers(machine: Machine | None = None) -> bool:
    """Whether walks on the machine use gathers, which read only nodes."""
    return cpu_fallback.instruction_set(machine.isa if machine else None).gathers
