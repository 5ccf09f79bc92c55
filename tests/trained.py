"""Models trained by LightGBM and XGBoost during the test run, each once per process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import lightgbm as lgb
import numpy as np
import xgboost as xgb
from forests import probing_documents, threshold_documents

import gpuqs
from gpuqs.forest import CATEGORICAL
from gpuqs.model import Model

N_ROWS = 1000
Rows = tuple[np.ndarray, np.ndarray]


def rows(rng: np.random.Generator, n: int = N_ROWS) -> Rows:
    """Eight features typical of ranking (counts, heavy tails, ratios, a constant), and a target."""
    X = np.column_stack(
        [
            rng.normal(size=n),
            np.where(rng.random(n) < 0.6, 0, rng.poisson(4, n)),
            np.exp(rng.normal(size=n) * 3),
            rng.random(n),
            rng.normal(size=n) ** 3,
            rng.integers(-3, 4, n),
            np.full(n, 2.5),
            rng.normal(size=n) * 1e3,
        ]
    )
    target = X[:, 0] + 0.3 * X[:, 1] + np.sin(6 * X[:, 3]) + 1e-3 * X[:, 7] + 0.3 * rng.normal(size=n)
    return X, target


def with_nan(rng: np.random.Generator) -> Rows:
    X, target = rows(rng)
    X[rng.random(X.shape) < 0.2] = np.nan
    return X, target + np.isnan(X[:, 0])


def with_zeros(rng: np.random.Generator) -> Rows:
    X, target = rows(rng)
    X[rng.random(X.shape) < 0.3] = 0
    return X, target + (X[:, 0] == 0)


def with_nan_and_zeros(rng: np.random.Generator) -> Rows:
    X, target = with_zeros(rng)
    X[rng.random(X.shape) < 0.1] = np.nan
    return X, target


def of_odd_scales(rng: np.random.Generator) -> Rows:
    """Features around 1e-35 (LightGBM's zero), denormal in float32, and beyond float32's range."""
    X, target = rows(rng)
    return X * np.array([2e-35, 1, 1e-42, 1e-38, 1e36, 1, 1, 1e297]), target


def of_odd_scales_within_float32(rng: np.random.Generator) -> Rows:
    """As `of_odd_scales`, within float32's range: XGBoost refuses values that are infinite as float32."""
    X, target = of_odd_scales(rng)
    return X * np.array([1, 1, 1, 1, 1, 1, 1, 1e-290]), target


def with_categories(rng: np.random.Generator) -> Rows:
    """Features 1 and 5 hold codes, 40 and 7 different ones, some missing."""
    X, _ = rows(rng)
    X[:, 1], X[:, 5] = rng.integers(0, 40, len(X)), rng.integers(0, 7, len(X))
    target = X[:, 0] + rng.normal(size=40)[X[:, 1].astype(int)] + 2 * (X[:, 5] % 3 == 1)
    X[rng.random(len(X)) < 0.1, 1] = np.nan
    return X, target


def category_frame(kind: str) -> tuple[Any, np.ndarray]:
    """A pandas frame whose columns c1 and c5 are categories of strings or numbers, and a target."""
    import pandas as pd

    X, target = with_categories(np.random.default_rng(4))
    frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(X.shape[1])])
    for name in ("c1", "c5"):
        codes = frame[name].fillna(-1).astype(int)
        known = [f"shade {10 * i}" if kind == "text" else 10 * i + 3 for i in range(40)]
        frame[name] = pd.Categorical.from_codes(codes, categories=known).remove_unused_categories()
    return frame, target


def two_features(rng: np.random.Generator) -> Rows:
    X, target = rows(rng, 3000)
    return X[:, [0, 7]], target


@dataclass(frozen=True)
class Recipe:
    """How to train: parameters that differ from the defaults here, and rows."""

    params: dict[str, Any]
    rows: Callable[[np.random.Generator], Rows] = rows
    label: str = "value"
    n_trees: int = 20
    #: Features whose values are category codes.
    categorical: tuple[int, ...] = ()
    #: Minimum counts that the model must reach for its test to be meaningful.
    at_least: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Trained:
    booster: Any
    model: Model
    rows: np.ndarray


