"""Writes kernel inputs and the results of `reference`, for machines that are too slow for Python.

    python tests/neon/write_cases.py FILE

Engines prepare generated forests here; the arrays that they would bind to C++ go to the file, in the order in
which conformance.cpp reads them. The machine code here is for another processor: programs are interpreted there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, BinaryIO
from unittest import mock

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from forests import forest_of_stumps, probing_documents, random_forest, threshold_documents

from gpuqs import cpu_fallback
from gpuqs.engines import ENGINES
from gpuqs.forest import Forest

LINE = 64  # arrays start on whole cache lines

#: Generated forests: every shape and mask width, every kind of value, ranks of 1 to 11 bits.
SHAPES: dict[str, dict[str, Any]] = {
    "2 leaves": {"max_leaves": 2, "n_trees": 70},
    "8 leaves, float32 sums": {"max_leaves": 8, "sum_dtype": "float32"},
    "16 leaves of float32 tests": {"max_leaves": 16, "input_dtype": "float32", "n_thresholds": 5},
    "32 leaves, float32 throughout": {
        "max_leaves": 32,
        "shape": "complete",
        "input_dtype": "float32",
        "sum_dtype": "float32",
        "n_thresholds": 100,
    },
    "32 leaves, categories": {"max_leaves": 32, "categorical": 0.4, "sum_dtype": "float32"},
    "33 leaves, chains": {"max_leaves": 33, "shape": "chain", "n_thresholds": 60},
    "64 leaves": {"max_leaves": 64, "shape": "complete", "n_thresholds": 200},
    "64 leaves, float32 sums": {"max_leaves": 64, "shape": "complete", "sum_dtype": "float32", "n_thresholds": 17},
    "64 leaves of float32 tests, base last": {"max_leaves": 64, "input_dtype": "float32", "base_first": False},
    "64 leaves, categories only": {"max_leaves": 64, "categorical": 1.0},
    "oblivious": {"max_leaves": 64, "shape": "oblivious", "categorical": 0.2, "sum_dtype": "float32"},
    "65 leaves, 3 outputs": {"max_leaves": 65, "n_outputs": 3, "n_thresholds": 400, "sum_dtype": "float32"},
    "128 leaves, 3 outputs a leaf": {"max_leaves": 128, "n_outputs": 3, "vector_leaves": True},
    "vectors of 5": {"n_trees": 40, "max_leaves": 30, "n_outputs": 5, "vector_leaves": True},
    "vectors of 33": {"n_trees": 30, "max_leaves": 20, "n_outputs": 33, "vector_leaves": True, "sum_dtype": "float32"},
    "256 leaves": {"max_leaves": 256, "n_thresholds": 900, "shape": "complete", "n_features": 3},
    "300 leaves": {"max_leaves": 300, "n_thresholds": 2500, "n_features": 2, "n_trees": 9, "shape": "complete"},
    "chains of 300 leaves": {"max_leaves": 300, "n_trees": 5, "shape": "chain", "sum_dtype": "float32"},
    "one feature": {"max_leaves": 20, "n_features": 1, "n_thresholds": 2},
    "no trees": {"n_trees": 0, "n_outputs": 2},
}
#: Numbers of thresholds of one feature, around the sizes at which the search method changes.
STUMPS = (1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 63, 64, 127, 128, 255, 256, 300, 700)


def cases() -> Iterator[tuple[str, Forest, np.ndarray]]:
    """Names, forests and documents."""
    for (name, fields), dtype in product(SHAPES.items(), (np.float32, np.float64)):
        rng = np.random.default_rng(len(name))
        forest = random_forest(rng, **fields)
        yield f"{name}, {dtype.__name__} documents", forest, probing_documents(rng, forest, 270, dtype)
    for n, dtype in product(STUMPS, (np.float32, np.float64)):
        rng = np.random.default_rng(n)
        forest = forest_of_stumps(np.unique(rng.normal(size=n)), rng, sum_dtype="float32")
        yield f"{n} thresholds, {dtype.__name__} documents", forest, threshold_documents(rng, forest, dtype)


class Writer:
    """Writes arrays, each after a line with its kind, bytes per item, and number of items."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def arrays(self, *arrays: Any) -> None:
        for given in arrays:
            array = np.ascontiguousarray(given)
            assert array.dtype.byteorder in "=|", "the reader is little-endian, as this machine must be"
            head = np.array([ord(array.dtype.kind), array.itemsize, array.size], np.int64)
            for data in (head.tobytes(), array.tobytes()):
                self._file.write(data + bytes(-len(data) % LINE))

    def text(self, text: str) -> None:
        self.arrays(np.frombuffer(text.encode(), np.uint8))

    def numbers(self, *numbers: int) -> None:
        self.arrays(*(np.int64([number]) for number in numbers))

    def columns(self, columns: Any) -> None:
        self.numbers(len(columns), columns.n_numeric)
        self.arrays(columns.feature, columns.routing, columns.set_offsets, columns.set_words)
        tables = columns.tables
        self.arrays(tables.tables, tables.row_of_code, tables.rows)


