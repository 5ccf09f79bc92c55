"""Every engine on every instruction set against the installed scikit-learn, bit for bit."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import pytest
from agreement import COMPILED, DTYPES, Expected, assert_agrees, assert_engine_agrees
from trained import (
    Rows,
    Trained,
    documents,
    labels,
    of_odd_scales,
    of_odd_scales_within_float32,
    rows,
    two_features,
    with_categories,
    with_nan,
)

import gpuqs
from gpuqs.forest import CATEGORICAL
from gpuqs.formats import read_model

pytest.importorskip("sklearn", minversion="1.6")
from sklearn import dummy, ensemble, tree
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor

TREES = ("DecisionTree", "ExtraTreeC", "ExtraTreeR")
FORESTS = ("RandomForest", "ExtraTrees")


def with_sparse_codes(rng: np.random.Generator) -> Rows:
    """Features 1 and 5 hold category codes far apart, some missing."""
    X, target = with_categories(rng)
    X[:, 1] = np.where(np.isnan(X[:, 1]), np.nan, (X[:, 1] * 1681) % 65_536)
    X[:, 5] = np.array([0, 3, 31, 32, 33, 64, 65_535])[X[:, 5].astype(int)]
    return X, target


def with_nan_in_one(rng: np.random.Generator) -> Rows:
    """NaN in one feature only, by far the most predictive one."""
    X, target = rows(rng)
    X[rng.random(len(X)) < 0.3, 0] = np.nan
    return X, target + 10 * np.isnan(X[:, 0])


@dataclass(frozen=True)
class Recipe:
    """Which estimator, parameters that differ from the defaults here, rows and labels."""

    kind: str
    params: dict[str, Any] = field(default_factory=dict)
    rows: Callable[[np.random.Generator], Rows] = rows
    label: str = "value"
    #: Whether the estimator accepts NaN.
    nan: bool = True
    #: Features whose values are categories.
    categorical: tuple[int, ...] = ()
    min_leaves: int = 2


RECIPES = {
    "tree": Recipe("DecisionTreeRegressor"),
    "tree of classes": Recipe("DecisionTreeClassifier", label="class"),
    "tree of one class": Recipe("DecisionTreeClassifier", {"max_depth": 3}, label="one", min_leaves=1),
    "extra tree": Recipe("ExtraTreeRegressor", nan=False),
    "extra tree of classes": Recipe("ExtraTreeClassifier", label="texts", nan=False),
    "tree, 900 leaves": Recipe("DecisionTreeRegressor", {"max_depth": None}, min_leaves=257),
    "tree, best first": Recipe("DecisionTreeRegressor", {"max_leaf_nodes": 40, "max_depth": None}),
    "tree, pruned": Recipe("DecisionTreeRegressor", {"ccp_alpha": 0.02, "max_depth": None}),
    "tree, nan": Recipe("DecisionTreeClassifier", rows=with_nan, label="class"),
    "tree, nan in one": Recipe("DecisionTreeRegressor", rows=with_nan_in_one),
    "tree, poisson": Recipe("DecisionTreeRegressor", {"criterion": "poisson"}, label="count"),
    "tree, several": Recipe("DecisionTreeRegressor", label="several"),
    "tree, monotone": Recipe("DecisionTreeRegressor", {"monotonic_cst": [1, 0, 0, 0, 0, 0, 0, -1]}, nan=False),
    "forest": Recipe("RandomForestRegressor"),
    "forest, nan": Recipe("RandomForestRegressor", rows=with_nan),
    "forest, nan in one": Recipe("RandomForestClassifier", rows=with_nan_in_one, label="class"),
    "forest, odd scales": Recipe("RandomForestRegressor", rows=of_odd_scales_within_float32),
    "forest, several": Recipe("RandomForestRegressor", label="several"),
    "forest, 600 leaves": Recipe("RandomForestRegressor", {"max_depth": None, "n_estimators": 5}, min_leaves=257),
    "forest of two classes": Recipe("RandomForestClassifier", label="binary"),
    "forest of classes": Recipe("RandomForestClassifier", {"class_weight": "balanced_subsample"}, label="texts"),
    "extra trees": Recipe("ExtraTreesRegressor", {"bootstrap": True}, nan=False),
    "extra trees of classes": Recipe("ExtraTreesClassifier", label="class", nan=False),
    "boosting": Recipe("GradientBoostingRegressor", nan=False),
    "boosting, huber": Recipe("GradientBoostingRegressor", {"loss": "huber", "subsample": 0.7}, nan=False),
    "boosting, quantile": Recipe("GradientBoostingRegressor", {"loss": "quantile", "alpha": 0.3}, nan=False),
    "boosting, odd scales": Recipe("GradientBoostingRegressor", rows=of_odd_scales_within_float32, nan=False),
    "boosting from zero": Recipe("GradientBoostingRegressor", {"init": "zero", "learning_rate": 0.37}, nan=False),
    "boosting from a constant": Recipe(
        "GradientBoostingRegressor", {"init": dummy.DummyRegressor(strategy="constant", constant=0.1)}, nan=False
    ),
    "boosting of two classes": Recipe("GradientBoostingClassifier", label="binary", nan=False),
    "boosting, exponential": Recipe("GradientBoostingClassifier", {"loss": "exponential"}, label="binary", nan=False),
    "boosting of classes": Recipe("GradientBoostingClassifier", label="texts", nan=False),
    "boosting of classes from zero": Recipe("GradientBoostingClassifier", {"init": "zero"}, label="class", nan=False),
    "histograms": Recipe("HistGradientBoostingRegressor"),
    "histograms, nan": Recipe("HistGradientBoostingRegressor", rows=with_nan),
    "histograms, nan in one": Recipe("HistGradientBoostingRegressor", rows=with_nan_in_one),
    "histograms, odd scales": Recipe("HistGradientBoostingRegressor", rows=of_odd_scales),
    "histograms, many thresholds": Recipe("HistGradientBoostingRegressor", rows=two_features),
    "histograms, poisson": Recipe("HistGradientBoostingRegressor", {"loss": "poisson"}, label="count"),
    "histograms, gamma": Recipe("HistGradientBoostingRegressor", {"loss": "gamma"}, label="positive"),
    "histograms, quantile": Recipe("HistGradientBoostingRegressor", {"loss": "quantile", "quantile": 0.7}),
    "histograms, monotone": Recipe("HistGradientBoostingRegressor", {"monotonic_cst": [1, 0, 0, 0, 0, 0, 0, -1]}),
    "histograms of two classes": Recipe("HistGradientBoostingClassifier", rows=with_nan, label="binary"),
    "histograms of classes": Recipe("HistGradientBoostingClassifier", rows=with_nan, label="texts"),
    "histograms, 300 leaves": Recipe(
        "HistGradientBoostingRegressor",
        {"max_leaf_nodes": None, "min_samples_leaf": 1, "max_iter": 4},
        min_leaves=257,
    ),
    "histograms, categories": Recipe("HistGradientBoostingRegressor", rows=with_categories, categorical=(1, 5)),
    "histograms, sparse codes": Recipe("HistGradientBoostingRegressor", rows=with_sparse_codes, categorical=(1, 5)),
    "histograms of classes, sparse codes": Recipe(
        "HistGradientBoostingClassifier", rows=with_sparse_codes, label="class", categorical=(1, 5)
    ),
    "isolation": Recipe("IsolationForest", {"n_estimators": 12}),
    "isolation of some features": Recipe("IsolationForest", {"max_features": 0.4, "max_samples": 100}),
    "isolation of one feature": Recipe("IsolationForest", {"max_features": 1, "max_samples": 2}),
}


def target_of(label: str, target: np.ndarray) -> np.ndarray:
    if label == "texts":
        return np.array(["low", "middle", "high"])[labels("class", target).astype(int)]
    if label == "one":
        return np.full(len(target), 7)
    if label == "several":
        return np.column_stack([target, -target, target**2])
    if label == "positive":
        return np.exp(target / 3)
    return labels(label, target)


@cache
def sklearn_trained(name: str) -> Trained:
    recipe = RECIPES[name]
    X, target = recipe.rows(np.random.default_rng(17))
    kind = recipe.kind
    params: dict[str, Any] = {"random_state": 1}
    if kind.startswith("Hist"):
        params |= {"max_iter": 12, "min_samples_leaf": 5, "categorical_features": recipe.categorical or None}
    else:
        params |= {} if kind == "IsolationForest" else {"max_depth": 6}
        params |= {} if kind.startswith(TREES) else {"n_estimators": 12}
    estimator = getattr(tree if kind.startswith(TREES) else ensemble, kind)(**params | recipe.params)
    estimator.fit(X, target_of(recipe.label, target))
    model = gpuqs.from_model(estimator)
    assert model.n_leaves >= recipe.min_leaves, "the model has too few leaves for its test to mean anything"
    of_category = model.forest.feature[(model.forest.routing & CATEGORICAL) != 0]
    assert set(of_category.tolist()) == set(recipe.categorical)
    return Trained(estimator, model, X)


def scored(estimator: Any, X: Any) -> tuple[np.ndarray | None, np.ndarray, np.ndarray]:
    """scikit-learn's raw scores (None if it has no method for them), values and exit leaves."""
    name = type(estimator).__name__
    if name == "IsolationForest":
        X = X.astype(np.float32)
        leaves = [
            one.apply(X if len(columns) == X.shape[1] else X[:, columns])
            for one, columns in zip(estimator.estimators_, estimator.estimators_features_, strict=True)
        ]
        return None, estimator.score_samples(X), np.column_stack(leaves)
    classifier = hasattr(estimator, "predict_proba")
    values = estimator.predict_proba(X) if classifier else estimator.predict(X)
    if name.startswith((*TREES, *FORESTS)):
        if classifier and values.shape[1] == 1:
            values = values[:, 0]
        raw = values if name.startswith(TREES) else None
        return raw, values, estimator.apply(X).reshape(len(X), -1)
    if classifier and values.shape[1] == 2:
        values = values[:, 1]
    if name.startswith("Hist"):
        raw = estimator._raw_predict(X, n_threads=1)
        leaves = hist_leaves(estimator, X)
    else:
        raw = estimator._raw_predict(np.ascontiguousarray(X, np.float32))
        leaves = estimator.apply(X).reshape(len(X), -1)
    return raw.reshape(values.shape), values, leaves


