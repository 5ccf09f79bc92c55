"""Checks for every device, emulated or real: exit leaves and sums against `reference`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from forests import forest_of_stumps, probing_documents, random_forest

from gpuqs.devices.base import GpuDevice
from gpuqs.engines.base import Engine
from gpuqs.engines.gpu.bitslice_gpu import BitsliceGpu
from gpuqs.engines.gpu.bitslice_placed import BitsliceSettings
from gpuqs.engines.gpu.qs_gpu import QsGpu
from gpuqs.engines.gpu.qs_placed import QsPlacedForest, QsSettings
from gpuqs.engines.gpu.walk_gpu import WalkGpu
from gpuqs.engines.gpu.walk_placed import WalkSettings
from gpuqs.engines.reference import Reference
from gpuqs.forest import CATEGORICAL, NAN_LEFT, Forest


@dataclass(frozen=True)
class Case:
    """A forest, named by what is special about it, and documents to score."""

    name: str
    fields: dict[str, Any]
    settings: QsSettings = field(default_factory=QsSettings)
    n_documents: int = 33
    dtype: type = np.float64

    def make(self) -> tuple[Forest, np.ndarray]:
        rng = np.random.default_rng(7)
        forest = random_forest(rng, **self.fields)
        return forest, probing_documents(rng, forest, self.n_documents, self.dtype)


CASES = [
    Case("paper's 32-bit masks", {"max_leaves": 32}),
    Case("float32 documents", {"max_leaves": 32}, dtype=np.float32),
    Case("words, up to 64 leaves", {"max_leaves": 64, "n_trees": 30}),
    Case("paper's 64-bit masks", {"max_leaves": 64}, QsSettings(form="mask64")),
    Case("64-bit masks, tree blocks of 7", {"max_leaves": 50}, QsSettings(form="mask64", tree_block=7)),
    Case("many leaves", {"max_leaves": 300, "n_trees": 8}, QsSettings(tree_block=3)),
    Case("chains", {"max_leaves": 100, "shape": "chain", "n_trees": 6}),
    Case("complete trees", {"max_leaves": 64, "shape": "complete"}, QsSettings(threads=64)),
    Case("one-leaf trees", {"max_leaves": 1, "n_trees": 5}),
    Case("stumps, one tree a block", {"max_leaves": 2, "n_trees": 9}, QsSettings(tree_block=1)),
    Case("no trees", {"n_trees": 0}),
    Case("tree blocks of odd sizes", {"n_trees": 45, "max_leaves": 20}, QsSettings(tree_block=11, threads=32)),
    Case("one document a block", {"max_leaves": 40}, QsSettings(documents_per_block=1)),
    Case(
        "four documents a block, one word a tree", {"max_leaves": 32, "n_trees": 70}, QsSettings(documents_per_block=4)
    ),
    Case(
        "four documents a block, tree blocks of 7",
        {"max_leaves": 40},
        QsSettings(form="words", documents_per_block=4, tree_block=7),
    ),
    Case(
        "four documents a block, long columns",
        {"max_leaves": 60, "n_trees": 60, "n_features": 3, "n_thresholds": 40},
        QsSettings(documents_per_block=4, threads=256),
    ),
    Case("unused features", {"n_features": 70, "n_trees": 2, "max_leaves": 5}),
    Case("one feature, uint16 pivots", {"n_features": 1, "n_trees": 60, "n_thresholds": 200}),
    Case("1,024 threads", {"max_leaves": 20, "n_trees": 40}, QsSettings(threads=1024), n_documents=3),
    Case("classes", {"n_outputs": 3, "n_trees": 21, "max_leaves": 40}, QsSettings(tree_block=8)),
    Case("more classes than warps", {"n_outputs": 40, "n_trees": 80}, QsSettings(threads=64)),
    Case("more trees than threads", {"n_trees": 150, "max_leaves": 8}, QsSettings(threads=64), n_documents=9),
    Case("trees in every warp", {"n_trees": 150, "max_leaves": 8}, QsSettings(threads=128), n_documents=3),
    Case("many trees a class", {"n_outputs": 2, "n_trees": 150, "max_leaves": 8}, n_documents=9),
    Case("vector leaves", {"n_outputs": 3, "vector_leaves": True, "max_leaves": 40}, QsSettings(tree_block=9)),
    Case("vector leaves, 64-bit", {"n_outputs": 2, "vector_leaves": True}, QsSettings(form="mask64")),
    Case("float32 forest", {"sum_dtype": "float32", "input_dtype": "float32"}, dtype=np.float32),
    Case("float32 forest, float64 documents", {"sum_dtype": "float32", "input_dtype": "float32"}),
    Case("category sets", {"categorical": 0.5, "max_leaves": 40}),
    Case("category sets, float32 documents", {"categorical": 0.5, "max_leaves": 40}, dtype=np.float32),
    Case("category sets alone, float32 forest", {"categorical": 1.0, "input_dtype": "float32"}),
    Case("base score last, averages", {"base_first": False, "average": True}),
    *(Case(f"{n} documents", {"max_leaves": 33}, n_documents=n) for n in (0, 1, 31, 32)),
]


#: Cases special to `bitslice_gpu`; the settings of `CASES` are `qs_gpu`'s, and mean nothing to it.
OF_BITS = [
    Case("oblivious trees", {"shape": "oblivious", "max_leaves": 64}),
    Case("oblivious trees of many levels", {"shape": "oblivious", "max_leaves": 512, "n_trees": 5}),
    Case("thresholds beyond one byte", {"n_features": 2, "n_trees": 30, "n_thresholds": 700, "max_leaves": 60}),
]


#: Functions that make documents with another layout in memory.
STRIDED = [np.asfortranarray, lambda x: x[::-1, ::-1], lambda x: np.repeat(x, 3, 0)[::3]]
INTEGERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]


def of_integers(dtype: str, integer_dtype: str) -> tuple[Forest, np.ndarray]:
    """A forest whose library casts integers to ``integer_dtype``; documents with the extreme values of ``dtype``."""
    rng = np.random.default_rng(5)
    forest = random_forest(rng, integer_dtype=integer_dtype)
    info = np.iinfo(dtype) if dtype != "?" else None
    values = np.array([0, 1] if info is None else [0, 1, 2, 3, info.min, info.max], dtype)
    return forest, rng.choice(values, (33, forest.n_features))


def rounded_twice() -> tuple[Forest, np.ndarray]:
    """Integers of which only the third exits on the right: rounding twice brings the second to the threshold."""
    threshold = np.array([float(np.float32(2**60))])
    forest = forest_of_stumps(threshold, np.random.default_rng(14), input_dtype="float32", integer_dtype="float64")
    return forest, np.array([[2**60], [2**60 + 2**36 + 1], [2**60 + 2**38]])


def of_categories(routing: int) -> tuple[Forest, np.ndarray]:
    """Sets of zero to three words, all with one routing, and codes in, at and beyond their ends."""
    sets = [[], [1], [1 << 31], [0, 1], [0xFFFFFFFF, 1 << 31], [0, 0, 0xA0000005]]
    stumps = forest_of_stumps(np.zeros(2 * len(sets)), np.random.default_rng(12))
    forest = replace(
        stumps,
        routing=np.repeat(np.array([CATEGORICAL, CATEGORICAL | NAN_LEFT], np.uint8), len(sets)) | np.uint8(routing),
        category_offsets=np.cumsum([0, *map(len, sets * 2)]),
        category_words=np.concatenate([np.array(words, np.uint32) for words in sets * 2]),
    )
    codes = np.array([-33, -1, 0, 1, 31, 32, 63, 64, 66, 95, 96, 1 << 30], float)
    far = np.array([-0.0, np.nan, np.inf, -np.inf, 5e-324, 2.0**31, -(2.0**31), 1e300])
    near = [np.nextafter(codes, toward) for toward in (-np.inf, np.inf)]
    return forest, np.concatenate([codes, codes + 0.5, *near, far])[:, None]


@dataclass(frozen=True)
class Expected:
    """Answers of `reference` for a forest and documents."""

    leaves: np.ndarray
    exact: np.ndarray
    fast: np.ndarray
    #: Largest error that a sum in another order can have: n_trees ulps of the sum of magnitudes.
    bound: np.ndarray


def expected(forest: Forest, documents: np.ndarray) -> Expected:
    """Documents are float32 or float64, or integers, which are cast as the source library casts them."""
    if documents.dtype.kind in "iub":
        documents = documents.astype(forest.integer_dtype)
    reference, sums = Reference(), {}
    for precision in ("exact", "fast"):
        program = reference.prepare(forest, precision)
        sums[precision] = np.zeros((len(documents), forest.n_outputs), program.values.sum_dtype)
        reference.score(program, documents, sums[precision], 1)
    leaves = np.zeros((len(documents), forest.n_trees), np.int32)
    reference.leaves(program, documents, leaves, 1)
    values = reference.prepare(forest, "exact").values
    largest = np.abs(values.value.astype(np.float64)).max(axis=1)
    magnitudes = np.abs(values.start).max() + sum(
        largest[values.offsets[t] : values.offsets[t + 1]].max() for t in range(forest.n_trees)
    )
    ulp = float(np.spacing(values.sum_dtype.type(magnitudes)))
    return Expected(leaves, sums["exact"], sums["fast"], np.float64(max(forest.n_trees, 1) * ulp))


@dataclass(frozen=True)
class Answers:
    """Answers of a GPU engine, as NumPy arrays."""

    leaves: np.ndarray
    exact: np.ndarray
    fast: np.ndarray


def answers(device: GpuDevice, forest: Forest, documents: np.ndarray, engine: Engine) -> Answers:
    """Copy documents to the device, score them in both precisions, and find their exit leaves."""
    assert engine.why_not(forest) is None
    sums = {}
    with device.active():
        on_device = device.from_host(documents)
        for precision in ("exact", "fast"):
            program = engine.prepare(forest, precision, device=device)
            out = device.empty((len(documents), forest.n_outputs), program.values.sum_dtype)
            engine.score(program, on_device, out)
            sums[precision] = device.to_host(out)
        out = device.empty((len(documents), forest.n_trees), np.int32)
        engine.leaves(program, on_device, out)
    return Answers(device.to_host(out), sums["exact"], sums["fast"])


def check(device: GpuDevice, forest: Forest, documents: np.ndarray, settings: QsSettings) -> Answers:
    """Compare the answers of `qs_gpu` with `reference`'s; returns them."""
    got, want = answers(device, forest, documents, QsGpu(settings)), expected(forest, documents)
    np.testing.assert_array_equal(got.leaves, want.leaves)
    np.testing.assert_array_equal(got.fast, want.fast)
    assert np.abs(got.exact - want.exact.astype(np.float64)).max(initial=0) <= want.bound
    np.testing.assert_array_equal(got.exact, sums_in_device_order(device, forest, want.leaves, settings))
    return got


