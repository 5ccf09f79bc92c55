"""Models trained here by LightGBM and XGBoost, on the emulated device: the libraries' own exit leaves."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from emulation.device import EmulatedDevice

import gpuqs
from gpuqs.device_model import DeviceModel

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation needs g++")

MISSING = [{}, {"zero_as_missing": True}, {"use_missing": False}]


def make(seed: int, dtype: type = np.float64) -> tuple[np.ndarray, np.ndarray]:
    """Documents with zeros, missing values and few distinct values, so that many lie on thresholds."""
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(800, 12)), 1).astype(dtype)
    y = X[:, 0] * X[:, 1] + np.sin(X[:, 2]) + X[:, 3]
    X[rng.random(X.shape) < 0.15] = np.nan
    X[rng.random(X.shape) < 0.15] = 0.0
    return X, y


def check_scores(model: gpuqs.Model, X: np.ndarray, raw: np.ndarray, leaves: np.ndarray) -> None:
    on_device = DeviceModel(model.forest, EmulatedDevice())
    np.testing.assert_array_equal(on_device.predict(X, "leaf"), leaves)
    scores = on_device.predict(X, "raw")
    assert scores.dtype == raw.dtype
    magnitude = np.abs(model.forest.leaf_value).max() * model.forest.n_trees + 1
    bound = model.forest.n_trees * np.spacing(scores.dtype.type(magnitude))
    np.testing.assert_allclose(scores, raw, rtol=0, atol=bound)
    fast = model.predict(X, "raw", precision="fast", n_threads=1)
    np.testing.assert_array_equal(on_device.predict(X, "raw", precision="fast"), fast)


@pytest.mark.parametrize("missing", MISSING, ids=["nan", "zero", "none"])
@pytest.mark.parametrize("n_leaves", [31, 90])
def test_lightgbm(missing: dict, n_leaves: int) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    X, y = make(1)
    parameters = {"num_leaves": n_leaves, "min_data_in_leaf": 2, "verbosity": -1, "num_threads": 1, **missing}
    booster = lightgbm.train(parameters, lightgbm.Dataset(X, y), 30)
    probe = make(2)[0][:100]
    leaves = booster.predict(probe, pred_leaf=True)
    check_scores(gpuqs.from_model(booster), probe, booster.predict(probe, raw_score=True), leaves)


@pytest.mark.parametrize("objective", [{}, {"objective": "multi:softprob", "num_class": 3}])
def test_xgboost(objective: dict) -> None:
    xgboost = pytest.importorskip("xgboost")
    X, y = make(3, np.float32)
    if objective:
        y = np.digitize(y, [-0.5, 0.5])
    booster = xgboost.train({"max_depth": 6, "nthread": 1, **objective}, xgboost.DMatrix(X, y), 20)
    probe = make(4, np.float32)[0][:100]
    matrix = xgboost.DMatrix(probe)
    raw = booster.predict(matrix, output_margin=True)
    leaves = booster.predict(matrix, pred_leaf=True).astype(np.int32).reshape(len(probe), -1)
    check_scores(gpuqs.from_model(booster), probe, raw, leaves)