def hist_leaves(estimator: Any, X: Any) -> np.ndarray:
    """The exit nodes of documents, by scikit-learn's own trees with each node's value replaced by its index."""
    documents = estimator._preprocess_X(X, reset=False)
    known = estimator._bin_mapper.make_known_categories_bitsets()
    leaves = []
    for predictor in [one for of_iteration in estimator._predictors for one in of_iteration]:
        nodes = predictor.nodes.copy()
        nodes["value"] = np.arange(len(nodes))
        numbered = TreePredictor(nodes, predictor.binned_left_cat_bitsets, predictor.raw_left_cat_bitsets)
        leaves.append(numbered.predict(documents, *known, 1))
    return np.column_stack(leaves).astype(int)


@cache
def expected(name: str, dtype: type) -> Expected:
    """Documents with scikit-learn's raw scores, values and exit leaves."""
    recipe, trained = RECIPES[name], sklearn_trained(name)
    X = documents(trained, dtype, infinite=recipe.kind.startswith("Hist"))
    if not recipe.nan:
        X[np.isnan(X)] = -0.5
    for column in recipe.categorical:  # scikit-learn accepts all values except these
        X[np.isinf(X[:, column]), column] = 2.5
    return Expected(X, *scored(trained.booster, X))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", RECIPES)
