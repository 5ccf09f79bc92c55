"""Every engine on every instruction set against the installed CatBoost, bit for bit."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agreement import COMPILED, DTYPES, Expected, assert_agrees, assert_engine_agrees
from click.testing import CliRunner
from trained import Rows, Trained, documents, labels, of_odd_scales_within_float32, rows, with_nan

import gpuqs
from gpuqs.arrays import coded_rows, dense
from gpuqs.cli.commands import cli
from gpuqs.cpu_fallback.ctrs import text_hashes
from gpuqs.errors import InputError, UnsupportedModelError
from gpuqs.formats import read_model
from gpuqs.layout.leaves import number_leaves
from gpuqs.sklearn import wrap
from gpuqs.text_hashes import hash_of_name, name_of_hash
from gpuqs.verify import open_source, verify

catboost = pytest.importorskip("catboost")
pd = pytest.importorskip("pandas")



@dataclass(frozen=True)
class Recipe:
    """How to train: the kind of model, parameters that differ from the defaults here, rows and labels."""

    kind: str = "Regressor"
    params: dict[str, Any] = field(default_factory=dict)
    rows: Callable[[np.random.Generator], Rows] = rows
    label: str = "value"
    #: What CatBoost calls the prediction that is our "value".
    value: str = "RawFormulaVal"


def several(target: np.ndarray) -> np.ndarray:
    return np.column_stack([target, -target, target**2])


RECIPES = {
    **{f"depth {depth}": Recipe(params={"depth": depth}) for depth in range(1, 9)},
    "MAE": Recipe(params={"loss_function": "MAE"}),
    "Quantile": Recipe(params={"loss_function": "Quantile:alpha=0.3"}),
    "MultiRMSE": Recipe(params={"loss_function": "MultiRMSE"}, label="several"),
    "uncertainty": Recipe(params={"loss_function": "RMSEWithUncertainty"}, value="RMSEWithUncertainty"),
    "Poisson": Recipe(params={"loss_function": "Poisson"}, label="count", value="Exponent"),
    "Tweedie": Recipe(params={"loss_function": "Tweedie:variance_power=1.5"}, label="count", value="Exponent"),
    "Logloss": Recipe("Classifier", label="binary", value="Probability"),
    "MultiClass": Recipe("Classifier", label="class", value="Probability"),
    "MultiClassOneVsAll": Recipe(
        "Classifier", {"loss_function": "MultiClassOneVsAll"}, label="class", value="Probability"
    ),
    "MultiLogloss": Recipe("Classifier", {"loss_function": "MultiLogloss"}, label="tags", value="Probability"),
    "YetiRank": Recipe("Ranker", {"loss_function": "YetiRank"}, label="grade"),
    "QuerySoftMax": Recipe("Ranker", {"loss_function": "QuerySoftMax"}, label="binary"),
    "nan Min": Recipe(params={"nan_mode": "Min"}, rows=with_nan),
    "nan Max": Recipe(params={"nan_mode": "Max"}, rows=with_nan),
    "nan Forbidden": Recipe(params={"nan_mode": "Forbidden"}),
    "nan Max without nan": Recipe(params={"nan_mode": "Max"}),
    "odd scales": Recipe(rows=of_odd_scales_within_float32),
    "254 borders": Recipe(params={"border_count": 254, "depth": 8}, rows=with_nan),
    "Depthwise": Recipe(params={"grow_policy": "Depthwise", "depth": 7, "nan_mode": "Max"}, rows=with_nan),
    "Lossguide": Recipe(params={"grow_policy": "Lossguide", "max_leaves": 100, "depth": 12}, rows=with_nan),
    "Depthwise MultiClass": Recipe(
        "Classifier", {"grow_policy": "Depthwise", "depth": 4}, label="class", value="Probability"
    ),
    "some trees without splits": Recipe(params={"rsm": 0.15, "iterations": 60}),
    "no splits": Recipe(params={"depth": 0}),
    "one leaf": Recipe(params={"grow_policy": "Depthwise", "min_data_in_leaf": 10**6}),
}


def fit(kind: str, X: Any, target: np.ndarray, **params: Any) -> Any:
    defaults = {"iterations": 12, "depth": 5, "learning_rate": 0.2, "border_count": 60, "random_seed": 1}
    quiet = {"thread_count": 1, "allow_writing_files": False, "verbose": False}
    model = getattr(catboost, f"CatBoost{kind}")(**defaults | quiet | params)
    groups = {"group_id": np.arange(len(X)) // 25} if kind == "Ranker" else {}
    return model.fit(X, target, **groups)


@cache
def catboost_trained(name: str) -> Trained:
    recipe = RECIPES[name]
    X, target = recipe.rows(np.random.default_rng(17))
    if recipe.label == "several":
        target = several(target)
    elif recipe.label == "tags":
        target = np.column_stack([target > 0, target > 1]).astype(int)
    else:
        target = labels(recipe.label, target)
    model = fit(recipe.kind, X, target, **recipe.params)
    return Trained(model, gpuqs.from_model(model), X)


def predict(model: Any, X: np.ndarray, kind: str) -> np.ndarray:
    """CatBoost's prediction; for two classes, the probability of the second."""
    answer = catboost.CatBoost.predict(model, X, prediction_type=kind, thread_count=1)
    two = kind == "Probability" and model.get_all_params()["loss_function"] == "Logloss"
    return answer[:, 1] if two else answer


