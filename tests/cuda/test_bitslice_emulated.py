"""The bit-sliced engine's kernels, run by the emulation: equal to `reference` bit for bit, in both precisions."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from emulation.device import RTX3090, EmulatedDevice
from emulation.memory import Memory
from emulation.module import ORDERS
from forests import forest_of_columns, forest_of_stumps, probing_documents, random_forest
from gpu_conformance import CASES, INTEGERS, OF_BITS, STRIDED, Case, expected, of_categories, of_integers, rounded_twice
from gpu_conformance import check_bits as check
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from strategies import Drawn, forests

from gpuqs.engines.gpu.bitslice_gpu import BitsliceGpu
from gpuqs.engines.gpu.bitslice_placed import BitsliceSettings
from gpuqs.engines.reference import Reference
from gpuqs.forest import CATEGORICAL, WHOLE_CODES, Forest
from gpuqs.layout.ranks import MAX_THRESHOLDS, build_ranks

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation needs g++")

ONE, TWO = BitsliceSettings(words=1), BitsliceSettings(words=2)
#: Sums with one document per thread, and with four, which few documents would not get by default.
ONE_EACH, FOUR = BitsliceSettings(words=2, summed=1), BitsliceSettings(words=2, summed=4)


@pytest.fixture(scope="module")
def forward() -> EmulatedDevice:
    return EmulatedDevice()


@pytest.mark.parametrize("case", [*CASES, *OF_BITS], ids=lambda case: case.name)
def test_equals_reference(forward: EmulatedDevice, case: Case) -> None:
    check(forward, *case.make(), ONE)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("chosen", [ONE_EACH, FOUR], ids=["one", "four"])
def test_sums_of_many_documents_equal_reference(forward: EmulatedDevice, case: Case, chosen: BitsliceSettings) -> None:
    check(forward, *case.make(), chosen)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("n_trees", [1, 31, 32, 33, 64, 65, 96, 97, 128, 129])
def test_sums_of_few_documents_by_rounds(order: str, n_trees: int) -> None:
    """Rounds of 32 trees, in pairs; one thread block, and several, the last not full; vector leaves, outputs."""
    rng = np.random.default_rng(n_trees)
    for n, fields in ((130, {}), (31, {"n_outputs": 2, "vector_leaves": True}), (40, {"n_outputs": 3}),
                      (300, {"sum_dtype": "float32", "input_dtype": "float32"})):  # fmt: skip
        forest = random_forest(rng, n_trees=n_trees, max_leaves=64 if n < 100 else 9, n_features=4, **fields)
        device = EmulatedDevice(order)
        check(device, forest, probing_documents(rng, forest, n, np.float32))
        sums = {name.partition("<")[0] for _, name in device.launched if name.startswith("sum_")}
        assert "sum_few" in sums


@pytest.mark.parametrize("n", [1, 1023, 1025, 2100])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_block_ranks_a_tile_where_blocks_are_many(n: int, dtype: type) -> None:
    """On a device that one thread block fills; on others, tests have few blocks, which rank fewer documents."""
    rng = np.random.default_rng(n)
    forest = random_forest(rng, n_trees=12, max_leaves=20, n_features=19)
    device = EmulatedDevice()
    placed = BitsliceGpu().prepare(forest, "exact", device=device).forest
    n_blocks = -(-placed.n_columns // 8)
    assert n_blocks > 1
    for parts, words in ((1, 32), (2, 16), (4, 8), (8, 4), (80, 4)):
        device.attributes = replace(RTX3090, multiprocessors=n_blocks * parts // 2)
        assert placed._block_words(1) == words
        check(device, forest, probing_documents(rng, forest, n, dtype))


@pytest.mark.parametrize("order", ORDERS[1:])
@pytest.mark.parametrize("chosen", [TWO, ONE_EACH, FOUR], ids=["few", "one each", "four"])
@pytest.mark.parametrize(
    "name", ["words, up to 64 leaves", "many leaves", "more classes than warps", "trees in every warp", "category sets"]
)
def test_equals_reference_in_other_orders_of_threads(order: str, name: str, chosen: BitsliceSettings) -> None:
    case = next(case for case in [*CASES, *OF_BITS] if case.name == name)
    check(EmulatedDevice(order), *case.make(), chosen)


@pytest.mark.parametrize("order", ORDERS[1:])
@pytest.mark.parametrize("layout", ["C", "F"])
def test_tiles_of_documents_in_other_orders_of_threads(order: str, layout: str) -> None:
    """Several batches of documents per thread block, and more columns than one block ranks."""
    rng = np.random.default_rng(21)
    forest = random_forest(rng, n_trees=3, max_leaves=12, n_features=9)
    documents = np.asarray(probing_documents(rng, forest, 300, np.float32), order=layout)
    check(EmulatedDevice(order, attributes=replace(RTX3090, multiprocessors=1)), forest, documents)


#: Thresholds of each column: ranks of 1 to 14 bits, with the fewest and the most thresholds for several of them.
LENGTHS = [1, 2, 3, 127, 128, 255, 256, 511, 512, 1023, 2048, 9000]


def ranked(device: EmulatedDevice, forest: Forest, documents: np.ndarray, words: int) -> tuple[np.ndarray, np.ndarray]:
    """Ranks [D, C] and marks of missing values, as `rank_documents` writes them; zeros beyond the last word."""
    n, n_tiles = len(documents), -(-len(documents) // (1024 * words))
    with device.active():
        placed = BitsliceGpu(BitsliceSettings(words)).prepare(forest, "exact", device=device).forest
        planes = device.empty((n_tiles, placed.n_rank_planes, 32 * words), np.uint32)
        placed._rank(device.from_host(documents), words, n_tiles, planes)
    bits = np.unpackbits(device.to_host(planes).view(np.uint8), axis=2, bitorder="little").astype(np.int64)
    assert not bits[:, :, -(-n // 32) * 32 :].any()
    bits = bits.transpose(1, 0, 2).reshape(bits.shape[1], -1)[:, :n]
    tables = build_ranks(forest)
    ranks, marks = np.zeros(documents.shape, np.int64), np.zeros(documents.shape, bool)
    for column, (begin, n_bits) in enumerate(zip(tables.plane_offsets, tables.n_bits, strict=False)):
        ranks[:, column] = (bits[begin : begin + n_bits] << np.arange(n_bits)[:, None]).sum(axis=0)
        if tables.marks_missing[column]:
            marks[:, column] = bits[begin + n_bits]
    return ranks, marks


@pytest.mark.parametrize("words", [1, 2])
@pytest.mark.parametrize("layout", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ranks_of_columns_of_any_length(forward: EmulatedDevice, dtype: type, layout: str, words: int) -> None:
    """Values on, above and below thresholds, infinite and missing ones; not all levels are staged."""
    rng = np.random.default_rng(23)
    forest = forest_of_columns(rng, LENGTHS, infinite=True)
    tables, documents = build_ranks(forest), np.zeros((333, len(LENGTHS)), dtype)
    want = np.zeros(documents.shape, np.int64)
    for column in range(len(LENGTHS)):
        threshold = tables.threshold[tables.offsets[column] : tables.offsets[column + 1]]
        near = [np.nextafter(threshold.astype(dtype), dtype(toward)) for toward in (-np.inf, np.inf)]
        values = np.concatenate([threshold, *near, [np.inf, -np.inf, np.nan]])
        documents[:, column] = rng.choice(values, len(documents))
        documents[:3, column] = np.inf, -np.inf, np.nan
        want[:, column] = np.searchsorted(threshold, documents[:, column].astype(np.float64), "left")
    missing = np.isnan(documents)
    want = np.where(missing, (1 << tables.n_bits.astype(np.int64)) - 1, want)
    ranks, marks = ranked(forward, forest, np.asarray(documents, order=layout), words)
    np.testing.assert_array_equal(ranks, want)
    np.testing.assert_array_equal(marks, missing & (tables.marks_missing > 0))


def test_ranks_of_sixteen_bits(forward: EmulatedDevice) -> None:
    forest = forest_of_columns(np.random.default_rng(24), [MAX_THRESHOLDS])
    threshold = np.sort(forest.threshold)
    at = np.array([0, 1, 32767, 32768, 65533, 65534])
    documents = np.concatenate([[np.nan, np.inf, -np.inf], threshold[at], threshold[at] + 0.5])[:, None]
    want = np.concatenate([[65535, 65535, 0], at, at + 1])
    np.testing.assert_array_equal(ranked(forward, forest, documents, 1)[0][:, 0], want)


@pytest.mark.parametrize("words", [1, 2])
@pytest.mark.parametrize("case", [*CASES, *OF_BITS], ids=lambda case: case.name)
def test_steps_and_slots_give_the_same_planes(forward: EmulatedDevice, case: Case, words: int) -> None:
    """With several trees per warp, and several parts."""
    forest, documents = case.make()
    planes: dict[str, list[np.ndarray]] = {"steps": [], "slots": []}
    for evaluation, found in planes.items():
        chosen = BitsliceSettings(words=words, part_trees=25, warp_trees=3, evaluation=evaluation)
        with forward.active():
            placed = BitsliceGpu(chosen).prepare(forest, "exact", device=forward).forest
            assert placed.programs.stage == evaluation
            for _, _, part, leaves in placed._evaluated(forward.from_host(documents)):
                found.append(forward.to_host(leaves).ravel()[: part.n_trees * placed.n_planes * 32 * words])
    assert len(planes["steps"]) == (-(-forest.n_trees // 25) if len(documents) else 0)
    for steps, slots in zip(planes["steps"], planes["slots"], strict=True):
        np.testing.assert_array_equal(steps, slots)


@pytest.mark.parametrize("seed", range(10))
def test_random_forests_and_settings(forward: EmulatedDevice, seed: int) -> None:
    rng = np.random.default_rng(200 + seed)
    forest = random_forest(
        rng,
        n_trees=int(rng.integers(1, 90)),
        max_leaves=int(rng.choice([2, 3, 31, 64, 65, 130])),
        n_features=int(rng.integers(1, 40)),
        shape=str(rng.choice(["random", "chain", "complete", "oblivious"])),
        n_thresholds=int(rng.integers(14, 60)),
        n_outputs=int(rng.choice([1, 1, 1, 4])),
        input_dtype=str(rng.choice(["float32", "float64"])),
    )
    if rng.random() < 0.3:
        forest = replace(forest, left=forest.right, right=forest.left)
    chosen = BitsliceSettings(
        words=int(rng.choice([1, 2])),
        max_predicates=int(rng.choice([1, 200, 1 << 16])),
        part_trees=int(rng.choice([1, 7, 1000])),
        warp_trees=int(rng.choice([1, 4, 40])),
        evaluation=str(rng.choice(["steps", "steps", "slots"])),
        summed=[4, 1, None][rng.integers(3)],
    )
    dtype = np.float32 if rng.random() < 0.5 else np.float64
    check(forward, forest, probing_documents(rng, forest, int(rng.integers(1, 50)), dtype), chosen)


@settings(max_examples=15, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate, Phase.shrink],
          suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])  # fmt: skip
@given(forests(max_nodes=800), st.sampled_from([0, 1, 31, 32, 33, 65]), st.sampled_from([np.float64, np.float32]))
def test_generated_forests(forward: EmulatedDevice, drawn: Drawn, n: int, dtype: type) -> None:
    forest = drawn.forest()
    assume(BitsliceGpu().why_not(forest) is None)
    check(forward, forest, drawn.documents(forest, n, dtype))


@pytest.mark.parametrize("leaves", [4094, 9000])
def test_trees_of_thousands_of_leaves(forward: EmulatedDevice, leaves: int) -> None:
    rng = np.random.default_rng(17)
    shape = "complete" if leaves == 9000 else "chain"
    forest = random_forest(rng, n_trees=2, max_leaves=leaves, shape=shape, n_thresholds=500)
    check(forward, forest, probing_documents(rng, forest, 40))


def test_tree_blocks_have_rows_of_their_own(forward: EmulatedDevice) -> None:
    rng = np.random.default_rng(19)
    forest = random_forest(rng, n_trees=150, max_leaves=8)
    check(forward, forest, probing_documents(rng, forest, 20), BitsliceSettings(max_predicates=1, part_trees=40))


@pytest.mark.parametrize("scratch_bytes", [1, 1 << 30])
def test_thousands_of_documents(scratch_bytes: int) -> None:
    """Several tiles, the last of them not full; cut into batches of a tile, parts of five trees, or all in one."""
    rng = np.random.default_rng(18)
    forest = random_forest(rng, n_trees=12, max_leaves=20, n_features=9)
    device = EmulatedDevice(scratch_bytes=scratch_bytes)
    settings = BitsliceSettings(part_trees=5) if scratch_bytes == 1 else None
    check(device, forest, probing_documents(rng, forest, 5000, np.float32), settings)
    asked = Counter(name for _, name in device.launched)
    batches, parts = (3, 3) if scratch_bytes == 1 else (1, 1)
    # Once per program to load it; then two precisions, and leaves. Rows serve all parts of a tree block.
    assert asked["steps<2>"] == 2 + 3 * batches * parts
    assert asked["decode_predicates<2>"] == 2 + 3 * batches


@pytest.mark.parametrize(("n", "each"), [(3073, 1), (4096, 4), (4097, 1)])
def test_a_thread_sums_as_many_documents_as_keep_multiprocessors_even(n: int, each: int) -> None:
    """The busiest of 82 multiprocessors has 6 blocks with one document per thread or 2 with four; 7 or 2; 7 or 3."""
    rng = np.random.default_rng(27)
    forest = random_forest(rng, n_trees=70, max_leaves=4, n_features=3, n_outputs=33)
    device = EmulatedDevice()
    check(device, forest, probing_documents(rng, forest, n, np.float32))
    asked = Counter(name for _, name in device.launched if name.startswith("sum_exact<double"))
    # Once per kernel to load it, and the launch.
    kernels = {(w, d): f"sum_exact<double, double, true, {w}, {d}>" for w in (1, 2) for d in (1, 4)}
    assert asked == {name: 1 + (which == (2, each)) for which, name in kernels.items()}


@pytest.mark.parametrize("scratch_bytes", [1, 1 << 20])
def test_where_memory_is_scarce_parts_are_as_large_as_their_rows(scratch_bytes: int) -> None:
    """Rows are decoded a few times, not once for each tree."""
    rng = np.random.default_rng(26)
    forest = random_forest(rng, n_trees=300, max_leaves=32, n_features=3, n_thresholds=50)
    device = EmulatedDevice(scratch_bytes=scratch_bytes)
    check(device, forest, probing_documents(rng, forest, 40, np.float32))
    placed = BitsliceGpu().prepare(forest, "exact", device=device).forest
    assert placed.part_trees >= placed.n_rows // placed.n_planes > 10


@pytest.mark.parametrize("precision", ["exact", "fast"])
def test_batches_take_one_batchs_memory(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch reuses the memory of the one before, so the scratch memory is enough."""
    rng = np.random.default_rng(25)
    forest = random_forest(rng, n_trees=12, max_leaves=20, n_features=9)
    device, asked = EmulatedDevice(scratch_bytes=200_000), [0]
    with device.active():
        placed = BitsliceGpu().prepare(forest, precision, device=device).forest
        documents = device.from_host(probing_documents(rng, forest, 12_000, np.float32))
        sums = device.empty((12_000, 1), placed.values.sum_dtype)
        monkeypatch.setattr(device.pool, "_find", lambda n, stream: asked.append(asked[-1] + n) or Memory(n))
        monkeypatch.setattr(device.pool, "take_back", lambda m, stream: asked.append(asked[-1] - len(m.bytes)))
        placed.score(documents, sums)
    np.testing.assert_array_equal(device.to_host(sums), getattr(expected(forest, device.to_host(documents)), precision))
    assert 100_000 < max(asked) <= device.scratch_bytes


