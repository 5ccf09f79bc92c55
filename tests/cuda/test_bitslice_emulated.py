"""The bit-sliced engine's kernels, run by the emulation: equal to `reference` bit for bit, in both precisions."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest
from emulation.device import RTX3090, EmulatedDevice
from emulation.module import ORDERS
from forests import forest_of_stumps, probing_documents, random_forest
from gpu_conformance import CASES, Answers, Case, answers, expected
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from strategies import Drawn, forests

from gpuqs.engines.gpu.bitslice_gpu import BitsliceGpu
from gpuqs.engines.gpu.bitsliced import BitsliceSettings
from gpuqs.forest import CATEGORICAL, NAN_LEFT, WHOLE_CODES, Forest

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation needs g++")

ONE, TWO = BitsliceSettings(words=1), BitsliceSettings(words=2)


@pytest.fixture(scope="module")
def forward() -> EmulatedDevice:
    return EmulatedDevice()


def check(
    device: EmulatedDevice, forest: Forest, documents: np.ndarray, settings: BitsliceSettings | None = None
) -> Answers:
    got, want = answers(device, forest, documents, BitsliceGpu(settings)), expected(forest, documents)
    np.testing.assert_array_equal(got.leaves, want.leaves)
    np.testing.assert_array_equal(got.fast, want.fast)
    np.testing.assert_array_equal(got.exact, want.exact)
    return got


OTHERS = [
    Case("oblivious trees", {"shape": "oblivious", "max_leaves": 64}),
    Case("oblivious trees of many levels", {"shape": "oblivious", "max_leaves": 512, "n_trees": 5}),
    Case("thresholds beyond one byte", {"n_features": 2, "n_trees": 30, "n_thresholds": 700, "max_leaves": 60}),
]
# The settings of the cases are those of `qs_gpu`.
EVERY_CASE = list({case.name: case for case in [*CASES, *OTHERS]}.values())


@pytest.mark.parametrize("case", EVERY_CASE, ids=lambda case: case.name)
def test_equals_reference(forward: EmulatedDevice, case: Case) -> None:
    check(forward, *case.make(), ONE)