@cache
def expected(name: str, dtype: type) -> Expected:
    """Documents with CatBoost's raw scores, values and exit leaves."""
    trained = catboost_trained(name)
    X = documents(trained, dtype, infinite=True)
    model = trained.booster
    leaves = model.calc_leaf_indexes(X, thread_count=1)
    return Expected(X, predict(model, X, "RawFormulaVal"), predict(model, X, RECIPES[name].value), leaves)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", RECIPES)
def test_reference(name: str, dtype: type) -> None:
    assert_agrees(catboost_trained(name).model, expected(name, dtype), "reference")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("engine", COMPILED)
@pytest.mark.parametrize("name", RECIPES)
def test_engines(isa: str, name: str, engine: str, dtype: type) -> None:
    assert_engine_agrees(catboost_trained(name).model, expected(name, dtype), engine)


@pytest.mark.parametrize("name", ["depth 6", "nan Min", "MultiClass", "Lossguide"])
@pytest.mark.parametrize("n", [1, 7])
def test_few_documents_at_a_time(name: str, n: int) -> None:
    trained = catboost_trained(name)
    X, raw = expected(name, np.float32).X, expected(name, np.float32).raw
    for start in range(0, 60, n):
        part = X[start : start + n]
        theirs = predict(trained.booster, part, "RawFormulaVal")
        np.testing.assert_array_equal(theirs, raw[start : start + n])
        np.testing.assert_array_equal(trained.model.predict(part, "raw"), theirs)


@pytest.mark.parametrize("name", RECIPES)
def test_files_score_as_their_models(name: str, tmp_path: Path) -> None:
    trained = catboost_trained(name)
    X, raw = expected(name, np.float64).X, expected(name, np.float64).raw
    path = tmp_path / "a model"
    trained.booster.save_model(str(path), format="json")
    reloaded = catboost.CatBoost().load_model(str(path), format="json")
    # CatBoost itself reads some leaf values of its own file off by one unit in the last place.
    off = catboost.CatBoost.predict(reloaded, X, prediction_type="RawFormulaVal")
    from_bytes = gpuqs.from_model(path.read_bytes())
    for model, scores in ((gpuqs.load(path), raw), (from_bytes, raw), (gpuqs.from_model(reloaded), off)):
        np.testing.assert_array_equal(model.predict(X, "raw"), scores)
        # For non-symmetric trees, CatBoost renumbers the leaves when it reads the file.
        np.testing.assert_array_equal(model.predict(X, "leaf"), reloaded.calc_leaf_indexes(X))


