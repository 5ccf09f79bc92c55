"""The models of the CPU's conformance tests on the emulated device, against the source libraries' own exit leaves."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from agreement import ON_GPU
from emulation.device import EmulatedDevice

import gpuqs

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation needs g++")

CONFORMANCE = Path(__file__).parents[1] / "conformance"
#: For each library's conformance tests: where they keep their models' names, and what trains a model.
LIBRARIES = {
    "lightgbm": ("LIGHTGBM", "lightgbm_trained"),
    "xgboost": ("XGBOOST", "xgboost_trained"),
    "catboost": ("RECIPES", "catboost_trained"),
    "sklearn": ("RECIPES", "sklearn_trained"),
}


@cache
def device() -> EmulatedDevice:
    return EmulatedDevice()


@cache
def conformance_tests(library: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"conformance_{library}", CONFORMANCE / f"test_{library}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def check(model: gpuqs.Model, engine: str, X: np.ndarray, leaves: np.ndarray, name: str) -> None:
    on_device, forest = model.to(device()), model.forest
    np.testing.assert_array_equal(on_device.predict(X, "leaf", engine=engine), leaves, err_msg=name)
    fast = model.predict(X, "raw", precision="fast", engine="reference")
    np.testing.assert_array_equal(on_device.predict(X, "raw", precision="fast", engine=engine), fast, err_msg=name)
    raw, want = on_device.predict(X, "raw", engine=engine), model.predict(X, "raw", engine="reference")
    assert raw.dtype == want.dtype, name
    largest = np.abs(model.predict(X, "per_tree", engine="reference").astype(np.float64))
    magnitude = np.abs(forest.base_score).max() + largest.reshape(len(X), -1).sum(axis=1)
    bound = forest.n_trees * np.spacing(magnitude.astype(raw.dtype)).astype(np.float64)
    difference = np.abs(raw.astype(np.float64) - want).reshape(len(X), -1).max(axis=1)
    assert (difference <= bound).all(), f"{name}: {(difference - bound).max()} beyond the bound"


@pytest.mark.parametrize("engine", ON_GPU)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("library", LIBRARIES)
def test_every_trained_model(library: str, dtype: type, engine: str) -> None:
    tests = conformance_tests(library)
    names, train = (getattr(tests, name) for name in LIBRARIES[library])
    for name in names:
        expected = tests.expected(name, dtype)
        some = slice(None, None, 3 if engine == "qs_gpu" else 2)  # its atomics are slowest to emulate
        check(train(name).model, engine, expected.X[some], expected.leaves[some], name)
