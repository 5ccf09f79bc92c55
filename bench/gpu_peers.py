"""Other libraries on the same GPU and model, checked against gpuqs before they are timed."""

from __future__ import annotations

import importlib.util
import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from made_up import lightgbm_text

if TYPE_CHECKING:
    from gpuqs.forest import Forest


def train_on_gpu(X: np.ndarray, n_trees: int, n_leaves: int, device: str = "cuda") -> Any:
    """An XGBoost booster with trees of ``n_leaves`` leaves; refuses to be trained on the CPU instead."""
    import xgboost

    parameters = {
        "tree_method": "hist",
        "device": device,
        "grow_policy": "lossguide",
        "max_leaves": n_leaves,
        "max_depth": 0,
        "eta": 0.05,
        "base_score": 0.0,
    }
    target = np.nan_to_num(X[:, 0] - X[:, 1] * X[:, 2]).clip(-100, 100)
    target += np.random.default_rng(0).normal(size=len(X))
    with no_fallback("XGBoost"):
        booster = xgboost.train(parameters, xgboost.DMatrix(X, label=target), n_trees)
    used = json.loads(booster.save_config())["learner"]["generic_param"]["device"]
    if not used.startswith(device):
        raise RuntimeError(f"XGBoost ran on {used}, not on {device}")
    return booster


def nvforest_on(forest: Forest, folder: Path) -> Any:
    """The forest in nvForest on the GPU, loaded from LightGBM's text; None if nvForest is not installed."""
    if importlib.util.find_spec("nvforest") is None:
        return None
    import nvforest

    file = folder / f"{forest.n_trees}x{forest.n_leaves}x{forest.n_features}.txt"
    if not file.exists():
        file.write_text(lightgbm_text(forest))
    return nvforest.load_model(file, model_type="lightgbm", device="gpu")


@contextmanager
def no_fallback(name: str) -> Iterator[None]:
    """Raise an error if a library warns that it fell back to the CPU."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        yield
    fallen = [str(warning.message) for warning in said if "CPU" in str(warning.message)]
    if fallen:
        raise RuntimeError(f"{name} did not run on the GPU: {fallen[0]}")


def run(
    bench: Any, folder: Path, n_trees: int, n_leaves: int
) -> Iterator[tuple[str, int, list[float], float]]:
    """(peer, documents, seconds of each call, largest difference from gpuqs) for all installed peers."""
    import cupy

    from gpuqs import from_model

    booster = train_on_gpu(bench.X, n_trees, n_leaves)
    n = bench.sizes.documents
    X = cupy.asarray(bench.X[np.arange(n) % len(bench.X)])
    ours = from_model(booster).to(bench.device)
    scores = cupy.asnumpy(ours.predict(X, "raw"))
    calls: dict[str, Callable[[], Any]] = {
        f"{engine} on XGBoost's model": partial(ours.predict, X, "raw", engine=engine)
        for engine in ("qs_gpu", "bitslice_gpu")
    }
    calls["XGBoost"] = lambda: booster.inplace_predict(X, predict_type="margin")
    if importlib.util.find_spec("nvforest") is not None:
        import nvforest

        file = folder / "model.json"
        booster.save_model(file)
        forest = nvforest.load_model(file, device="gpu")
        calls["nvForest"] = lambda: forest.predict(X)
    for name, call in calls.items():
        with no_fallback(name):
            answer = cupy.asnumpy(cupy.asarray(call())).reshape(-1)
            difference = float(np.abs(answer - scores).max())
            if difference > 1e-3 * max(1.0, float(np.abs(scores).max())):
                raise RuntimeError(f"{name}'s scores differ from gpuqs's by {difference}")
            yield name, n, bench.clock.seconds(call, bench.sizes.repeats), difference