@pytest.mark.parametrize("make", STRIDED)
def test_strided_documents(forward: EmulatedDevice, make) -> None:
    forest, documents = CASES[0].make()
    check(forward, forest, make(documents))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("integer_dtype", ["float32", "float64"])
def test_integer_documents(forward: EmulatedDevice, dtype: str, integer_dtype: str) -> None:
    check(forward, *of_integers(dtype, integer_dtype))


def test_integers_that_are_rounded_twice(forward: EmulatedDevice) -> None:
    assert check(forward, *rounded_twice()).leaves[:, 0].tolist() == [0, 0, 1]


@pytest.mark.parametrize("routing", range(CATEGORICAL, 2 * WHOLE_CODES, CATEGORICAL * 2))
def test_every_way_to_read_a_category(forward: EmulatedDevice, routing: int) -> None:
    check(forward, *of_categories(routing))


@pytest.mark.parametrize("n", [254, 255, 256, 6000])
def test_as_many_thresholds_as_ranks_hold(forward: EmulatedDevice, n: int) -> None:
    """Thresholds that do not fit shared memory are read from global memory."""
    forest = forest_of_stumps(np.arange(float(n)), np.random.default_rng(15))
    documents = np.array([[-1.0], [0.0], [n - 1.5], [n - 1.0], [n], [np.nan]])
    check(forward, forest, documents)


