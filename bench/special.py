"""Models with several outputs, fully grown forests, categories (sets, CTRs), linear trees, staged prediction.

    python bench/special.py                    # figures go to bench/results/
    python bench/special.py --quick            # a smoke run, nothing written

Contenders take turns on one thread; scores are checked bit for bit before anything is timed. Rows with categories hold
numbers and strings, as CatBoost's users have them: in frames, and, for a few rows, in lists.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import catboost
import lightgbm
import numpy as np
import pandas
import sklearn
import xgboost
from interleave import by_turns, keep, processor
from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier, RandomForestRegressor

import gpuqs

#: Classes of the models of several outputs.
N_CLASSES = 10
#: Number of categories in each column of strings.
CARDINALITIES = (10, 50, 100, 1_000, 30_000)


def several_outputs(n_trees: int, n_rows: int, rounds: int) -> list[dict[str, Any]]:
    """Classifiers: a tree for each class, and trees whose leaves have a value for each."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2 * n_rows, 50)).astype(np.float32)
    target = (X[:, :5].sum(axis=1) * 1.5 + rng.normal(size=len(X))).astype(int) % N_CLASSES
    params = {"objective": "multiclass", "num_class": N_CLASSES, "num_threads": 2, "verbosity": -1}
    gbm = lightgbm.train(params, lightgbm.Dataset(X, target), n_trees)
    params = {"objective": "multi:softprob", "num_class": N_CLASSES, "nthread": 2, "verbosity": 0}
    xgb = xgboost.train(params, xgboost.DMatrix(X, target), n_trees)
    xgb.set_param({"nthread": 1})
    cat = catboost.CatBoostClassifier(
        iterations=n_trees, loss_function="MultiClass", thread_count=2, verbose=0, allow_writing_files=False
    ).fit(X, target)
    libraries: dict[str, tuple[Any, Callable[[Any], Any]]] = {
        f"LightGBM {lightgbm.__version__}, {N_CLASSES} classes x {n_trees} trees x 31": (
            gbm,
            lambda x: gbm.predict(x, raw_score=True, num_threads=1),
        ),
        f"XGBoost {xgboost.__version__}, {N_CLASSES} classes x {n_trees} trees of depth 6": (
            xgb,
            lambda x: xgb.inplace_predict(x, predict_type="margin"),
        ),
        f"CatBoost {catboost.__version__}, {n_trees} trees of depth 6 with {N_CLASSES} values a leaf": (
            cat,
            lambda x: cat.predict(x, prediction_type="RawFormulaVal", thread_count=1),
        ),
    }
    found = []
    for what, (trained, score) in libraries.items():
        model = gpuqs.from_model(trained)
        cases = {}
        for n in (n_rows, 100, 1):
            x = X[:n]
            theirs, ours = partial(score, x), partial(model.predict, x, "raw", n_threads=1)
            cases[f"{n:,} float32 row{'s' * (n > 1)}"] = theirs, ours, n
        found.append({"what": what, "cases": measured(cases, rounds)})
    return found