class Recorder:
    """Stands in for the classes of `gpuqs.cpu_fallback`: records what engines bind."""

    def __init__(self, writer: Writer) -> None:
        self._to = writer

    def quick_scorer(
        self, layout: Any, n_features: int, *, single: bool, together: int, document_block: int, isa: str
    ) -> None:
        to = self._to
        to.text("quickscorer")
        to.numbers(document_block, together, single, layout.mask_bits, layout.reversed is not None, layout.oblivious)
        to.columns(layout.columns)
        to.arrays(layout.block_offsets)
        for lists in filter(None, (layout.straight, layout.reversed)):
            for tuples in (lists.tests, lists.missing):
                to.arrays(tuples.offsets, tuples.tree, np.asarray(tuples.mask).view(np.uint8))
            to.arrays(lists.threshold32, lists.threshold64)

    def walk(
        self, layout: Any, n_features: int, *, single: bool, document_block: int, isa: str, tops: None
    ) -> None:
        assert tops is None, "programs that are interpreted go through no tops"
        to = self._to
        to.text("walk")
        to.numbers(document_block, single, layout.wide, layout.column_bits)
        to.columns(layout.columns)
        to.arrays(layout.block_offsets, layout.tree_offsets, layout.item32, layout.item64)

    def rankwalk(self, layout: Any, n_features: int, *, single: bool, document_block: int, isa: str) -> None:
        to, ranks = self._to, layout.ranks
        to.text("rankwalk")
        to.numbers(document_block, single)
        to.columns(ranks.columns)
        to.arrays(ranks.offsets, layout.threshold32, ranks.threshold)
        blocks = layout.blocks
        to.arrays(blocks.first, blocks.first_samples, blocks.threshold32, blocks.sample32)
        to.arrays(blocks.threshold64, blocks.sample64, layout.entries)
        to.arrays(layout.block_offsets, layout.tree, layout.root, layout.steps, layout.group_items, layout.items)
        to.arrays(layout.node_offsets, layout.tests)

    def bitslice(
        self, layout: Any, n_features: int, *, single: bool, word: int, together: int, making: int, isa: str
    ) -> None:
        to, ranks, programs = self._to, layout.ranks, layout.programs
        to.text("bitslice")
        to.numbers(word, together, single)
        to.columns(ranks.columns)
        to.arrays(ranks.n_bits, ranks.marks_missing, ranks.plane_offsets, ranks.level_offsets, ranks.levels)
        to.arrays(ranks.offsets, ranks.threshold)
        to.arrays(layout.block_offsets, layout.block_segments, layout.segments, layout.low, layout.block_low)
        to.numbers(layout.n_predicates)
        to.arrays(layout.level_offsets, layout.levels, layout.tree_leaves)
        to.numbers(programs.trees_merged, programs.n_slots)
        to.arrays(programs.group_runs, programs.runs, programs.group_treelets, programs.treelets, programs.tree_slot)

    def values(self, values: Any, tables: Any = None, table_leaves: int = 64) -> None:
        to = self._to
        to.arrays(values.value, values.offsets, values.tree_output, *values.neighbours, values.leaf_id, values.start)
        to.numbers(values.value.shape[1], values.n_outputs)
        to.arrays(np.zeros(0, np.uint8) if tables is None else tables)
        to.numbers(0 if tables is None else table_leaves)


def write(writer: Writer, name: str, forest: Forest, X: np.ndarray) -> None:
    """Write a forest, its documents, their results, and the programs of all engines that can run it."""
    writer.text(name)
    writer.arrays(X, np.asfortranarray(X).T)
    writer.numbers(*X.shape)
    reference = ENGINES["reference"]
    leaves = np.empty((len(X), forest.n_trees), np.int32)
    reference.leaves(reference.prepare(forest, "exact"), X, leaves, 1)
    writer.arrays(leaves)
    compiled = [engine for engine in ENGINES.values() if engine.device == "cpu" and engine is not reference]
    engines = [engine for engine in compiled if engine.why_not(forest) is None]
    writer.numbers(2 * len(engines))
    for precision in ("exact", "fast"):
        program = reference.prepare(forest, precision)
        sums = np.empty((len(X), forest.n_outputs), program.values.sum_dtype)
        reference.score(program, X, sums, 1)
        for engine in engines:
            engine.prepare(forest, precision)
            writer.arrays(sums)


def main(path: Path) -> None:
    with path.open("wb") as file:
        writer = Writer(file)
        recorder = Recorder(writer)
        stand_ins = {
            "QuickScorer": recorder.quick_scorer,
            "Walk": recorder.walk,
            "RankWalk": recorder.rankwalk,
            "Bitslice": recorder.bitslice,
            "Values": recorder.values,
            # Layouts as for portable code, without jumps.
            "machine": lambda: cpu_fallback.Machine(cpu_fallback.INSTRUCTION_SETS[-1].name, False),
            # Byte tables as for instruction sets with 16-byte registers.
            "table_part": lambda isa, n_leaves, value_bytes: int(value_bytes == 4),
        }
        with mock.patch.multiple(cpu_fallback, **stand_ins):
            every = list(cases())
            writer.numbers(len(every))
            for name, forest, X in every:
                write(writer, name, forest, X)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
