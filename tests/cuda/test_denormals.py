"""Denormals are numbers on the device, too, and these tests notice if they are flushed to zero.

The planted fault: kernels as compiled with ``-ftz=true``, which is how CuPy compiles whatever it compiles.
"""

from __future__ import annotations

import platform
import shutil
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from emulation.device import EmulatedDevice
from forests import forest_of_stumps, random_forest
from gpu_conformance import CASES, check, check_bits, check_walks

from gpuqs.engines.gpu.qs_placed import QsSettings
from gpuqs.forest import CATEGORICAL, WHOLE_CODES, Forest
from gpuqs.model import Model

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation needs g++"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86-64 is told here to flush denormals"),
]

TINY = 1e-40  # a float32 denormal
DOCUMENTS = np.array([[0.0], [TINY], [2 * TINY], [-TINY], [np.nan], [1.0]], np.float32)


@pytest.fixture(scope="module")
def sound() -> EmulatedDevice:
    return EmulatedDevice()


@pytest.fixture(scope="module")
def flushing() -> EmulatedDevice:
    return EmulatedDevice(flush=True)


def stumps(*thresholds: float, **fields: object) -> Forest:
    fields = {"input_dtype": "float32", "sum_dtype": "float32"} | fields
    exact = np.array(thresholds, np.float32).astype(np.float64)
    return forest_of_stumps(exact, np.random.default_rng(40), **fields)


def three_outputs(**fields: object) -> Forest:
    fields = {"input_dtype": "float32", "sum_dtype": "float32"} | fields
    return random_forest(
        np.random.default_rng(41), n_features=1, n_trees=3, n_outputs=3, vector_leaves=True, **fields
    )


def of_denormals(forest: Forest) -> Forest:
    """The same trees with denormal leaf values, and no base score."""
    leaves = np.arange(1, len(forest.leaf_value) + 1)[:, None] * TINY * [1, 3, 5][: forest.leaf_value.shape[1]]
    return replace(forest, leaf_value=leaves, base_score=np.zeros(forest.n_outputs))


SCORED: dict[str, tuple[Forest, np.ndarray]] = {
    "thresholds": (stumps(0, TINY, -TINY), DOCUMENTS),
    "documents cast to float32": (stumps(0, -TINY), DOCUMENTS.astype(float)),
    "codes of categories": (
        replace(
            stumps(0),
            routing=np.array([CATEGORICAL | WHOLE_CODES], np.uint8),
            category_offsets=np.array([0, 1]),
            category_words=np.array([1], np.uint32),
        ),
        DOCUMENTS,
    ),
    "sums": (of_denormals(stumps(0.5, 0.5)), DOCUMENTS),
    "sums of several outputs": (of_denormals(three_outputs()), DOCUMENTS),
} | {case.name: case.make() for case in CASES if case.name.startswith("float32 forest")}
CHECKS: dict[str, Callable[[EmulatedDevice], object]] = {
    name: lambda d, scored=scored: check(d, *scored, QsSettings()) for name, scored in SCORED.items()
} | {f"{name}, bit-sliced": lambda d, scored=scored: check_bits(d, *scored) for name, scored in SCORED.items()}
CHECKS |= {f"{name}, walked": lambda d, scored=scored: check_walks(d, *scored) for name, scored in SCORED.items()}


@pytest.mark.parametrize("name", CHECKS)
def test_denormals_are_numbers(sound: EmulatedDevice, name: str) -> None:
    CHECKS[name](sound)


@pytest.mark.parametrize("name", CHECKS)
def test_kernels_that_flush_denormals_are_found(flushing: EmulatedDevice, name: str) -> None:
    with pytest.raises(AssertionError):
        CHECKS[name](flushing)


def check_outputs(device: EmulatedDevice, forest: Forest, *outputs: str) -> None:
    """Compare the answers for documents on the device with the CPU's."""
    model, X = Model(forest).to(device), device.from_host(DOCUMENTS)
    for output in outputs:
        want = Model(forest).predict(DOCUMENTS, output, engine="reference")
        assert want.any()
        np.testing.assert_allclose(device.to_host(model.predict(X, output)), want, rtol=1e-6, atol=0, err_msg=output)


FINISHED = {
    "averages": (stumps(0.5, 0.5, average=True, average_raw=True), "raw", "value"),
    "a base score that comes last": (stumps(0.5, 0.5, base_first=False), "raw"),
    "scores above zero": (stumps(0.5, 0.5, link="sigmoid", class_rule="raw"), "class"),
    "hinges": (stumps(0.5, 0.5, link="hinge"), "value"),
    "the number of the largest score": (three_outputs(link="argmax"), "value", "class"),
    "the class of the largest score": (three_outputs(link="softmax", class_rule="raw"), "class"),
}


@pytest.mark.parametrize("name", FINISHED)
def test_denormals_are_numbers_to_links_and_classes(
    sound: EmulatedDevice, flushing: EmulatedDevice, name: str
) -> None:
    forest, *outputs = FINISHED[name]
    check_outputs(sound, of_denormals(forest), *outputs)
    with pytest.raises(AssertionError):
        check_outputs(flushing, of_denormals(forest), *outputs)
