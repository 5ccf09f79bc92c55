"""Train small models with the installed LightGBM or XGBoost, and keep the scores that this version gives.

Run once for each released version, in a virtual environment that holds it:

    python tests/data/make_models.py lightgbm        # writes tests/data/lightgbm/<version>.json.xz
    python tests/data/make_models.py xgboost         # writes tests/data/xgboost/<version>.json.xz

A file holds the rows that all of its models share (on the models' thresholds, next to them, missing,
special values). For each model it holds the model's text and, for float64 and float32 rows, the raw scores,
exit leaves and, in newer files, values. Arrays are kept as the hexadecimal digits of their bytes. Old
releases need old Pythons, so this file uses only Python 3.8.
"""

from __future__ import annotations

import json
import lzma
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
N_TRAINING_ROWS = 300
N_ROWS = 170
GROUP = 15
#: Feature that holds category codes if a case has "codes".
CODES = 3
N_CODES = 12

SPECIAL = [np.nan, 0.0, -0.0, 5e-324, -1e-40, 1e-35, -1e-35, 2e-35, -1e30]
INFINITE = [np.inf, -np.inf, 1e300]
ODD_CODES = [-1.0, -0.5, 0.5, 2.5, 11.0, 12.0, 31.0, 32.0, 1000.0, 16_777_216.0, 1e10]