def test_reference(name: str, dtype: type) -> None:
    assert_agrees(sklearn_trained(name).model, expected(name, dtype), "reference")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("engine", COMPILED)
@pytest.mark.parametrize("name", RECIPES)
def test_engines(isa: str, name: str, engine: str, dtype: type) -> None:
    assert_engine_agrees(sklearn_trained(name).model, expected(name, dtype), engine)


@pytest.mark.parametrize("name", [name for name, recipe in RECIPES.items() if "Classifier" in recipe.kind])
def test_classes(name: str) -> None:
    trained = sklearn_trained(name)
    X = expected(name, np.float64).X
    theirs = trained.booster.predict(X)
    got = trained.model.predict(X, "class")
    assert got.dtype.kind == theirs.dtype.kind
    np.testing.assert_array_equal(got, theirs)


@pytest.mark.parametrize("name", ["boosting of classes", "histograms, nan", "histograms of classes"])
@pytest.mark.parametrize("n", [1, 5])
def test_part_of_the_trees(name: str, n: int) -> None:
    trained = sklearn_trained(name)
    X = expected(name, np.float64).X
    staged = "staged_decision_function" if "classes" in name else "staged_predict"
    *_, raw = islice(getattr(trained.booster, staged)(X), n)
    part = slice(0, n * trained.model.n_outputs)
    np.testing.assert_array_equal(trained.model.predict(X, "raw", trees=part), raw)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64, bool])
@pytest.mark.parametrize("name", ["forest", "boosting", "histograms", "histograms, sparse codes"])
def test_other_types_of_documents(name: str, dtype: type) -> None:
    trained = sklearn_trained(name)
    X = np.random.default_rng(0).integers(-1000, 1000, (200, trained.model.n_features))
    X[0] = 2**31 - 1  # rounded where integers become float32
    X = X.astype(dtype)
    np.testing.assert_array_equal(trained.model.predict(X), trained.booster.predict(X))