def labels(kind: str, target: np.ndarray) -> np.ndarray:
    """The target as values, classes, relevance grades or counts."""
    cuts = {"binary": [0.5], "class": [0.25, 0.6], "grade": [0.4, 0.6, 0.8, 0.95]}.get(kind)
    if cuts is not None:
        return np.searchsorted(np.quantile(target, cuts), target).astype(float)
    return np.floor(np.abs(target)) + 1 if kind == "count" else target


LIGHTGBM = {
    "regression": Recipe({"objective": "regression"}),
    "regression_l1": Recipe({"objective": "regression_l1", "reg_sqrt": False}),
    "binary": Recipe({"objective": "binary"}, label="binary"),
    "poisson": Recipe({"objective": "poisson"}, label="count"),
    "lambdarank": Recipe({"objective": "lambdarank", "num_leaves": 63}, label="grade", at_least={"leaves": 33}),
    "rank_xendcg": Recipe({"objective": "rank_xendcg"}, label="grade"),
    "multiclass": Recipe({"objective": "multiclass", "num_class": 3}, label="class"),
    "multiclassova": Recipe({"objective": "multiclassova", "num_class": 3}, label="class"),
    "dart": Recipe({"boosting": "dart", "drop_rate": 0.5}),
    "rf": Recipe({"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.6}),
    "goss": Recipe({"data_sample_strategy": "goss"}),
    "nan": Recipe({}, with_nan),
    "nan as any other number": Recipe({"use_missing": False}, with_nan),
    "zero_as_missing": Recipe({"zero_as_missing": True}, with_zeros),
    "zero_as_missing with nan": Recipe({"zero_as_missing": True}, with_nan_and_zeros),
    "odd scales": Recipe({}, of_odd_scales),
    "stumps": Recipe({"num_leaves": 2}),
    "one leaf": Recipe({"min_gain_to_split": 1e30}, n_trees=2),
    "64 leaves": Recipe({"num_leaves": 64}, at_least={"leaves": 64}),
    "65 leaves": Recipe({"num_leaves": 65}, at_least={"leaves": 65}),
    "300 leaves": Recipe({"num_leaves": 300, "min_data_in_leaf": 1}, n_trees=8, at_least={"leaves": 257}),
    "max_bin 1024": Recipe(
        {"max_bin": 1024, "min_data_in_bin": 1, "min_data_in_leaf": 3},
        two_features,
        n_trees=60,
        at_least={"thresholds": 258},
    ),
    "monotone": Recipe({"monotone_constraints": [1, 0, 0, 0, 0, 0, 0, -1]}),
    "extra_trees": Recipe({"extra_trees": True}),
    "categories": Recipe(
        {"min_data_per_group": 5, "cat_smooth": 1, "max_cat_to_onehot": 1},
        with_categories,
        categorical=(1, 5),
        at_least={"categorical nodes": 40},
    ),
    "categories one-hot": Recipe(
        {"max_cat_to_onehot": 64, "min_data_per_group": 5},
        with_categories,
        categorical=(1, 5),
        at_least={"categorical nodes": 40},
    ),
    "categories, 300 leaves": Recipe(
        {"num_leaves": 300, "min_data_in_leaf": 1, "min_data_per_group": 1, "cat_smooth": 1, "cat_l2": 0},
        with_categories,
        n_trees=8,
        categorical=(1, 5),
        at_least={"leaves": 257, "categorical nodes": 40},
    ),
}

XGBOOST = {
    "regression": Recipe({"objective": "reg:squarederror"}),
    "base_score": Recipe({"objective": "reg:squarederror", "base_score": 123.456}),
    "binary": Recipe({"objective": "binary:logistic"}, label="binary"),
    "logitraw": Recipe({"objective": "binary:logitraw"}, label="binary"),
    "hinge": Recipe({"objective": "binary:hinge"}, label="binary"),
    "poisson": Recipe({"objective": "count:poisson"}, label="count"),
    "gamma": Recipe({"objective": "reg:gamma"}, label="count"),
    "rank:ndcg": Recipe({"objective": "rank:ndcg"}, label="grade"),
    "rank:pairwise": Recipe({"objective": "rank:pairwise"}, label="grade"),
    "softprob": Recipe({"objective": "multi:softprob", "num_class": 3}, label="class"),
    "vector leaves": Recipe(
        {"objective": "multi:softprob", "num_class": 3, "multi_strategy": "multi_output_tree"}, label="class"
    ),
    "dart": Recipe({"booster": "dart", "rate_drop": 0.5}),
    "forest": Recipe({"num_parallel_tree": 5, "subsample": 0.6, "learning_rate": 1.0}, n_trees=4),
    "nan": Recipe({}, with_nan),
    "zeros": Recipe({}, with_zeros),
    "odd scales": Recipe({}, of_odd_scales_within_float32),
    "stumps": Recipe({"max_depth": 1}),
    "one leaf": Recipe({"gamma": 1e30}, n_trees=2),
    "100 leaves": Recipe(
        {"max_depth": 0, "grow_policy": "lossguide", "max_leaves": 100, "tree_method": "hist"},
        at_least={"leaves": 65},
    ),
    "300 leaves": Recipe(
        {"max_depth": 14, "tree_method": "exact", "min_child_weight": 0}, n_trees=8, at_least={"leaves": 257}
    ),
    "max_bin 1024": Recipe(
        {"max_bin": 1024, "tree_method": "hist", "min_child_weight": 0},
        two_features,
        n_trees=60,
        at_least={"thresholds": 258},
    ),
    "approx": Recipe({"tree_method": "approx"}),
    "categories": Recipe(
        {"max_cat_to_onehot": 1}, with_categories, categorical=(1, 5), at_least={"categorical nodes": 40}
    ),
    "categories one-hot": Recipe(
        {"max_cat_to_onehot": 64}, with_categories, categorical=(1, 5), at_least={"categorical nodes": 40}
    ),
    "categories of classes": Recipe(
        {"objective": "multi:softprob", "num_class": 3},
        with_categories,
        label="class",
        categorical=(1, 5),
        at_least={"categorical nodes": 40},
    ),
}


def _of_lambdarank_groups(n: int) -> list[int]:
    return [25] * (n // 25)


@cache
def lightgbm_trained(name: str) -> Trained:
    recipe = LIGHTGBM[name]
    X, target = recipe.rows(np.random.default_rng(17))
    defaults = {"verbose": -1, "num_threads": 1, "seed": 1, "deterministic": True, "min_data_in_leaf": 5}
    group = _of_lambdarank_groups(len(X)) if recipe.label == "grade" else None
    data = lgb.Dataset(
        X, labels(recipe.label, target), group=group, categorical_feature=list(recipe.categorical)
    )
    booster = lgb.train({**defaults, **recipe.params}, data, recipe.n_trees)
    return _checked(booster, recipe, X)


def xgb_matrix(X: np.ndarray, recipe: Recipe, **fields: Any) -> xgb.DMatrix:
    if recipe.categorical:
        kinds = ["c" if i in recipe.categorical else "q" for i in range(X.shape[1])]
        fields |= {"feature_types": kinds, "enable_categorical": True}
    return xgb.DMatrix(X, **fields)


@cache
def xgboost_trained(name: str) -> Trained:
    recipe = XGBOOST[name]
    X, target = recipe.rows(np.random.default_rng(17))
    data = xgb_matrix(X, recipe, label=labels(recipe.label, target))
    if recipe.label == "grade":
        data.set_group(_of_lambdarank_groups(len(X)))
    booster = xgb.train({"nthread": 1, "seed": 1, **recipe.params}, data, recipe.n_trees)
    return _checked(booster, recipe, X)


def _checked(booster: Any, recipe: Recipe, X: np.ndarray) -> Trained:
    model = gpuqs.from_model(booster)
    forest = model.forest
    shown = {
        "leaves": model.n_leaves,
        "categorical nodes": int(((forest.routing & CATEGORICAL) != 0).sum()),
        "thresholds": max(
            (len(np.unique(forest.threshold[forest.feature == f])) for f in range(forest.n_features)),
            default=0,
        ),
    }
    for what, least in recipe.at_least.items():
        assert shown[what] >= least, f"the model has too few {what} for its test to mean anything"
    return Trained(booster, model, X)


def documents(trained: Trained, dtype: type, *, infinite: bool) -> np.ndarray:
    """Rows on and next to every threshold, special values, random values, and some of the training rows."""
    rng = np.random.default_rng(23)
    forest = trained.model.forest
    with np.errstate(over="ignore"):
        X = np.concatenate(
            [
                threshold_documents(rng, forest, dtype)[:1000],
                probing_documents(rng, forest, 300, dtype),
                trained.rows[:200].astype(dtype),
            ]
        )
        if not infinite:  # also drop float64 values that are infinite as float32
            X[np.isinf(X.astype(np.float32))] = 1.0
    return X
