"""`bitslice`: one bit per document, one word per distinct test, a boolean program per tree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from gpuqs import cpu_fallback
from gpuqs.cpu_fallback import making
from gpuqs.engines.base import CALL
from gpuqs.engines.cpu import CpuEngine, category_cost, kilonodes
from gpuqs.engines.parameters import Parameter
from gpuqs.forest import Forest
from gpuqs.layout.bitslice import MAX_PREDICATES, BitsliceLayout, build_bitslice, gray_values, value_tables, why_not
from gpuqs.layout.leaves import LeafValues
from gpuqs.layout.oblivious import level_nodes
from gpuqs.layout.programs import MAX_LEAVES
from gpuqs.layout.ranks import RankTables


class Bitslice(CpuEngine):
    """Hundreds of documents at a time, without a branch or a look-up per node."""

    name: ClassVar[str] = "bitslice"
    summary: ClassVar[str] = "bit-sliced: one bit per document, a boolean program per tree"

    parameters: ClassVar[tuple[Parameter, ...]] = (
        # Their words fit an L2 cache of 1 MiB at 64 bytes a word, beside the programs.
        Parameter("max_predicates", "distinct tests of a superblock", 12_000, 1, MAX_PREDICATES),
        # Decoding some of them twice would cost more than what overflows.
        Parameter("one_superblock", "so few distinct tests make one superblock", 20_000, 0, MAX_PREDICATES),
        # Programs and leaf values of so many stay in the L3 cache while other documents run.
        Parameter("max_nodes", "nodes of a superblock", 65_000, 1, 1 << 30),
        Parameter("word", "documents of a word, as far as the instruction set has such words", 512, 128, 512),
        Parameter("together", "words of documents that pass a superblock together, as far as they fit", 32, 1, 1024),
        Parameter("compiled", "1: tree programs become machine code, where they can; 0: not", 1, 0, 1),
    )

    #: Nanoseconds per node and word of so many documents: interpreted programs (False), compiled ones (True).
    word_costs: ClassVar[dict[bool, dict[int, float]]] = {
        False: {128: 1.9, 256: 2.6, 512: 4.3},
        True: {128: 1.4, 256: 2.1, 512: 3.2},
    }
    #: No other engine's program is as large (1,000 trees x 64 leaves: 20 to 50 us on an Intel server with AVX-512, 50
    #: to 70 on a Zen 5).
    cold_node: ClassVar[float] = 1.0
    cold_interpreted: ClassVar[float] = 1.0
    #: Nanoseconds per category set and document, by tables.
    category_set: ClassVar[float] = 0.07

    def supports(self, forest: Forest) -> str | None:
        return why_not(forest, MAX_LEAVES)

    def cost(self, forest: Forest, n_documents: int) -> float:
        widest = cpu_fallback.instruction_set().widest_word
        whole, rest = divmod(n_documents, widest)
        of_words = self.word_costs[cpu_fallback.compiles_programs()]
        word = next((w for w in of_words if w >= rest), widest) if not whole else widest
        words = (whole + (rest > 0)) * kilonodes(forest) * of_words[word]
        return CALL + words + category_cost(forest, n_documents, self.category_set)

    def cold(self, forest: Forest) -> float:
        if level_nodes(forest) is not None:  # programs of some loads a tree
            return kilonodes(forest) * CpuEngine.cold_node
        compiled = cpu_fallback.compiles_programs()
        return kilonodes(forest) * (self.cold_node if compiled else self.cold_interpreted)

    def _lay_out(
        self, forest: Forest, ranks: Callable[[], RankTables], settings: dict[str, int], machine: tuple[str, bool]
    ) -> BitsliceLayout:
        tables, one, most = ranks(), settings["one_superblock"], settings["max_predicates"]
        max_predicates = max(one, most) if len(tables.threshold) <= one else most
        compiled = bool(settings["compiled"]) and machine[1]
        return build_bitslice(forest, tables, max_predicates, settings["max_nodes"], compiled)

    def _bind(
        self, forest: Forest, layout: BitsliceLayout, settings: dict[str, int], **common: Any
    ) -> cpu_fallback.Bitslice:
        blocks = {name: settings[name] for name in ("word", "together")}
        threads = making.threads_for(len(forest.leaf_value))
        return cpu_fallback.Bitslice(layout, making=threads, **blocks, **common)

    def _bind_values(
        self, forest: Forest, layout: BitsliceLayout, values: LeafValues, isa: str
    ) -> tuple[LeafValues, cpu_fallback.Values]:
        values = gray_values(values, np.diff(forest.leaf_offsets), layout.oblivious)
        n_leaves = 32 if forest.n_leaves <= 32 else 64
        part_bytes = cpu_fallback.table_part(isa, n_leaves, values.value.itemsize)
        return values, cpu_fallback.Values(values, value_tables(values, part_bytes), n_leaves)
