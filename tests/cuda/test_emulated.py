"""The kernels, run by the emulation and driven by the host code that drives CuPy, against `reference`."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from emulation.device import RTX3090, EmulatedDevice
from emulation.module import ORDERS
from forests import forest_of_stumps, probing_documents, random_forest
from gpu_conformance import CASES, INTEGERS, STRIDED, Case, check, expected, of_integers
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from strategies import Drawn, forests

from gpuqs.devices.pipeline import run
from gpuqs.engines.gpu.kernels import every_kernel
from gpuqs.engines.gpu.qs_gpu import QsGpu
from gpuqs.engines.gpu.qs_placed import QsSettings
from gpuqs.errors import DeviceError
from gpuqs.forest import CATEGORICAL, NAN_LEFT, SET_RIGHT, WHOLE_CODES

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation needs g++")


@pytest.fixture(scope="module", params=ORDERS)
def device(request: pytest.FixtureRequest) -> EmulatedDevice:
    return EmulatedDevice(request.param)


@pytest.fixture(scope="module")
def forward() -> EmulatedDevice:
    return EmulatedDevice()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_equals_reference_in_every_thread_order(device: EmulatedDevice, case: Case) -> None:
    check(device, *case.make(), case.settings)


@pytest.mark.parametrize("seed", range(15))
def test_random_forests_and_settings(forward: EmulatedDevice, seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    max_leaves = int(rng.choice([2, 3, 31, 32, 33, 64, 65, 130]))
    forest = random_forest(
        rng,
        n_trees=int(rng.integers(1, 40)),
        max_leaves=max_leaves,
        n_features=int(rng.integers(1, 40)),
        shape=str(rng.choice(["random", "chain", "complete"])),
        n_thresholds=int(rng.integers(14, 60)),
        n_outputs=int(rng.choice([1, 1, 1, 4])),
        input_dtype=str(rng.choice(["float32", "float64"])),
    )
    if rng.random() < 0.3:  # long left subtrees: tests that clear many words
        forest = replace(forest, left=forest.right, right=forest.left)
    form = str(rng.choice(["words", "mask64"] if max_leaves <= 64 else ["words"]))
    settings = QsSettings(
        form=form,
        tree_block=int(rng.integers(1, 20)),
        threads=int(rng.choice([32, 64, 256])),
        documents_per_block=int(rng.choice([1, 4])) if form == "words" else 1,
    )
    dtype = np.float32 if rng.random() < 0.5 else np.float64
    check(forward, forest, probing_documents(rng, forest, int(rng.integers(1, 50)), dtype), settings)


@settings(max_examples=40, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate, Phase.shrink],
          suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])  # fmt: skip
@given(forests(max_nodes=800), st.sampled_from([0, 1, 31, 32, 33, 65]), st.sampled_from([np.float64, np.float32]))
def test_generated_forests(forward: EmulatedDevice, drawn: Drawn, n: int, dtype: type) -> None:
    forest = drawn.forest()
    assume(QsGpu().why_not(forest) is None)
    check(forward, forest, drawn.documents(forest, n, dtype), QsSettings())


def test_uint32_pivots(forward: EmulatedDevice) -> None:
    rng = np.random.default_rng(3)
    forest = random_forest(
        rng, n_features=1, n_trees=4400, max_leaves=32, shape="complete", n_thresholds=5000
    )
    check(forward, forest, probing_documents(rng, forest, 3), QsSettings(tree_block=4400, documents_per_block=1))
    assert ("find_false_nodes.cu", "find_false_nodes<double, u32>") in forward.launched


def test_shared_memory_beyond_48_kib(forward: EmulatedDevice) -> None:
    rng = np.random.default_rng(4)
    forest = random_forest(rng, n_trees=13000, max_leaves=2, n_features=3, shape="complete")
    documents = probing_documents(rng, forest, 2)
    placed = QsGpu(QsSettings(tree_block=13000, documents_per_block=1)).prepare(forest, "exact", device=forward).forest
    assert placed.max_slots * 4 > 48 << 10
    sums = np.zeros((2, 1))
    run(forward, placed.score, documents, sums)
    want = expected(forest, documents)
    assert np.abs(sums - want.exact).max() <= want.bound


@pytest.mark.parametrize("make", STRIDED)
def test_strided_documents(forward: EmulatedDevice, make) -> None:
    forest, documents = CASES[0].make()
    strided = make(documents)
    check(forward, forest, strided, QsSettings())


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("integer_dtype", ["float32", "float64"])
def test_integer_documents(forward: EmulatedDevice, dtype: str, integer_dtype: str) -> None:
    check(forward, *of_integers(dtype, integer_dtype), QsSettings())


@pytest.mark.parametrize("routing", range(CATEGORICAL, 2 * WHOLE_CODES, CATEGORICAL * 2))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_code_of_every_way_to_read_a_category(forward: EmulatedDevice, routing: int, dtype: type) -> None:
    """Sets of 0 to 3 words, bits at their ends; codes in, at and beyond the end, and their neighbours."""
    sets = [[], [1], [1 << 31], [0x80000001], [0, 1], [0xFFFFFFFF, 1 << 31], [0, 0, 0xA0000005], [0, 0, 0]]
    rng = np.random.default_rng(12)
    stumps = forest_of_stumps(np.zeros(2 * len(sets)), rng)
    forest = replace(
        stumps,
        routing=np.repeat(np.array([CATEGORICAL, CATEGORICAL | NAN_LEFT], np.uint8), len(sets)) | np.uint8(routing),
        category_offsets=np.cumsum([0, *map(len, sets * 2)]),
        category_words=np.concatenate([np.array(words, np.uint32) for words in sets * 2]),
    )
    whole = np.array([-33, -2, -1, 0, 1, 2, 30, 31, 32, 33, 63, 64, 66, 93, 95, 96, 97, 1 << 24, 1 << 30], dtype)
    with np.errstate(over="ignore"):
        far = np.array([-0.0, np.nan, np.inf, -np.inf, 5e-324, 1e-40, 2.0**31, -(2.0**31), 2.0**63, 1e300], dtype)
    near = [np.nextafter(whole, dtype(toward)) for toward in (-np.inf, np.inf)]
    codes = np.concatenate([whole, whole + dtype(0.5), *near, far])
    got = check(forward, forest, codes[:, None], QsSettings())
    if not routing & SET_RIGHT:  # code 31 is in the third set
        assert got.leaves[list(codes).index(31), 2] == 0


def test_codes_beyond_float32_in_a_large_set(forward: EmulatedDevice) -> None:
    """2^20 words: neighbouring float32 codes lie four apart at the set's end."""
    words = np.zeros((1 << 20) + 1, np.uint32)
    words[-1] = 0xFFFFFFFF
    forest = replace(
        forest_of_stumps(np.zeros(1), np.random.default_rng(13)),
        routing=np.array([CATEGORICAL], np.uint8),
        category_offsets=np.array([0, len(words)]),
        category_words=words,
    )
    first, end = 32 * (len(words) - 1), 32 * len(words)
    for dtype in (np.float32, np.float64):
        codes = np.array([first, end], dtype)
        codes = np.concatenate([codes, np.nextafter(codes, dtype(0)), np.nextafter(codes, dtype(np.inf))])
        leaves = check(forward, forest, codes[:, None], QsSettings()).leaves[:, 0]
        assert leaves.tolist() == [0, 1, 1, 0, 0, 1]


