"""The models on which other libraries are timed, one family per library."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from models import CACHE, TRAINING_SEED, documents, enlarged, lambdamart, xgboost_ranker
from peers.base import Source

import gpuqs
from gpuqs.demo.mslr import mslr_like


def of_lightgbm(name: str, path: Path, X: np.ndarray) -> Source:
    import lightgbm

    booster = lightgbm.Booster(model_file=path)
    return Source(name, "LightGBM", booster, path, X, gpuqs.load(path))


def of_xgboost(n_trees: int, n_leaves: int, X: np.ndarray) -> Source:
    import xgboost

    path = xgboost_ranker(n_trees, n_leaves)
    booster = xgboost.Booster(model_file=path)
    return Source(f"XGBoost rank:ndcg {n_trees:,} x {n_leaves}", "XGBoost", booster, path, X, gpuqs.load(path))


def of_catboost(n_trees: int, depth: int, X: np.ndarray) -> Source:
    """Oblivious trees, trained once and cached."""
    import catboost

    path = CACHE / f"catboost-{n_trees}x{depth}.cbm"
    booster = catboost.CatBoostRegressor(
        iterations=n_trees, depth=depth, boosting_type="Plain", allow_writing_files=False, verbose=0
    )
    if path.exists():
        booster.load_model(str(path))
    else:
        CACHE.mkdir(parents=True, exist_ok=True)
        rows, y, _ = mslr_like(80, TRAINING_SEED)
        booster.fit(np.ascontiguousarray(rows, np.float32), y).save_model(str(path))
    name = f"CatBoost {n_trees:,} oblivious trees of depth {depth}"
    return Source(name, "CatBoost", booster, None, X, gpuqs.from_model(booster))


def of_sklearn(n_trees: int, n_rows: int) -> Source:
    """A random forest grown until its leaves are pure, on separate rows with 20 features."""
    from sklearn.ensemble import RandomForestRegressor

    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 20)).astype(np.float32)
    y = X[:, 0] * X[:, 1] + np.sin(3 * X[:, 2]) + rng.normal(size=n_rows)
    forest = RandomForestRegressor(n_trees, max_features=5, n_jobs=-1, random_state=0).fit(X, y)
    model = gpuqs.from_model(forest)
    name = f"scikit-learn forest, {n_trees} fully grown trees of up to {model.n_leaves:,} leaves"
    return Source(name, "scikit-learn", forest, None, X, model)


def sources(quick: bool, large: bool) -> list[tuple[str, Callable[[], Source]]]:
    """The library of each model and a function that makes it; made one at a time, so that only one occupies memory."""
    n_trees, X = (50, documents(1_000)) if quick else (1_000, documents(10_000))
    made: list[tuple[str, Callable[[], Source]]] = []
    for n_leaves in (32,) if quick else (64, 32):
        name = f"LightGBM LambdaMART {n_trees:,} x {n_leaves}"
        made.append(("LightGBM", lambda name=name, n=n_leaves: of_lightgbm(name, lambdamart(n_trees, n), X)))
    made.append(("XGBoost", lambda: of_xgboost(n_trees, 32 if quick else 64, X)))
    made.append(("CatBoost", lambda: of_catboost(n_trees, 6, X)))
    made.append(("scikit-learn", lambda: of_sklearn(*((5, 2_000) if quick else (100, 50_000)))))
    if large:
        name = "LightGBM 20,000 x 64 (1,000 trained, thresholds redrawn)"
        made.append(("LightGBM", lambda: of_lightgbm(name, enlarged(lambdamart(1_000, 64), 20_000), X)))
    return made