#: Parameters and kind of target; "whole": no missing values; "codes": feature `CODES` is categorical.
LIGHTGBM = {
    "regression": ({}, "value whole"),
    "nan": ({}, "value"),
    "nan as any other number": ({"use_missing": False}, "value"),
    "zero_as_missing": ({"zero_as_missing": True}, "value"),
    "binary": ({"objective": "binary"}, "binary"),
    "multiclass": ({"objective": "multiclass", "num_class": 3}, "class"),
    "poisson": ({"objective": "poisson"}, "count"),
    "lambdarank": ({"objective": "lambdarank"}, "class grouped"),
    "dart": ({"boosting": "dart", "drop_rate": 0.5, "skip_drop": 0.0}, "value"),
    "rf": ({"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.6}, "value"),
    "categories": ({"max_cat_to_onehot": 1, "min_data_per_group": 5, "cat_smooth": 1}, "value codes"),
    "categories one-hot": ({"max_cat_to_onehot": 64, "min_data_per_group": 5}, "value codes"),
    "categories whole": ({"max_cat_to_onehot": 1, "min_data_per_group": 5, "cat_smooth": 1}, "value whole codes"),
    "one leaf": ({"min_gain_to_split": 1e30}, "value"),
}

#: The same, plus the first version that supports the case.
XGBOOST = {
    "regression": ({}, "value whole", (1, 0)),
    "nan": ({}, "value", (1, 0)),
    "binary": ({"objective": "binary:logistic"}, "binary", (1, 0)),
    "base_score": ({"objective": "binary:logistic", "base_score": 0.2}, "binary", (1, 0)),
    "logitraw": ({"objective": "binary:logitraw", "base_score": 0.3}, "binary", (1, 0)),
    "multiclass": ({"objective": "multi:softprob", "num_class": 3}, "class", (1, 0)),
    "poisson": ({"objective": "count:poisson"}, "count", (1, 0)),
    "ranking": ({"objective": "rank:pairwise"}, "class grouped", (1, 0)),
    "rank:ndcg": ({"objective": "rank:ndcg"}, "class grouped", (2, 0)),
    "dart": ({"booster": "dart", "rate_drop": 0.5}, "value", (1, 0)),
    "forest": ({"num_parallel_tree": 3, "subsample": 0.5}, "value", (1, 0)),
    "pruned": ({"updater": "grow_colmaker,prune", "gamma": 2.0}, "value", (1, 0)),
    "categories": ({"max_cat_to_onehot": 1}, "value codes", (1, 6)),
    "categories one-hot": ({"max_cat_to_onehot": 64}, "value codes", (1, 6)),
    "absoluteerror": ({"objective": "reg:absoluteerror"}, "value", (1, 7)),
    "several targets": ({}, "several", (1, 6)),
    "vector leaves": ({"multi_strategy": "multi_output_tree"}, "several", (2, 0)),
    "quantiles": ({"objective": "reg:quantileerror", "quantile_alpha": [0.2, 0.8]}, "value", (2, 0)),
    "quantiles that cross": ({"objective": "reg:quantileerror", "quantile_alpha": [0.45, 0.5, 0.55]}, "value", (2, 0)),
    "expectiles": ({"objective": "reg:expectileerror", "expectile_alpha": [0.1, 0.5, 0.9]}, "value", (3, 3)),
    "an expectile": ({"objective": "reg:expectileerror", "expectile_alpha": 0.9}, "value", (3, 3)),
    "vector expectiles": (
        {
            "objective": "reg:expectileerror",
            "expectile_alpha": [0.1, 0.5, 0.9],
            "multi_strategy": "multi_output_tree",
            "base_score": 0.3,
        },
        "value",
        (3, 3),
    ),
    "dropout": ({"rate_drop": 0.5}, "value", (3, 3)),
}


def training_rows(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Five features (normal, counts, heavy tails, codes, small numbers) with missing values, and a target."""
    n = N_TRAINING_ROWS
    X = np.column_stack(
        [
            rng.normal(size=n),
            rng.poisson(1.0, n),
            np.exp(2 * rng.normal(size=n)),
            rng.integers(0, N_CODES, n),
            rng.integers(-3, 4, n) / 3,
        ]
    )
    target = X[:, 0] + 0.5 * X[:, 1] + np.sin(X[:, 2]) + rng.normal(size=N_CODES)[X[:, CODES].astype(int)]
    target += X[:, 4] + 0.2 * rng.normal(size=n)
    X[rng.random(X.shape) < 0.15] = np.nan
    return X, target


def labels(kind: str, target: np.ndarray) -> np.ndarray:
    """Convert the target to `kind`: values, two or three classes, counts, or several targets."""
    if "binary" in kind:
        return (target > np.median(target)).astype(float)
    if "class" in kind:
        return np.searchsorted(np.quantile(target, [0.4, 0.8]), target).astype(float)
    if "count" in kind:
        return np.floor(np.exp(target / 2))
    if "several" in kind:
        return np.column_stack([target, -target, target**2])
    return target


def rows_for(rng: np.random.Generator, tests: list[tuple[int, float]], infinite: bool, n_features: int) -> np.ndarray:
    """Rows in which every feature takes its thresholds and values one unit in the last place from them."""
    columns = []
    for feature in range(n_features):
        t = np.unique([threshold for at, threshold in tests if at == feature])
        narrow = t.astype(np.float32)
        pool = [t, np.nextafter(t, np.inf), np.nextafter(t, -np.inf)]
        pool += [np.nextafter(narrow, np.float32(toward)) for toward in (np.inf, -np.inf)]
        rare = SPECIAL + (INFINITE if infinite else [])
        if feature == CODES:
            rare = [*range(N_CODES), *rare, *ODD_CODES]
        column = np.concatenate([np.asarray(part, float) for part in (*pool, rare)])
        assert len(column) <= N_ROWS, f"feature {feature} needs {len(column)} rows"
        columns.append(np.resize(rng.permutation(column), N_ROWS))
    return np.column_stack(columns)


def kept(array: np.ndarray) -> dict[str, Any]:
    array = np.ascontiguousarray(array)
    return {"dtype": array.dtype.str, "shape": array.shape, "hex": array.tobytes().hex()}


def kept_leaves(leaves: np.ndarray) -> dict[str, Any]:
    leaves = leaves.reshape(len(leaves), -1)
    assert leaves.min() >= 0 and leaves.max() < 256, "a leaf number does not fit a byte"
    return kept(leaves.astype(np.uint8))


def of_lightgbm(rng: np.random.Generator) -> tuple[str, dict[str, Any]]:
    import lightgbm

    X, target = training_rows(rng)
    quiet = {"verbose": -1, "num_threads": 1, "seed": 1}
    small = {"num_leaves": 7, "min_data_in_leaf": 5, "max_bin": 15, "learning_rate": 0.3}
    boosters = {}
    for name, (params, kind) in LIGHTGBM.items():
        data = lightgbm.Dataset(
            np.nan_to_num(X) if "whole" in kind else X,
            labels(kind, target),
            group=[GROUP] * (len(X) // GROUP) if "grouped" in kind else None,
            categorical_feature=[CODES] if "codes" in kind else [],
        )
        rounds = 2 if "class" in kind else 5
        boosters[name] = lightgbm.train({**quiet, **small, **params}, data, rounds)
    models = {name: booster.model_to_string() for name, booster in boosters.items()}
    tests = [test for text in models.values() for test in lightgbm_tests(text)]
    rows = rows_for(rng, tests, True, X.shape[1])
    cases = {}
    for name, booster in boosters.items():
        cases[name] = {"model": models[name], "answers": {}}
        for dtype in ("float64", "float32"):
            with np.errstate(over="ignore"):
                asked = rows.astype(dtype)
            cases[name]["answers"][dtype] = {
                "raw": kept(booster.predict(asked, raw_score=True)),
                "leaves": kept_leaves(booster.predict(asked, pred_leaf=True)),
                "values": kept(booster.predict(asked)),
            }
    return lightgbm.__version__, {"rows": kept(rows), "cases": cases}


def lightgbm_tests(text: str) -> list[tuple[int, float]]:
    features = re.findall(r"^split_feature=(.*)$", text, re.M)
    thresholds = re.findall(r"^threshold=(.*)$", text, re.M)
    return [
        (int(feature), float(threshold))
        for tree, of_tree in enumerate(features)
        for feature, threshold in zip(of_tree.split(), thresholds[tree].split())  # noqa: B905
    ]


def of_xgboost(rng: np.random.Generator) -> tuple[str, dict[str, Any]]:
    import xgboost

    X, target = training_rows(rng)
    version = tuple(int(part) for part in xgboost.__version__.split(".")[:2])
    small = {"nthread": 1, "seed": 1, "max_depth": 3, "verbosity": 0}
    boosters = {}
    for name, (params, kind, since) in XGBOOST.items():
        if version < since:
            continue
        method = {} if "updater" in params else {"tree_method": "hist", "max_bin": 16}
        values = np.nan_to_num(X) if "whole" in kind else X
        data = xgboost.DMatrix(values, labels(kind, target), **matrix_fields(kind))
        if "grouped" in kind:
            data.set_group([GROUP] * (len(X) // GROUP))
        many = "class" in kind or "several" in kind or "num_parallel_tree" in params
        boosters[name] = kind, xgboost.train({**small, **method, **params}, data, 2 if many else 5)
    cases, tests = {}, []
    for name, (_, booster) in boosters.items():
        cases[name] = {"model": saved(booster, "json").decode(), "answers": {}}
        if version >= (1, 6) and name in ("nan", "multiclass", "categories", "vector leaves"):
            cases[name]["ubj"] = saved(booster, "ubj").hex()
        tests += xgboost_tests(cases[name]["model"])
    rows = rows_for(rng, tests, False, X.shape[1])
    for name, (kind, booster) in boosters.items():
        for dtype in ("float64", "float32"):
            asked = xgboost.DMatrix(rows.astype(dtype), **matrix_fields(kind))
            cases[name]["answers"][dtype] = {
                "raw": kept(booster.predict(asked, output_margin=True)),
                "leaves": kept_leaves(booster.predict(asked, pred_leaf=True)),
                "values": kept(booster.predict(asked)),
            }
    return xgboost.__version__, {"rows": kept(rows), "cases": cases}


def matrix_fields(kind: str) -> dict[str, Any]:
    if "codes" not in kind:
        return {}
    return {"feature_types": ["c" if at == CODES else "q" for at in range(5)], "enable_categorical": True}


def saved(booster: Any, form: str) -> bytes:
    """The model's content as a file of this form."""
    path = HERE / f"being written.{form}"
    booster.save_model(str(path))
    try:
        return path.read_bytes()
    finally:
        path.unlink()


def xgboost_tests(text: str) -> list[tuple[int, float]]:
    booster = json.loads(text)["learner"]["gradient_booster"]
    return [
        (feature, tree["split_conditions"][node])
        for tree in booster.get("gbtree", booster)["model"]["trees"]
        for node, feature in enumerate(tree["split_indices"])
        if tree["left_children"][node] >= 0
    ]


def main() -> None:
    library = sys.argv[1] if len(sys.argv) > 1 else ""
    makers = {"lightgbm": of_lightgbm, "xgboost": of_xgboost}
    if library not in makers:
        sys.exit(f"say which: python {sys.argv[0]} {' | '.join(makers)}")
    version, document = makers[library](np.random.default_rng(20))
    path = HERE / library / f"{version}.json.xz"
    path.parent.mkdir(exist_ok=True)
    text = json.dumps({"version": version, **document}, separators=(",", ":"))
    path.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    print(f"{path}: {len(document['cases'])} models, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