def test_integers_that_are_rounded_twice(forward: EmulatedDevice) -> None:
    """The source library casts integers to float64, and then, like all documents, to float32."""
    rng = np.random.default_rng(14)
    twice = 2**60 + 2**36 + 1  # float32: above the midpoint; float64: the midpoint, so then to even
    threshold = np.array([float(np.float32(2**60))])
    forest = forest_of_stumps(threshold, rng, input_dtype="float32", integer_dtype="float64")
    documents = np.array([[2**60], [twice], [2**60 + 2**38]])
    got = check(forward, forest, documents, QsSettings())
    assert got.leaves[:, 0].tolist() == [0, 0, 1]
    once = replace(forest, integer_dtype="float32")
    assert check(forward, once, documents, QsSettings()).leaves[:, 0].tolist() == [0, 1, 1]


def test_what_no_launch_holds_is_refused(forward: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuqs.engines.gpu.qs_placed.MAX_GRID", 10)
    forest, _ = CASES[0].make()
    with pytest.raises(DeviceError, match="20 tree blocks, more than the 10 of one launch"):
        QsGpu(QsSettings(tree_block=1)).prepare(forest, "exact", device=forward)


def test_few_and_many_documents_give_the_same_bits() -> None:
    """Few documents are scored one per thread block, many four, with the same layout."""
    rng = np.random.default_rng(16)
    forest = random_forest(rng, max_leaves=50, n_trees=150)
    documents = probing_documents(rng, forest, 99)
    device = EmulatedDevice(attributes=replace(RTX3090, multiprocessors=1))
    placed = QsGpu().prepare(forest, "exact", device=device).forest
    assert placed.documents == 4 and placed.resident * 4 <= 99
    sums = [np.zeros((len(documents), 1)) for _ in range(2)]
    for n, out in zip((99, 3), sums, strict=True):
        for start in range(0, 99, n):
            run(device, placed.score, documents[start : start + n], out[start : start + n])
    np.testing.assert_array_equal(*sums)
    asked = Counter(name.split(", ")[-2] for file, name in device.launched if file == "update_scores.cu")
    assert asked == {"1": 1 + 33, "4": 1 + 1}  # once to load it, and once per launch


def test_documents_cut_into_chunks_give_the_same_bits() -> None:
    rng = np.random.default_rng(6)
    forest = random_forest(rng, max_leaves=20)
    documents = probing_documents(rng, forest, 2100)
    whole, cut = EmulatedDevice(), EmulatedDevice(scratch_bytes=1)
    sums = [np.zeros((len(documents), 1)) for _ in range(2)]
    leaves = [np.zeros((len(documents), forest.n_trees), np.int32) for _ in range(2)]
    for device, scored, found in zip((whole, cut), sums, leaves, strict=True):
        placed = QsGpu().prepare(forest, "exact", device=device).forest
        run(device, placed.score, documents, scored)
        run(device, placed.leaves, documents, found)
    np.testing.assert_array_equal(*sums)
    want = expected(forest, documents)
    assert np.abs(sums[0] - want.exact).max() <= want.bound
    for found in leaves:
        np.testing.assert_array_equal(found, want.leaves)
    launches = [sum(file == "transpose.cu" for file, _ in d.launched) for d in (whole, cut)]
    assert launches == [2, 6]


@pytest.mark.parametrize(("n_tests", "pivot"), [(254, "u8"), (255, "u16")])
def test_as_many_tests_as_a_pivot_counts(forward: EmulatedDevice, n_tests: int, pivot: str) -> None:
    """The largest code is for missing values, so a value beyond all thresholds needs another."""
    forest = forest_of_stumps(np.arange(float(n_tests)), np.random.default_rng(15))
    documents = np.array([[-1.0], [n_tests - 1.5], [n_tests], [np.nan]])
    check(forward, forest, documents, QsSettings(tree_block=n_tests))
    assert ("find_false_nodes.cu", f"find_false_nodes<double, {pivot}>") in forward.launched


def test_host_documents_in_double_buffers(forward: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuqs.devices.pipeline.BUFFER_BYTES", 8 * 8 * 10)
    rng = np.random.default_rng(8)
    forest = random_forest(rng, n_features=8)
    documents = probing_documents(rng, forest, 57)
    program = QsGpu().prepare(forest, "fast", device=forward)
    sums, leaves = np.zeros((57, 1), np.int64), np.zeros((57, forest.n_trees), np.int32)
    run(forward, program.forest.score, documents, sums)
    run(forward, program.forest.leaves, documents, leaves)
    want = expected(forest, documents)
    np.testing.assert_array_equal(sums, want.fast)
    np.testing.assert_array_equal(leaves, want.leaves)


def test_per_tree_values_are_the_exit_leaves(forward: EmulatedDevice) -> None:
    forest, documents = Case("", {"n_outputs": 2, "vector_leaves": True}).make()
    program = QsGpu().prepare(forest, "exact", device=forward)
    out = np.zeros((len(documents), forest.n_trees, 2))
    run(forward, program.forest.per_tree, documents, out)
    leaves = expected(forest, documents).leaves
    by_id = forest.leaf_offsets[:-1] + leaves  # random_forest numbers leaves by position in the forest
    np.testing.assert_array_equal(out, forest.leaf_value[by_id])


def test_every_instantiation_is_named_once() -> None:
    for file, names in every_kernel().items():
        assert len(set(names)) == len(names), file


def test_what_it_cannot_hold_is_said() -> None:
    rng = np.random.default_rng(9)
    wide = random_forest(rng, max_leaves=65, shape="complete", n_trees=1)
    assert "65 leaves" in QsGpu(QsSettings(form="mask64")).why_not(wide)
    chain = random_forest(rng, max_leaves=6000, shape="chain", n_trees=1)
    assert QsGpu().why_not(chain) is None
    left_chain = replace(chain, left=chain.right, right=chain.left)
    assert "long chains" in QsGpu().why_not(left_chain)


@pytest.mark.parametrize(
    "wrong",
    [{"form": "mask16"}, {"threads": 48}, {"tree_block": 0}, {"documents_per_block": 3},
     {"documents_per_block": 4, "form": "mask64"}],
)  # fmt: skip
def test_wrong_settings_are_refused(wrong: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong)).replace("documents_per_block", "document")):
        QsSettings(**wrong)