def check_bits(
    device: GpuDevice, forest: Forest, documents: np.ndarray, settings: BitsliceSettings | None = None
) -> Answers:
    """Compare the answers of `bitslice_gpu` with `reference`'s, bit for bit; returns them."""
    return check_engine(device, forest, documents, BitsliceGpu(settings))


def check_walks(
    device: GpuDevice, forest: Forest, documents: np.ndarray, settings: WalkSettings | None = None
) -> Answers:
    """As `check_bits`, for `walk_gpu`."""
    return check_engine(device, forest, documents, WalkGpu(settings))


def check_engine(device: GpuDevice, forest: Forest, documents: np.ndarray, engine: Engine) -> Answers:
    """Compare the answers of an engine with `reference`'s, bit for bit; returns them."""
    got, want = answers(device, forest, documents, engine), expected(forest, documents)
    np.testing.assert_array_equal(got.leaves, want.leaves)
    np.testing.assert_array_equal(got.fast, want.fast)
    np.testing.assert_array_equal(got.exact, want.exact)
    return got


def sums_in_device_order(
    device: GpuDevice, forest: Forest, leaf_ids: np.ndarray, settings: QsSettings
) -> np.ndarray:
    """The sums of the exit leaves' values, every addition in the order that the kernels promise."""
    program = QsGpu(settings).prepare(forest, "exact", device=device)
    placed: QsPlacedForest = program.forest
    values, (n, n_trees) = program.values, leaf_ids.shape
    per_tree = np.zeros((n, n_trees, values.value.shape[1]), values.sum_dtype)
    for tree in range(n_trees):
        leaves = slice(values.offsets[tree], values.offsets[tree + 1])
        order = np.argsort(values.leaf_id[leaves])
        at = order[np.searchsorted(values.leaf_id[leaves], leaf_ids[:, tree], sorter=order)]
        per_tree[:, tree] = values.value[leaves][at]
    sums = np.tile(values.start, (n, 1))
    for first, end in zip(placed.block_offsets, placed.block_offsets[1:], strict=False):
        trees = np.arange(first, end)
        for output in range(forest.n_outputs):
            vector = forest.vector_leaves
            mine = trees if vector or forest.n_outputs == 1 else trees[forest.tree_output[trees] == output]
            lanes = placed.threads if forest.n_outputs == 1 else 32
            sums[:, output] += _strided_sum(per_tree[:, mine, output if vector else 0], lanes)
    return sums


def _strided_sum(values: np.ndarray, n_threads: int) -> np.ndarray:
    """Thread t adds values t, t + n_threads, ...; warps by halving distances; warps in order."""
    threads = np.zeros((len(values), n_threads), values.dtype)
    for start in range(0, values.shape[1], n_threads):
        part = values[:, start : start + n_threads]
        threads[:, : part.shape[1]] += part
    warps = threads.reshape(len(values), n_threads // 32, 32)
    while warps.shape[2] > 1:  # lane 2i adds lane 2i + 1: offsets 1, 2, 4, 8, 16
        warps = warps[:, :, ::2] + warps[:, :, 1::2]
    total = warps[:, 0, 0].copy()
    for warp in range(1, warps.shape[1]):
        total += warps[:, warp, 0]
    return total