def test_the_two_leaf_numberings_differ() -> None:
    for name in ("Depthwise", "Lossguide"):
        forest = catboost_trained(name).model.forest
        assert (number_leaves(forest).position != forest.leaf_id).any()


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.int64, np.uint64, np.float16, bool])
@pytest.mark.parametrize("name", ["depth 6", "Depthwise"])
def test_other_types_of_documents(name: str, dtype: type) -> None:
    trained = catboost_trained(name)
    X = np.random.default_rng(0).integers(-1000, 1000, (200, trained.model.n_features))
    X[0] = 2**31 - 1 if dtype is not np.float16 else 65_504
    X = X.astype(dtype)
    theirs = X.astype(np.float32) if dtype is np.float16 else X  # CatBoost refuses float16
    np.testing.assert_array_equal(
        trained.model.predict(X, "raw"), predict(trained.booster, theirs, "RawFormulaVal")
    )


@pytest.mark.parametrize("name", ["depth 6", "MultiClass", "Lossguide"])
@pytest.mark.parametrize("n", [1, 5])
def test_part_of_the_trees(name: str, n: int) -> None:
    trained = catboost_trained(name)
    X = expected(name, np.float64).X
    raw = trained.booster.predict(X, prediction_type="RawFormulaVal", ntree_end=n)
    np.testing.assert_array_equal(trained.model.predict(X, "raw", trees=slice(0, n)), raw)


@pytest.mark.parametrize("name", ["depth 6", "MultiClass", "Lossguide"])
def test_ranges_leave_the_bias_out_where_catboost_does(name: str) -> None:
    trained = catboost_trained(name)
    biased, X = trained.booster.copy(), expected(name, np.float64).X
    n_outputs = trained.model.n_outputs
    biased.set_scale_and_bias(1.0, [7.25 + k for k in range(n_outputs)] if n_outputs > 1 else 7.25)
    model = gpuqs.from_model(biased)
    for start, stop in ((0, 12), (0, 5), (1, 12), (4, 9), (11, 12)):
        raw = biased.predict(X, prediction_type="RawFormulaVal", ntree_start=start, ntree_end=stop)
        for engine in ("auto", "reference"):
            np.testing.assert_array_equal(model.predict(X, "raw", trees=slice(start, stop), engine=engine), raw)
        np.testing.assert_array_equal(model.predict(X, "raw", iteration_range=(start, stop)), raw)


def test_trees_without_splits() -> None:
    """CatBoost writes null for them; otherwise the recipe above is scored like all others."""
    n_leaves = np.diff(catboost_trained("some trees without splits").model.forest.leaf_offsets)
    assert (n_leaves == 1).any() and (n_leaves > 1).any()


@pytest.mark.parametrize("names", [[0, 1, 2, 3], ["0", "1", "2", "3"]], ids=["numbers", "texts"])
def test_columns_that_are_called_by_their_numbers(names: list[Any], tmp_path: Path) -> None:
    """As pandas names an array's columns; CatBoost matches columns by these names, too."""
    X = np.random.default_rng(3).normal(size=(300, 4))
    frame = pd.DataFrame(X, columns=names)
    model = fit("Regressor", frame, X[:, 0] * 2 + X[:, 1] * 5)
    model.save_model(tmp_path / "model.json", format="json")
    others = frame[names[::-1]]
    expected = model.predict(others)
    for read in (gpuqs.from_model(model), gpuqs.load(tmp_path / "model.json"), wrap(model)):
        for given in (X, frame, others):
            np.testing.assert_array_equal(read.predict(given), expected)
        with pytest.raises(InputError, match="lacks 4 of the model's 4 features"):
            read.predict(frame.set_axis([7, 8, 9, 10], axis=1))
    of_array = gpuqs.from_model(fit("Regressor", X, X[:, 0]))
    assert of_array.feature_names == ()


@pytest.mark.parametrize(("scale", "bias", "exact"), [(0.5, 3.0, True), (0.3, 0.1, False), (-7.7, 0.0, False)])
def test_scale(scale: float, bias: float, exact: bool) -> None:
    trained = catboost_trained("depth 6")
    X = expected("depth 6", np.float64).X
    scaled = trained.booster.copy()
    scaled.set_scale_and_bias(scale, bias)
    raw, got = scaled.predict(X), gpuqs.from_model(scaled).predict(X, "raw")
    if exact:
        np.testing.assert_array_equal(got, raw)
        return
    forest = trained.model.forest
    largest = np.maximum.reduceat(np.abs(forest.leaf_value[:, 0]), forest.leaf_offsets[:-1])
    bound = 2 * (forest.n_trees + 1) * 2.0**-53 * (abs(scale) * largest.sum() + abs(bias))
    assert np.abs(got - raw).max() <= bound