def fully_grown(n_trees: int, n_rows: int, rounds: int) -> list[dict[str, Any]]:
    """scikit-learn's random forests, whose trees by default split until their leaves are pure."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3 * n_rows, 28)).astype(np.float32)
    noise = rng.normal(size=len(X))
    target = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + 0.4 * X[:, 3:8].sum(axis=1) + 0.8 * noise
    training, rows = X[: 2 * n_rows], X[2 * n_rows :]
    fields = {"n_estimators": n_trees, "n_jobs": 2, "random_state": 0}
    classifier = RandomForestClassifier(**fields).fit(training, target[: 2 * n_rows] > 0)
    regressor = RandomForestRegressor(max_features=1 / 3, **fields).fit(training, target[: 2 * n_rows])
    tenth = np.searchsorted(np.quantile(target, np.arange(0.1, 1, 0.1)), target[: 2 * n_rows])
    of_ten = RandomForestClassifier(**fields).fit(training, tenth)
    classifiers = ((f"{n} classes", forest, forest.predict_proba) for n, forest in ((2, classifier), (10, of_ten)))
    found = []
    for kind, forest, score in (*classifiers, ("one output", regressor, regressor.predict)):
        model = gpuqs.from_model(forest.set_params(n_jobs=1))
        cases = {}
        for n in (n_rows, 100, 1):
            theirs, ours = partial(score, rows[:n]), partial(model.predict, rows[:n], n_threads=1)
            cases[f"{n:,} float32 row{'s' * (n > 1)}"] = theirs, ours, n
        leaves = len(model.forest.leaf_value) / n_trees
        grown = f"{kind}, {n_trees:,} trees of about {leaves:,.0f} leaves"
        what = f"scikit-learn {sklearn.__version__}, {type(forest).__name__}, {grown}"
        found.append({"what": what, "cases": measured(cases, rounds)})
    return found


def staged(n_trees: int, n_rows: int, rounds: int) -> list[dict[str, Any]]:
    """Scores after each tree, as for learning curves; microseconds are for all stages of a row."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2 * n_rows, 30)).astype(np.float32)
    target = X[:, 0] * X[:, 1] + X[:, 2] + rng.normal(size=len(X))
    params = {"num_leaves": 64, "num_threads": 2, "verbosity": -1}
    gbm = lightgbm.train(params, lightgbm.Dataset(X, target), n_trees)
    xgb = xgboost.train({"max_depth": 6, "nthread": 2, "verbosity": 0}, xgboost.DMatrix(X, target), n_trees)
    xgb.set_param({"nthread": 1})
    grown = GradientBoostingRegressor(n_estimators=n_trees, max_depth=6).fit(X[:n_rows], target[:n_rows])
    ends = range(1, n_trees + 1)

    def cached(x: np.ndarray) -> list[np.ndarray]:
        """XGBoost caches a matrix's sums, and adds the next tree to them."""
        matrix = xgboost.DMatrix(x)
        return [xgb.predict(matrix, iteration_range=(0, end)) for end in ends]

    libraries: dict[str, tuple[Any, Callable[[Any], Any]]] = {
        f"LightGBM {lightgbm.__version__}, {n_trees} x 64": (
            gbm,
            lambda x: [gbm.predict(x, num_iteration=end, num_threads=1) for end in ends],
        ),
        f"XGBoost {xgboost.__version__}, {n_trees} trees of depth 6": (xgb, cached),
        f"scikit-learn {sklearn.__version__}, GradientBoostingRegressor, {n_trees} trees of depth 6": (
            grown,
            lambda x: list(grown.staged_predict(x)),
        ),
    }
    found = []
    for what, (trained, score) in libraries.items():
        cases = {}
        for n in (n_rows, n_rows // 10, 100, 1):
            x, model = X[:n], gpuqs.from_model(trained)
            ours = partial(lambda model, x: list(model.staged_predict(x, n_threads=1)), model, x)
            cases[f"{n:,} float32 row{'s' * (n > 1)}"] = partial(score, x), ours, n
        found.append({"what": f"{what}: {n_trees} stages by `staged_predict`", "cases": measured(cases, rounds)})
    return found


def category_sets(n_trees: int, n_leaves: int, n_categories: int, n_rows: int, rounds: int) -> dict[str, Any]:
    """LightGBM's trees, most of whose tests ask whether a category is in a set."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, n_categories, (4 * n_rows, 4))
    numbers = rng.normal(size=(len(codes), 10))
    target = numbers[:, :3].sum(axis=1) + rng.normal(size=(4, n_categories))[np.arange(4), codes].sum(axis=1)
    X = np.hstack([numbers, codes])
    params = {"num_leaves": n_leaves, "min_data_per_group": 5, "cat_smooth": 1, "verbosity": -1, "num_threads": 2}
    data = lightgbm.Dataset(X, target, categorical_feature=[10, 11, 12, 13])
    booster = lightgbm.train(params, data, n_trees)
    model, cases = gpuqs.from_model(booster), {}
    for n in (n_rows, 100, 1):
        x = X[:n].astype(np.float32)
        theirs, ours = partial(booster.predict, x, num_threads=1), partial(model.predict, x, n_threads=1)
        cases[f"{n:,} float32 row{'s' * (n > 1)}"] = theirs, ours, n
    what = (
        f"LightGBM {lightgbm.__version__}, {n_trees:,} x {n_leaves}: 4 columns of {n_categories:,} categories, "
        f"10 numbers, {model.forest.n_category_sets:,} tests of categories"
    )
    return {"what": what, "cases": measured(cases, rounds)}


def rows_with_texts(n: int) -> tuple[pandas.DataFrame, np.ndarray, list[str]]:
    """Rows, whether each is positive, and the names of the string columns."""
    rng = np.random.default_rng(0)
    codes = [rng.integers(0, cardinality, n) for cardinality in CARDINALITIES]
    texts = {f"c{column}": of.astype(str) for column, of in enumerate(codes)}
    numbers = {f"f{column}": rng.normal(size=n).astype(np.float32) for column in range(10)}
    score = (codes[2] % 5) * 0.3 + numbers["f0"] + numbers["f1"] * (codes[3] % 3) + rng.normal(size=n)
    return pandas.DataFrame(texts | numbers), score > 0.8, list(texts)


def categories(n_trees: int, n_rows: int, rounds: int) -> dict[str, Any]:
    """A CatBoostClassifier with default parameters, on frames, pools and lists."""
    frame, target, names = rows_with_texts(10 * n_rows)
    quiet = {"verbose": 0, "allow_writing_files": False, "thread_count": 2, "random_seed": 1}
    booster = catboost.CatBoostClassifier(iterations=n_trees, **quiet).fit(frame, target, cat_features=names)
    model = gpuqs.from_model(booster)
    rows = frame[:n_rows]
    typed = rows.astype(dict.fromkeys(names, "category"))
    pool = catboost.Pool(rows, cat_features=names)
    few = {n: rows[:n].astype(object).to_numpy().tolist() for n in (1, 100)}

    def theirs(X: Any) -> Callable[[], Any]:
        return lambda: booster.predict(X, prediction_type="RawFormulaVal", thread_count=1)

    def ours(X: Any) -> Callable[[], Any]:
        return lambda: model.predict(X, "raw", n_threads=1)

    cases = {
        f"a frame of {n_rows:,} rows with texts": (theirs(rows), ours(rows), n_rows),
        "a `Pool` of them : a frame of pandas' categories": (theirs(pool), ours(typed), n_rows),
        "a list of 100 rows": (theirs(few[100]), ours(few[100]), 100),
        "a list of one row": (theirs(few[1]), ours(few[1]), 1),
    }
    ctrs = model.forest.ctrs
    what = (
        f"CatBoost {catboost.__version__}, {n_trees:,} trees of its defaults: {len(names)} columns of up to "
        f"{max(CARDINALITIES):,} texts, {len(frame.columns) - len(names)} numbers, "
        f"{0 if ctrs is None else ctrs.n_columns - ctrs.n_given:,} CTRs"
    )
    return {"what": what, "cases": measured(cases, rounds)}


def linear(n_trees: int, n_leaves: int, n_rows: int, rounds: int) -> dict[str, Any]:
    """LightGBM's trees with linear models in their leaves."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2 * n_rows, 28))
    target = X[:, 0] * 2 + X[:, 1] ** 2 + rng.normal(size=len(X)) * 0.1
    params = {"linear_tree": True, "num_leaves": n_leaves, "verbosity": -1, "num_threads": 2}
    booster = lightgbm.train(params, lightgbm.Dataset(X, target), n_trees)
    model, rows = gpuqs.from_model(booster), X[:n_rows].astype(np.float32)
    calls = lambda: booster.predict(rows, num_threads=1), lambda: model.predict(rows, n_threads=1)
    what = f"LightGBM {lightgbm.__version__}, linear trees, {n_trees:,} x {n_leaves}, 28 features"
    return {"what": what, "cases": measured({f"{n_rows:,} float32 rows": (*calls, n_rows)}, rounds)}


def measured(cases: dict[str, tuple[Callable[[], Any], Callable[[], Any], int]], rounds: int) -> list[dict[str, Any]]:
    """Microseconds per document of the library and of gpuqs."""
    found = []
    for name, (theirs, ours, n) in cases.items():
        if not np.array_equal(np.ravel(theirs()), np.ravel(ours())):
            raise SystemExit(f"{name}: gpuqs differs")
        timings = by_turns({"theirs": theirs, "ours": ours}, rounds if n > 100 else 30 * rounds)
        each = {who: timing.median / n * 1e6 for who, timing in timings.items()}
        print(f"{name}: {each['theirs']:.2f} : {each['ours']:.2f} us/row, {each['theirs'] / each['ours']:.1f} times")
        found.append({"case": name, **each})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few trees and rows, nothing written")
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    n_rows = 500 if args.quick else 10_000
    results = several_outputs(5 if args.quick else 100, n_rows, args.rounds)
    results += fully_grown(5 if args.quick else 100, n_rows, args.rounds)
    results += staged(5 if args.quick else 200, n_rows, 1 + args.rounds // 4)
    results.append(categories(20 if args.quick else 500, n_rows, args.rounds))
    for n_categories in (200, 20_000):
        results.append(category_sets(*((5, 8) if args.quick else (300, 64)), n_categories, n_rows, args.rounds))
    for n_trees, n_leaves in ((5, 8),) if args.quick else ((100, 31), (1_000, 64)):
        results.append(linear(n_trees, n_leaves, n_rows, args.rounds))
    if not args.quick:
        keep("special", {"processor": processor(), "results": results})


if __name__ == "__main__":
    main()
