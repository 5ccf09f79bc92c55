"""What `bench/gpu_counts.py` counts by arithmetic is what the emulated kernels do."""

from __future__ import annotations

import shutil

import gpu_counts
import numpy as np
import nvrtc_build
import pytest
from emulation.device import RTX3090, EmulatedDevice
from forests import probing_documents, random_forest
from made_up import lambdamart_like

from gpuqs.devices.pipeline import run
from gpuqs.engines.gpu.qs_gpu import QsGpu
from gpuqs.engines.gpu.qs_placed import QsPlacedForest, QsSettings
from gpuqs.forest import Forest

NO_LOOPS = gpu_counts.Loops(dict.fromkeys(range(1, 5), 0.0), 0, 0)
emulated = pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation needs g++")


def atomics_of_warps(forest: Forest, X: np.ndarray, settings: QsSettings) -> tuple[QsPlacedForest, np.ndarray]:
    """Number of atomics of each warp of each thread block, summed over lanes: [blocks, warps]."""
    device = EmulatedDevice()
    placed = QsGpu(settings).prepare(forest, "exact", device=device).forest
    n_blocks = -(-len(X) // placed.documents) * placed.n_blocks
    kernel = placed.scoring_kernel()[0].kernel
    kernel.atomics = np.zeros((n_blocks, 32), np.uint64)
    run(device, placed.score, X, np.zeros((len(X), 1)))
    return placed, kernel.atomics[:, : placed.threads // 32].astype(np.int64)


@emulated
@pytest.mark.parametrize("together", [1, 4])
def test_warps_make_as_many_atomics_as_counted(together: int) -> None:
    X = np.random.default_rng(0).normal(size=(20, 30)).astype(np.float32)
    forest = lambdamart_like(500, 40, X)
    settings = QsSettings(documents_per_block=together, tree_block=300, threads=256)
    placed, atomics = atomics_of_warps(forest, X, settings)
    counts = gpu_counts.count(gpu_counts.place(forest, RTX3090, settings), X, NO_LOOPS)
    assert placed.n_blocks == 2 and atomics.sum() == counts.false_tuples * len(X)
    assert counts.busiest_warp < 1.1
    # A row's 32 lanes serve one to all documents: shares with the same number of rows differ at most this much.
    assert atomics.max(axis=1).sum() < (1.6, 2.2)[together == 4] * atomics.mean(axis=1).sum()


@emulated
@pytest.mark.parametrize("together", [1, 4])
def test_missing_values_are_dealt_to_all_warps(together: int) -> None:
    """One feature, missing everywhere: its list has a tuple for each word of the forest that it clears."""
    forest = random_forest(np.random.default_rng(1), n_trees=700, max_leaves=30, n_features=1)
    X = np.full((4, 1), np.nan)
    _, atomics = atomics_of_warps(forest, X, QsSettings(documents_per_block=together, threads=128))
    assert atomics.sum() > 1000
    assert atomics.max(axis=1).sum() < 1.5 * atomics.mean(axis=1).sum()


def test_wavefronts_are_those_of_a_plain_count() -> None:
    X = np.random.default_rng(2).normal(size=(6, 5)).astype(np.float32)
    placed = gpu_counts.place(lambdamart_like(200, 40, X), RTX3090, QsSettings(documents_per_block=4))
    runs, slot = placed.masks["runs"].reshape(-1, 4), placed.masks["slot"]
    for n_false in gpu_counts.pivots_of(placed, X)[0]:
        rows = [
            slot[begin + row : begin + min(row + 32, n)] % 32
            for (begin, *_), n in zip(runs, n_false, strict=True)
            for row in range(0, n, 32)
        ]
        want = len(rows), sum(np.bincount(banks).max() for banks in rows)
        assert gpu_counts.wavefronts(placed, 0, n_false) == want


def test_counts_of_pivots_are_those_of_the_definition() -> None:
    forest = random_forest(np.random.default_rng(3), n_trees=5, input_dtype="float32")
    X = probing_documents(np.random.default_rng(4), forest, 9, np.float32)
    placed = gpu_counts.place(forest, RTX3090, QsSettings())
    offsets, thresholds = placed.test_offsets, placed.thresholds["float32"]
    for column, feature in enumerate(placed.readings["feature"][: placed.n_columns]):
        tests = thresholds[offsets[column] : offsets[column + 1]]
        x = X[~np.isnan(X[:, feature]), feature]
        want = (tests < x[:, None]).sum(axis=1)
        np.testing.assert_array_equal(gpu_counts.pivots_of(placed, X)[0][~np.isnan(X[:, feature]), column], want)


@pytest.mark.skipif(nvrtc_build.why_not() is not None, reason=str(nvrtc_build.why_not()))
@pytest.mark.parametrize("device", gpu_counts.DEVICES, ids=lambda device: device.name)
def test_a_row_that_four_documents_take_costs_less_than_four_rows(device) -> None:
    one, four = (
        gpu_counts.loops(f"update_scores<u32, true, u16, double, double, {n}, {n}>", device) for n in (1, 4)
    )
    assert set(one.row) == {1} and set(four.row) == {1, 2, 3, 4}
    assert max(four.row.values()) < 2 * one.row[1] and min(one.column, one.cut, four.column, four.cut) > 0