def test_frames_by_name() -> None:
    pd = pytest.importorskip("pandas")
    X, target = rows(np.random.default_rng(3))
    frame = pd.DataFrame(X, columns=[f"column {i}" for i in range(X.shape[1])])
    for kind in (ensemble.RandomForestRegressor, ensemble.HistGradientBoostingRegressor):
        estimator = kind(max_depth=4, random_state=1, **({"n_estimators": 5} if "Random" in kind.__name__ else {}))
        estimator.fit(frame, target)
        model = gpuqs.from_model(estimator)
        assert model.feature_names == tuple(frame.columns)
        theirs = estimator.predict(frame)
        np.testing.assert_array_equal(model.predict(frame[frame.columns[::-1]]), theirs)
        np.testing.assert_array_equal(model.predict(X), theirs)


def frame_with_categories(pd: Any) -> Rows:
    """Numeric columns between categorical ones of strings, numbers and booleans."""
    rng = np.random.default_rng(5)
    n = 800
    frame = pd.DataFrame(
        {
            "a": rng.normal(size=n),
            "shade": pd.Categorical.from_codes(rng.integers(-1, 40, n), [f"shade {40 - i}" for i in range(40)]),
            "b": rng.normal(size=n).astype(np.float32),
            "grade": pd.Categorical.from_codes(rng.integers(-1, 6, n), [70, 10, 3, 60_000, 0, 33]),
            "truth": rng.random(n) < 0.5,
            "c": rng.integers(0, 9, n),
        }
    )
    effect = rng.normal(size=(2, 41))
    target = frame["a"] + effect[0][frame["shade"].cat.codes] + effect[1][frame["grade"].cat.codes]
    return frame, (target * np.where(frame["truth"], 1, -1) + 0.1 * frame["c"]).to_numpy()


@pytest.mark.parametrize("engine", ["reference", *COMPILED])
def test_frames_with_categories(engine: str) -> None:
    pd = pytest.importorskip("pandas")
    frame, target = frame_with_categories(pd)
    estimator = ensemble.HistGradientBoostingRegressor(
        max_iter=12, min_samples_leaf=5, categorical_features=["shade", "grade", "truth"]
    ).fit(frame, target)
    model = gpuqs.from_model(estimator)
    forest = model.forest
    assert set(forest.feature[(forest.routing & CATEGORICAL) != 0].tolist()) == {1, 3, 4}
    assert forest.schema.categories[1] is not None
    assert forest.schema.categories[0] is forest.schema.categories[3] is None
    if model.engines()[engine] is not None:
        pytest.skip(model.engines()[engine])

    def agree(X: Any) -> None:
        np.testing.assert_array_equal(model.predict(X, engine=engine), estimator.predict(X))
        np.testing.assert_array_equal(model.predict(X, "leaf", engine=engine), hist_leaves(estimator, X))

    agree(frame)
    other = frame.copy()  # with categories in another order, other categories, some missing
    other["shade"] = other["shade"].cat.add_categories(["new"]).cat.reorder_categories(
        ["new", *frame["shade"].cat.categories[::-1]]
    )
    other.loc[:60, "shade"] = "new"
    other.loc[50:99, "a"] = np.nan
    agree(other)
    agree(other.assign(shade=other["shade"].astype(object)))
    agree(other.assign(grade=other["grade"].cat.rename_categories({70: -1, 10: 3.5, 3: 10})))
    agree(other.assign(grade=np.resize([3, 3.25, -1, 60_000, 1e6, np.nan, -0.0], len(other))))
    agree(other.assign(truth=np.resize([0.0, 1.0, np.nan, 2.0], len(other))))


def test_categories_from_the_types_of_columns() -> None:
    pd = pytest.importorskip("pandas")
    frame, target = frame_with_categories(pd)
    estimator = ensemble.HistGradientBoostingClassifier(max_iter=10, min_samples_leaf=5).fit(frame, target > 0)
    model = gpuqs.from_model(estimator)
    used = model.forest.feature[(model.forest.routing & CATEGORICAL) != 0]
    assert set(used.tolist()) == {1, 3}
    np.testing.assert_array_equal(model.predict(frame, "raw"), estimator.decision_function(frame))


def test_pickled_estimators_score_as_before() -> None:
    for name in ("forest, nan", "boosting of classes", "histograms, sparse codes", "isolation"):
        X, leaves = expected(name, np.float64).X, expected(name, np.float64).leaves
        model = gpuqs.from_model(pickle.loads(pickle.dumps(sklearn_trained(name).booster)))
        np.testing.assert_array_equal(model.predict(X, "leaf"), leaves)


def test_the_estimator_is_left_as_it_was() -> None:
    for name in RECIPES:
        trained = sklearn_trained(name)
        before = pickle.dumps(trained.booster)
        forest = read_model(trained.booster)
        assert not any(
            np.shares_memory(array, one.tree_.value)
            for one in np.ravel(getattr(trained.booster, "estimators_", []))
            for array in (forest.leaf_value, forest.threshold)
        )
        assert pickle.dumps(trained.booster) == before