def categorical_frame(pd: Any) -> tuple[Any, np.ndarray]:
    rng = np.random.default_rng(5)
    n = 600
    code = rng.integers(0, 5, (n, 4))
    frame = pd.DataFrame(
        {
            "x": rng.normal(size=n),
            "text": np.array(["red", "green", "blé", "7", ""])[code[:, 0]],
            "number": code[:, 1] - 1,
            "flag": code[:, 2] > 2,
            "coded": pd.Categorical.from_codes(code[:, 3], [10, 20, 30, 40, 50]),
        }
    )
    target = frame["x"] + (code[:, 0] == 2) + 2 * (code[:, 1] == 0) + 3 * frame["flag"] - 2 * (code[:, 3] > 2)
    return frame, target.to_numpy()


@pytest.mark.parametrize("grow_policy", ["SymmetricTree", "Depthwise"])
def test_one_hot_categories(grow_policy: str, tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    frame, target = categorical_frame(pd)
    names = list(frame.columns[1:])
    params = {"cat_features": names, "one_hot_max_size": 10, "iterations": 30, "grow_policy": grow_policy}
    booster = fit("Regressor", frame, target, **params)
    path = tmp_path / "model.json"
    booster.save_model(str(path), format="json", pool=catboost.Pool(frame, cat_features=names))
    forest = read_model(path)
    assert forest.feature_names == tuple(frame.columns)
    assert forest.schema.categories[0] is None
    assert all(forest.schema.categories[i] for i in range(1, 5))

    other = frame.sample(300, random_state=1)
    other.loc[other.index[:50], "text"] = "never seen"
    other.loc[other.index[50:90], "number"] = 99
    other.loc[other.index[90:120], "x"] = np.nan
    reloaded = catboost.CatBoost().load_model(str(path), format="json")
    model = gpuqs.load(path)
    for kind in (object, str):
        asked = other.assign(number=other["number"].astype(kind))
        raw, leaves = booster.predict(asked), reloaded.calc_leaf_indexes(asked)
        codes = np.empty((len(asked), 5))
        codes[:, 0] = asked["x"]
        for i in range(1, 5):
            code = {value: code for code, value in enumerate(forest.schema.categories[i])}
            codes[:, i] = [code.get(value, np.nan) for value in asked.iloc[:, i]]
        for engine in [name for name in ("reference", *COMPILED) if model.engines()[name] is None]:
            for X in (coded_rows(codes), asked.assign(flag=asked["flag"].astype(object))):
                np.testing.assert_array_equal(model.predict(X, "raw", engine=engine), raw)
                np.testing.assert_array_equal(model.predict(X, "leaf", engine=engine), leaves)


def hashed_frame(n: int = 400) -> tuple[Any, np.ndarray]:
    """Columns of strings, numbers, booleans and pandas categories, and a target."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(17)
    frame = pd.DataFrame(
        {
            "x": rng.normal(size=n),
            "text": rng.choice(["red", "größe", "", "nan", "a text of some thirty-two letters", "x" * 70], n),
            "y": np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n)),
            "number": rng.integers(-1, 3, n),
            "flag": rng.random(n) < 0.5,
            "coded": pd.Categorical(rng.choice(["u", "v", "w"], n)),
            "unused": np.zeros(n, int),
        }
    )
    target = frame["x"] + (frame["text"] == "red") * 2 - (frame["coded"] == "u")
    target += (frame["number"] == 2) * frame["flag"]
    return frame, target.to_numpy(float)


CATEGORICAL = ["text", "number", "flag", "coded", "unused"]


@pytest.mark.parametrize("how", ["frame", "numbers", "lists", "pool", "constructor"])
@pytest.mark.parametrize("policy", ["SymmetricTree", "Depthwise", "Lossguide"])
@pytest.mark.parametrize("kind", ["Regressor", "Classifier", "classes"])
def test_one_hot_of_live_models(kind: str, policy: str, how: str, tmp_path: Path) -> None:
    """A live model holds only hashes of categories, so the values of a frame are hashed as CatBoost does."""
    frame, target = hashed_frame()
    y = {"Regressor": target, "Classifier": target > 1, "classes": np.digitize(target, [0, 1.5])}[kind]
    model_kind = catboost.CatBoostRegressor if kind == "Regressor" else catboost.CatBoostClassifier
    quiet = {"verbose": 0, "allow_writing_files": False, "random_seed": 0, "thread_count": 1}
    params = {"iterations": 20, "depth": 4, "one_hot_max_size": 10, "grow_policy": policy, **quiet}
    places = [frame.columns.get_loc(name) for name in CATEGORICAL]
    if how == "constructor":
        trained = model_kind(cat_features=CATEGORICAL, **params).fit(frame, y)
    elif how == "pool":
        trained = model_kind(**params).fit(catboost.Pool(frame, y, cat_features=CATEGORICAL))
    elif how == "lists":
        trained = model_kind(**params).fit(frame.to_numpy().tolist(), y, cat_features=places)
    else:
        trained = model_kind(**params).fit(frame, y, cat_features=places if how == "numbers" else CATEGORICAL)
    other = frame.sample(200, random_state=1)
    other.loc[other.index[:30], "text"] = "never seen"
    other.loc[other.index[30:60], "number"] = 99
    raw, leaves = trained.predict(other, prediction_type="RawFormulaVal"), trained.calc_leaf_indexes(other)
    trained.save_model(str(tmp_path / "model.json"), format="json")  # without the training data
    model = gpuqs.from_model(trained)
    assert model.forest.has_categories and model.forest.schema.has_hashes
    model.save(tmp_path / "model.gpuqs")
    for read in (model, gpuqs.load(tmp_path / "model.json"), gpuqs.load(tmp_path / "model.gpuqs")):
        np.testing.assert_array_equal(read.predict(other, "raw"), raw)
        table = pytest.importorskip("pyarrow").Table.from_pandas(other, preserve_index=False)
        np.testing.assert_array_equal(read.predict(table, "raw"), raw)
    np.testing.assert_array_equal(model.predict(other, "leaf"), leaves)


@pytest.mark.parametrize(
    ("loss", "label"),
    [("Logloss", "binary"), ("MultiClass", "class"), ("Poisson", "count"), ("RMSEWithUncertainty", "value")],
)
def test_values_of_live_objects_are_what_their_classes_predict(loss: str, label: str, tmp_path: Path) -> None:
    X, target = rows(np.random.default_rng(0))
    quiet = {"verbose": 0, "allow_writing_files": False, "thread_count": 1}
    trained = catboost.CatBoost({"iterations": 5, "loss_function": loss, **quiet}).fit(X, labels(label, target))
    trained.save_model(str(tmp_path / "model.cbm"))
    trained.save_model(str(tmp_path / "model.json"), format="json")
    file_gives = {"Poisson": "Exponent", "RMSEWithUncertainty": "RMSEWithUncertainty"}.get(loss, "Probability")
    expected = trained.predict(X, prediction_type=file_gives)
    expected = expected[:, 1] if loss == "Logloss" else expected
    np.testing.assert_array_equal(gpuqs.load(tmp_path / "model.json").predict(X), expected)
    for kind in (catboost.CatBoost, catboost.CatBoostRegressor, catboost.CatBoostRanker):
        live = kind().load_model(str(tmp_path / "model.cbm"))
        np.testing.assert_array_equal(gpuqs.from_model(live).predict(X), live.predict(X))
        np.testing.assert_array_equal(wrap(live).predict(X), live.predict(X))
    np.testing.assert_array_equal(gpuqs.from_model(trained).predict(X), trained.predict(X))


@pytest.mark.parametrize("bias", [-700.0, -300.0, -40.0, 0.0, 300.0, 700.0, 720.0])
@pytest.mark.parametrize(("loss", "label"), [("Poisson", "count"), ("MultiClass", "class")])
def test_exponentials_far_from_zero(loss: str, label: str, bias: float) -> None:
    """CatBoost's exponential is off by some hundred units in the last place there; ours must match it bit for bit."""
    X, target = rows(np.random.default_rng(0))
    model = fit("Classifier" if label == "class" else "Regressor", X, labels(label, target), loss_function=loss)
    n_outputs = gpuqs.from_model(model).n_outputs
    model.set_scale_and_bias(1.0, [bias * (k == 0) for k in range(n_outputs)])
    values = model.predict_proba(X) if label == "class" else model.predict(X)
    np.testing.assert_array_equal(gpuqs.from_model(model).predict(X), values)


@pytest.mark.parametrize("n_classes", range(3, 10))
def test_softmax_of_tiny_probabilities(n_classes: int) -> None:
    """CatBoost computes exponentials in groups of four differently from the remaining ones."""
    X, target = rows(np.random.default_rng(0))
    label = np.digitize(target, np.quantile(target, np.arange(1, n_classes) / n_classes))
    model = fit("Classifier", X, label, loss_function="MultiClass", iterations=3)
    model.set_scale_and_bias(1.0, [-800.0 * (k % 3 == 1) for k in range(n_classes)])
    np.testing.assert_array_equal(gpuqs.from_model(model).predict(X), model.predict_proba(X))


class CustomLoss:
    def calc_ders_range(self, scores: Any, targets: Any, weights: Any) -> list[tuple[float, float]]:
        return [(target - score, -1.0) for score, target in zip(scores, targets, strict=True)]


def test_a_classifiers_loss_must_be_of_classes() -> None:
    """CatBoost turns the scores of any loss into probabilities; gpuqs refuses losses that are not for classes."""
    X, target = rows(np.random.default_rng(0))
    quiet = {"iterations": 2, "verbose": 0, "allow_writing_files": False, "thread_count": 1}
    custom = catboost.CatBoostClassifier(loss_function=CustomLoss(), eval_metric="Logloss", **quiet)
    custom.fit(X[:200], labels("binary", target)[:200])
    with pytest.raises(UnsupportedModelError, match=r"Classifier: its loss \(PythonUserDefinedPerObject\) is no"):
        gpuqs.from_model(custom)


@pytest.mark.parametrize("loss", ["Poisson", "RMSEWithUncertainty"])
def test_a_regressors_values_follow_its_own_loss(loss: str, tmp_path: Path) -> None:
    """A regressor that holds a sum of models has no loss, whatever the losses of its parts."""
    X, target = rows(np.random.default_rng(0))
    label = labels("count" if loss == "Poisson" else "value", target)
    models = [fit("Regressor", X, label, loss_function=loss, random_seed=seed, iterations=3) for seed in (1, 2)]
    catboost.sum_models(models).save_model(str(tmp_path / "sum.cbm"))
    summed = catboost.CatBoostRegressor().load_model(str(tmp_path / "sum.cbm"))
    for model in (summed, models[0]):
        np.testing.assert_array_equal(gpuqs.from_model(model).predict(X), model.predict(X))
        np.testing.assert_array_equal(wrap(model).predict(X), model.predict(X))


@pytest.mark.parametrize("params", [{"classes_count": 6}, {"class_names": [0, 1, 2, 3]}])
def test_classes_that_training_did_not_meet_are_refused(params: dict[str, Any]) -> None:
    X, target = rows(np.random.default_rng(0))
    label = np.array([0, 2, 3])[labels("class", target).astype(int) % 3]
    model = fit("Classifier", X, label, loss_function="MultiClass", iterations=2, **params)
    with pytest.raises(UnsupportedModelError, match=r"given [46] classes, of which 3 occurred in training"):
        gpuqs.from_model(model)


def test_whole_numbers_of_arrays_are_categories(tmp_path: Path) -> None:
    """As in CatBoost, whether the model holds its categories' strings (saved with a pool) or only their hashes."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 3, 300), rng.integers(-2, 4, 300), rng.integers(-50, 50, 300)])
    target = X[:, 0] * 2.0 + np.array([3, -1, 4, 1, -5, 9])[X[:, 1]] + X[:, 2] / 9
    trained = fit("Regressor", X, target, cat_features=[0, 1], one_hot_max_size=10, iterations=10)
    pooled, hashed, copy = tmp_path / "pooled.json", tmp_path / "hashed.json", tmp_path / "copy.gpuqs"
    trained.save_model(str(pooled), format="json", pool=catboost.Pool(X, target, cat_features=[0, 1]))
    trained.save_model(str(hashed), format="json")
    gpuqs.load(pooled).save(copy)
    X[::7, 1] = 99  # not seen
    raw = trained.predict(X)
    for model in (gpuqs.from_model(trained), gpuqs.load(hashed), gpuqs.load(pooled), gpuqs.load(copy)):
        for given in (X, X.astype(np.int8), X.astype(">i4"), np.asfortranarray(X), X.tolist()):
            np.testing.assert_array_equal(model.predict(given), raw)
            np.testing.assert_array_equal(model.predict(model.encode(given)), raw)
        with pytest.raises(
            InputError, match=r"dtype float64, but the model has .* for such CatBoost models, gpuqs reads only"
        ):
            model.predict(X.astype(float))
        sparse = pytest.importorskip("scipy.sparse").csr_matrix(X)
        with pytest.raises(InputError, match=r"a sparse matrix, but CatBoost models with categories"):
            model.predict(sparse)
    yes_or_no = X[:, :2] > 1
    np.testing.assert_array_equal(
        gpuqs.load(pooled).predict(np.column_stack([yes_or_no, yes_or_no[:, 0]])),
        trained.predict(np.column_stack([yes_or_no, yes_or_no[:, 0]])),
    )

    np.save(tmp_path / "whole.npy", X)
    np.save(tmp_path / "fractions.npy", X.astype(float))
    np.savetxt(tmp_path / "plain.csv", X, "%d", delimiter=",")
    for name in ("whole.npy", "plain.csv"):
        verified = CliRunner().invoke(cli, ["verify", str(pooled), str(tmp_path / name), "--rows", "50"])
        assert verified.exit_code == 0 and "300 rows of" in verified.output, verified.output
        scored = CliRunner().invoke(cli, ["score", str(pooled), str(tmp_path / name), "-o", str(tmp_path / "out.npy")])
        assert scored.exit_code == 0, scored.output
        np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), raw)
    for command in ("score", "verify"):
        assert CliRunner().invoke(cli, [command, str(pooled), str(tmp_path / "fractions.npy")]).exit_code == 1


def test_verify_gives_catboost_arrays_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).integers(0, 4, (200, 2))
    trained = fit("Regressor", X, X[:, 0] - X[:, 1] ** 2.0, cat_features=[0, 1], one_hot_max_size=10, iterations=5)
    path = tmp_path / "model.json"
    trained.save_model(str(path), format="json", pool=catboost.Pool(X, cat_features=[0, 1]))
    assert verify(path, X, rows=0).ok
    monkeypatch.setattr(dense, "_by_value", lambda X, forest: coded_rows(X.astype(np.float32)))
    found = verify(path, X, rows=0)
    assert not found.ok and found.first.origin == "rows of X"


def test_what_live_models_of_categories_refuse(tmp_path: Path) -> None:
    frame, target = hashed_frame()
    model = catboost.CatBoostRegressor(iterations=3, one_hot_max_size=10, verbose=0, allow_writing_files=False)
    model.fit(frame, target, cat_features=CATEGORICAL)
    read = gpuqs.from_model(model)
    for X, message in (
        (np.zeros((3, 7)), "reads only arrays of integers or of objects; pass one of these"),
        ([[0.0] * 7], "holds the category 0.0; CatBoost's categories are strings and integers"),
    ):
        with pytest.raises(InputError, match=message):
            read.predict(X)
    with pytest.raises(InputError, match=r"holds fractions, which CatBoost does not accept as categories"):
        read.predict(frame.assign(text=frame["text"].map(lambda text: 1.5)))
    model.save_model(str(tmp_path / "model.json"), format="json")
    with pytest.raises(UnsupportedModelError, match="save it together with its training data"):
        open_source(tmp_path / "model.json")


@pytest.mark.parametrize("colliding", [("k197303", "k345040"), (46613, 240975)])
@pytest.mark.parametrize("both", [False, True])
def test_texts_with_the_same_hash_are_one_category(colliding: tuple[Any, Any], both: bool, tmp_path: Path) -> None:
    """Even if the model's file holds the strings: CatBoost keeps 32 bits of their hashes."""
    first, second = colliding
    column = [first, type(first)("7"), second if both else first] * 60
    frame = pd.DataFrame({"kind": column, "size": np.arange(180.0)})
    trained = fit("Regressor", frame, np.arange(180.0) % 3, cat_features=["kind"], one_hot_max_size=10)
    trained.save_model(str(tmp_path / "pooled.json"), format="json", pool=catboost.Pool(frame, cat_features=["kind"]))
    trained.save_model(str(tmp_path / "model.cbm"))
    asked = pd.DataFrame({"kind": [first, second, type(first)("7"), type(first)("8")], "size": 5.0})
    expected = trained.predict(asked)
    assert expected[0] == expected[1]
    for model in (gpuqs.from_model(trained), *map(gpuqs.load, (tmp_path / "pooled.json", tmp_path / "model.cbm"))):
        np.testing.assert_array_equal(model.predict(asked), expected)
        np.testing.assert_array_equal(model.predict(frame), trained.predict(frame))


def test_a_column_without_a_name() -> None:
    X, target = rows(np.random.default_rng(0))
    frame = pd.DataFrame(X[:, :3], columns=["a", "", "c"])
    trained = fit("Regressor", frame, target)
    model = gpuqs.from_model(trained)
    np.testing.assert_array_equal(model.predict(frame), trained.predict(frame))
    np.testing.assert_array_equal(model.predict(frame[["c", "a", ""]]), trained.predict(frame))


def test_hashes_are_catboosts(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    letters = list("abcXYZ09 _-äß字\U0001f600")
    texts = ["", *("".join(rng.choice(letters, n)) for n in [*range(1, 140), 200, 1000])]
    texts = list(dict.fromkeys(texts))
    pool = catboost.Pool([[text] for text in texts], np.arange(len(texts)), cat_features=[0])
    quiet = {"verbose": 0, "allow_writing_files": False}
    model = catboost.CatBoostRegressor(iterations=1, depth=1, one_hot_max_size=255, **quiet)
    model.fit(pool).save_model(str(tmp_path / "model.json"), format="json", pool=pool)
    listed = json.loads((tmp_path / "model.json").read_text())["features_info"]["cat_features_hash"]
    assert len(listed) == len(texts)
    expected = [name_of_hash(entry["hash"] % 2**32) for entry in listed]
    hashes = text_hashes([entry["value"] for entry in listed]).tolist()
    assert [*map(name_of_hash, hashes)] == expected and [*map(hash_of_name, expected)] == hashes


@pytest.mark.parametrize("nan_mode", ["Min", "Max"])
@pytest.mark.parametrize("infinite", [[-np.inf], [np.inf], [-np.inf, np.inf]])
def test_infinite_numbers_in_training_make_infinite_borders(infinite: list[float], nan_mode: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2)).astype(np.float32)
    target = X.sum(axis=1)
    for value in infinite:
        some = rng.random(400) < 0.2
        X[some, 0], target[some] = value, 9 * np.sign(value) + 3
    X[rng.random(400) < 0.2, 0] = np.nan
    quiet = {"verbose": 0, "allow_writing_files": False, "thread_count": 1}
    trained = catboost.CatBoostRegressor(iterations=30, depth=4, nan_mode=nan_mode, **quiet).fit(X, target)
    largest = np.finfo(np.float32).max
    documents = rng.choice(np.array([np.nan, np.inf, -np.inf, largest, -largest, 0, 1], np.float32), (300, 2))
    model = gpuqs.from_model(trained)
    assert infinite != [np.inf if nan_mode == "Max" else -np.inf] or np.isinf(model.forest.threshold).any()
    expected = trained.predict(documents)
    for engine in [name for name in ("reference", *COMPILED) if model.engines()[name] is None]:
        np.testing.assert_array_equal(model.predict(documents, "raw", engine=engine), expected)