def test_sums_begin_with_what_is_there(forward: EmulatedDevice) -> None:
    forest, documents = CASES[2].make()
    engine = BitsliceGpu(BitsliceSettings(part_trees=11))
    with forward.active():
        for trees in (forest, forest.select(slice(0, 0))):
            for precision, dtype in (("fast", np.int64), ("exact", np.float64)):
                program = engine.prepare(trees, precision, device=forward)
                before = expected(forest, documents).fast.astype(dtype)
                sums = forward.from_host(before)
                engine.score(program, forward.from_host(documents), sums, started=True)
                started = before.copy()
                reference = Reference()
                reference.score(reference.prepare(trees, precision), documents, started, 1, True)
                np.testing.assert_array_equal(forward.to_host(sums), started)


@pytest.mark.parametrize("max_leaves", [16, 100])
def test_per_tree_values_are_the_exit_leaves(forward: EmulatedDevice, max_leaves: int) -> None:
    forest, documents = Case("", {"n_outputs": 2, "vector_leaves": True, "max_leaves": max_leaves}).make()
    engine = BitsliceGpu(BitsliceSettings(part_trees=7))
    with forward.active():
        program = engine.prepare(forest, "exact", device=forward)
        out = forward.empty((len(documents), forest.n_trees, 2), np.float64)
        engine.per_tree(program, forest, forward.from_host(documents), out)
    by_id = forest.leaf_offsets[:-1] + expected(forest, documents).leaves  # numbered by position in the forest
    np.testing.assert_array_equal(forward.to_host(out), forest.leaf_value[by_id])


def test_what_it_cannot_hold_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(9)
    assert BitsliceGpu().why_not(forest_of_stumps(np.arange(30.0), rng)) is None
    engine, layout = "gpuqs.engines.gpu.bitslice_gpu", "gpuqs.layout.bitslice"
    for limit, most, forest, why in (
        (f"{engine}.MAX_LEAVES", 63, random_forest(rng, n_trees=1, max_leaves=64, shape="complete"), "64 leaves"),
        (f"{engine}.MAX_COLUMNS", 3, random_forest(rng, n_features=4), "columns"),
        (f"{layout}.MAX_THRESHOLDS", 29, forest_of_stumps(np.arange(30.0), rng), "30 distinct thresholds"),
        (f"{engine}.MAX_GRID", 2, random_forest(rng, n_outputs=3), "3 outputs"),
        ("gpuqs.layout.category_tables.TIMES_SETS", 0, random_forest(rng, categorical=1.0), "sets take tables"),
    ):
        with monkeypatch.context() as smaller:
            smaller.setattr(limit, most)
            smaller.setattr("gpuqs.layout.category_tables.MAX_BYTES", 0)
            assert why in str(BitsliceGpu().why_not(forest))
