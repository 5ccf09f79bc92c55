"""`bitslice`: one bit per document, one word per distinct test, a boolean program per tree."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, Final

import numpy as np

from gpuqs import cpu_fallback
from gpuqs.cpu_fallback import Machine, making
from gpuqs.engines.base import CALL, CacheSizes
from gpuqs.engines.cpu import CpuEngine, category_cost
from gpuqs.engines.parameters import Changed, Parameter
from gpuqs.forest import Forest
from gpuqs.layout.bitslice import (
    MAX_COLUMNS,
    MAX_PREDICATES,
    BitsliceLayout,
    build_bitslice,
    gray_values,
    value_tables,
    why_not,
)
from gpuqs.layout.leaves import TABLE_LEAVES, LeafValues
from gpuqs.layout.oblivious import is_oblivious, n_levels
from gpuqs.layout.programs import MAX_LEAVES
from gpuqs.layout.ranks import RankTables, count_tests

#: Numbers of documents that are coded together (`rank_block`): the smallest that holds a whole call, or the largest.
CODED_TOGETHER = (16, 32, 64, 128)
#: Default number of nodes of a superblock.
MAX_NODES = 65_000
#: The same for batches of at least so many documents, on processors whose L2 cache has at least so many bytes: it holds
#: the programs and leaf values of so many nodes along with the words of their tests, 512 documents each. Small batches
#: would gain less than it takes to decode some tests twice (an Intel Xeon, Emerald Rapids: 1,000 and 20,000 x 64).
CACHED_NODES = 32_768
LARGE_BATCH = 2_048  # at most `gpuqs.chooser.MAX_ASKED`
LARGE_L2 = 2 << 20
#: Widest leaf vectors, in columns, that are looked up in tables, by whether registers have 64 bytes and by the values'
#: type. Wider vectors are added whole, which is faster (measured on an AMD EPYC, Zen 4: 1 to 16 columns).
MAX_TABLE_COLUMNS: Final = {False: {"f8": 1, "f4": 3, "i4": 1 << 30}, True: {"f8": 3, "f4": 11, "i4": 1 << 30}}


class Bitslice(CpuEngine):
    """Hundreds of documents at a time, without a branch or a look-up per node."""

    name: ClassVar[str] = "bitslice"
    summary: ClassVar[str] = "bit-sliced: one bit per document, a boolean program per tree"

    parameters: ClassVar[tuple[Parameter, ...]] = (
        # The words of this many tests, of 64 bytes each, fit an L2 cache of 1 MiB along with the programs.
        Parameter("max_predicates", "distinct tests of a superblock", 12_000, 1, MAX_PREDICATES),
        # For small batches, decoding some tests twice, in two superblocks, costs more than overflowing the cache.
        Parameter("one_superblock", "so few distinct tests make one superblock", 20_000, 0, MAX_PREDICATES),
        # Programs and leaf values of this many nodes stay in the L3 cache while further documents run. (See `usual`.)
        Parameter("max_nodes", "nodes of a superblock", MAX_NODES, 1, 1 << 30),
        Parameter("word", "documents of a word, as far as the instruction set has such words", 512, 128, 512),
        Parameter("together", "words of documents that pass a superblock together, as far as they fit", 32, 1, 1024),
        Parameter("compiled", "1: tree programs become machine code, where they can; 0: not", 1, 0, 1),
    )

    #: Nanoseconds per node and word, by the documents of a word: interpreted programs (False), compiled ones (True).
    word_costs: ClassVar[dict[bool, dict[int, float]]] = {
        False: {128: 1.5, 256: 1.8, 512: 2.3},
        True: {128: 0.95, 256: 1.45, 512: 1.6},
    }
    #: The same per tree (half of it for oblivious trees, which have no programs), and per level of oblivious trees.
    tree_costs: ClassVar[dict[int, float]] = {128: 8.0, 256: 17.0, 512: 31.0}
    level_costs: ClassVar[dict[int, float]] = {128: 2.5, 256: 3.8, 512: 6.0}
    #: Nanoseconds per word and decoded test, for tests in excess of `usual_tests` per node, if trees are too large for
    #: tables: such a test serves only a node or two (an AMD EPYC, Zen 4: six forests of scikit-learn, one of XGBoost).
    rare_test: ClassVar[float] = 1.8
    usual_tests: ClassVar[float] = 0.5
    #: Nanoseconds per tree and place of a document in a word, if leaf values are read one by one.
    value: ClassVar[float] = 0.24
    #: Nanoseconds per column: for each run of documents that are coded together, and for each place in a run, by
    #: whether registers have 32 bytes or more.
    column: ClassVar[float] = 12.0
    place: ClassVar[dict[bool, float]] = {False: 2.5, True: 0.25}
    #: Nanoseconds per column and place for each bit of a rank beyond `shallow`, if trees are too large for tables, by
    #: whether registers have 64 bytes (an AMD EPYC, Zen 4: ranks of 1 to 14 bits).
    deep_bit: ClassVar[dict[bool, float]] = {False: 0.33, True: 0.05}
    shallow: ClassVar[int] = 5
    #: Nanoseconds per category set and 64 documents.
    category_set: ClassVar[float] = 7.0
    cold_call: ClassVar[float] = 18.0
    cold_node: ClassVar[float] = 0.4
    cold_tree: ClassVar[float] = 6.0
    cold_column: ClassVar[float] = 20.0
    cold_value: ClassVar[float] = 0.0
    #: Nanoseconds of `cold` for leaves of trees too large for tables: per leaf, or, if less, per document and tree.
    cold_leaf: ClassVar[float] = 0.67
    cold_line: ClassVar[float] = 6.4

    def why_not(self, forest: Forest) -> str | None:
        return why_not(forest, MAX_LEAVES, MAX_COLUMNS)

    def cost(self, forest: Forest, n_documents: int, machine: Machine | None = None) -> float:
        machine = machine or cpu_fallback.machine()
        isa = cpu_fallback.instruction_set(machine.isa)
        word = next(w for w in self.tree_costs if w >= min(n_documents, isa.widest_word))
        if is_oblivious(forest):
            each = int(n_levels(forest).sum()) * self.level_costs[word] + forest.n_trees * self.tree_costs[word] / 2
        else:
            of_node = self.word_costs[machine.compiles][word]
            each = forest.n_nodes * of_node + forest.n_trees * self.tree_costs[word]
            if forest.n_leaves > TABLE_LEAVES:
                each += self.rare_test * max(self._decoded(forest) - self.usual_tests * forest.n_nodes, 0.0)
        if not _has_tables(forest, isa.name):
            each += forest.n_trees * word * self.value
        together = next(n for n in CODED_TOGETHER if n >= min(n_documents, CODED_TOGETHER[-1]))
        runs = -(-n_documents // together)
        place = self.place[isa.widest_word > 128]
        if forest.n_leaves > TABLE_LEAVES:
            bits = math.log2(max(count_tests(forest), 1) / len(forest.tested))
            place += self.deep_bit[isa.widest_word == 512] * max(bits - self.shallow, 0.0)
        coding = len(forest.tested) * runs * (self.column + together * place)
        words = -(-n_documents // word) * each
        return CALL + (words + coding) * 1e-3 + category_cost(forest, -(-n_documents // 64), self.category_set)

    def _decoded(self, forest: Forest) -> float:
        """About how many tests a word decodes in all superblocks, as if each node had drawn its test at random."""
        n_tests = count_tests(forest)
        if n_tests <= self._default("one_superblock"):
            return n_tests
        most = self._default("max_predicates")
        return max(most * forest.n_nodes / (-n_tests * math.log1p(-most / n_tests)), n_tests)

    def cold(self, forest: Forest, n_documents: int, machine: Machine | None = None) -> float:
        leaves = len(forest.leaf_value) if forest.n_leaves > TABLE_LEAVES else 0
        of_leaves = min(leaves * self.cold_leaf, n_documents * forest.n_trees * self.cold_line)
        if is_oblivious(forest):  # one test per level
            of_leaves -= (forest.n_nodes - int(n_levels(forest).sum())) * self.cold_node
        return super().cold(forest, n_documents, machine) + of_leaves * 1e-3

    def usual(self, forest: Forest, n_documents: int, machine: Machine, caches: Callable[[], CacheSizes]) -> Changed:
        if n_documents < LARGE_BATCH or forest.n_nodes <= CACHED_NODES or forest.n_leaves > TABLE_LEAVES:
            return ()
        if not machine.compiles or cpu_fallback.instruction_set(machine.isa).widest_word < 512 or is_oblivious(forest):
            return ()
        return (("max_nodes", CACHED_NODES),) if caches()[1] >= LARGE_L2 else ()

    def tree_shares(self, forest: Forest, n_documents: int) -> int:
        return max(forest.n_nodes // MAX_NODES, 1) if n_documents <= min(self.tree_costs) else 1

    def _lay_out(
        self, forest: Forest, ranks: Callable[[], RankTables], settings: dict[str, int], machine: Machine
    ) -> BitsliceLayout:
        tables, one, most = ranks(), settings["one_superblock"], settings["max_predicates"]
        max_predicates = max(one, most) if len(tables.threshold) <= one else most
        compiled = bool(settings["compiled"]) and machine.compiles
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
        n_leaves = _table_leaves(forest)
        part_bytes = _part_bytes(forest, isa, values.value.dtype)
        return values, cpu_fallback.Values(values, value_tables(values, part_bytes), n_leaves)


def _table_leaves(forest: Forest) -> int:
    return 32 if forest.n_leaves <= 32 else TABLE_LEAVES


def _has_tables(forest: Forest, isa: str) -> bool:
    """Whether exact leaf values are looked up in registers."""
    return forest.n_leaves <= TABLE_LEAVES and _part_bytes(forest, isa, np.dtype(forest.sum_dtype)) > 0


def _part_bytes(forest: Forest, isa: str, of_values: np.dtype) -> int:
    """Bytes of each part into which tables cut a leaf value; 0: there are no tables."""
    registers_of_64 = cpu_fallback.instruction_set(isa).widest_word == 512
    max_columns = MAX_TABLE_COLUMNS[registers_of_64][of_values.str[1:]]
    if forest.has_linear_leaves or forest.leaf_value.shape[1] > max_columns:
        return 0
    return cpu_fallback.table_part(isa, _table_leaves(forest), of_values.itemsize)
