"""CatBoost JSON: what each field means, and damaged or hostile files refused by tree and field."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edits import Edit, at, without

import gpuqs
from gpuqs.engines.reference import Reference
from gpuqs.errors import InputError, ModelFormatError, UnsupportedModelError
from gpuqs.forest import Forest
from gpuqs.formats import catboost as reader
from gpuqs.formats import xgboost as xgboost_reader
from gpuqs.links import to_values
from gpuqs.text_hashes import name_of_hash, text_hashes

Document = dict[str, Any]


def on_float(index: int, border: float, at: int) -> Document:
    return {"split_type": "FloatFeature", "float_feature_index": index, "border": border, "split_index": at}


def one_hot(value: int, at: int) -> Document:
    return {"split_type": "OneHotFeature", "cat_feature_index": 0, "value": value, "split_index": at}


BLUE, TWELVE, RED = text_hashes(["blue", "12", "red"]).tolist()


def hashed(texts: list[str]) -> list[Document]:
    return [{"hash": code, "value": text} for text, code in zip(texts, text_hashes(texts).tolist(), strict=True)]


def small_model() -> Document:
    """Three columns: a number, a category (blue, 12 or red), a number."""
    return {
        "features_info": {
            "float_features": [
                {
                    "feature_index": 0,
                    "flat_feature_index": 0,
                    "feature_id": "size",
                    "borders": [0.5, 1.5],
                    "has_nans": True,
                    "nan_value_treatment": "AsTrue",
                },
                {"feature_index": 1, "flat_feature_index": 2, "feature_id": "", "borders": [-1]},
            ],
            "categorical_features": [
                {"feature_index": 0, "flat_feature_index": 1, "feature_id": "colour", "values": [BLUE, TWELVE - 2**32]}
            ],
            "cat_features_hash": hashed(["blue", "12", "red"]),
        },
        "model_info": {
            "params": {"loss_function": {"type": "RMSE"}},
            "catboost_version_info": "Git info:\n Branch: tags/v1.2.10",
            "unknown": [1, {}],
        },
        "oblivious_trees": [
            {"splits": [on_float(0, 0.5, 0), on_float(1, -1, 2)], "leaf_values": [1, 2, 3, 4], "leaf_weights": []},
            {"splits": [one_hot(TWELVE - 2**32, 4)], "leaf_values": [10, 20]},
            {"splits": [], "leaf_values": [0.25]},
        ],
        "scale_and_bias": [2, [100]],
    }


def nested_model() -> Document:
    model = small_model()
    del model["oblivious_trees"]
    inner = {"split": one_hot(BLUE, 3), "left": {"value": 2}, "right": {"value": 3}}
    model["trees"] = [
        {"split": on_float(0, 1.5, 1), "left": inner, "right": {"value": 1, "weight": 5}},
        {"value": 8},
    ]
    return model


def read(model: Any) -> Forest:
    return reader.read(json.dumps(model).encode(), "model")


def score(forest: Forest, X: Any) -> tuple[list[float], list[list[int]]]:
    """Raw scores of the first output and exit leaves, by the reference engine."""
    documents = np.array(X, np.float32)
    engine = Reference()
    program = engine.prepare(forest, "exact")
    sums = np.empty((len(documents), forest.n_outputs))
    engine.score(program, documents, sums, 1)
    leaves = np.empty((len(documents), forest.n_trees), np.int32)
    engine.leaves(program, documents, leaves, 1)
    return program.values.finish(sums)[:, 0].tolist(), leaves.tolist()


def test_symmetric_trees() -> None:
    forest = read(small_model())
    assert forest.feature_names == ("size", "colour", "")  # a frame's column may have this name
    assert forest.schema.categories == (None, ("blue", "12", 12), None)
    assert (forest.source, forest.objective, forest.n_outputs) == ("CatBoost 1.2", "RMSE", 1)
    nan = np.nan
    X = [[0.5, 0, -1], [0.6, 1, -1], [0.5, 2, 0], [nan, nan, nan], [nan, 99, 0], [0, 1.5, 0], [-9, -1, -9]]
    raw, leaves = score(forest, X)
    assert leaves == [[0, 0, 0], [1, 1, 0], [2, 1, 0], [1, 0, 0], [3, 0, 0], [2, 0, 0], [0, 0, 0]]
    assert raw == [2 * s + 100 for s in (11.25, 22.25, 23.25, 12.25, 14.25, 13.25, 11.25)]


def test_numeric_model_saved_with_a_pool() -> None:
    model = small_model()
    del model["features_info"]["categorical_features"], model["oblivious_trees"][1]
    without_key = read(model | {"features_info": {"float_features": model["features_info"]["float_features"]}})
    model["features_info"]["cat_features_hash"] = None
    X = [[0.4, 0, 0], [0.6, 0, -1]]
    assert score(read(model), X) == score(without_key, X) == ([2 * 3.25 + 100, 2 * 2.25 + 100], [[2, 0], [1, 0]])


def test_symmetric_trees_stay_symmetric() -> None:
    model = small_model()
    model["oblivious_trees"] = [{"splits": [on_float(0, b, i) for i, b in enumerate((0.5, 1.5))] * 2}]
    model["oblivious_trees"][0]["leaf_values"] = list(range(16))
    forest = read(model)
    assert forest.threshold.tolist() == [1.5] * 1 + [0.5] * 2 + [1.5] * 4 + [0.5] * 8
    assert forest.depth.tolist() == [0] + [1] * 2 + [2] * 4 + [3] * 8
    assert score(forest, [[0.2, 0, 0], [1, 0, 0], [2, 0, 0]])[1] == [[0], [5], [15]]


def test_nested_trees() -> None:
    forest = read(nested_model())
    raw, leaves = score(forest, [[1.5, 0, 0], [1.5, 1, 0], [2, 0, 0], [np.nan, 0, 0]])
    assert leaves == [[1, 0], [0, 0], [2, 0], [2, 0]]
    assert raw == [2 * s + 100 for s in (11, 10, 9, 9)]


@pytest.mark.parametrize(
    ("treatment", "has_nans", "leaf"),
    [("AsTrue", True, 1), ("AsTrue", False, 0), ("AsFalse", True, 0), ("AsIs", False, 0), ("AsIs", True, 0)],
)
def test_nan(treatment: str, has_nans: bool, leaf: int) -> None:
    model = small_model()
    model["features_info"]["float_features"][0] |= {"nan_value_treatment": treatment, "has_nans": has_nans}
    model["oblivious_trees"] = [{"splits": [on_float(0, 0.5, 0)], "leaf_values": [1, 2]}]
    assert score(read(model), [[np.nan, 0, 0]])[1] == [[leaf]]


def test_borders_are_float32() -> None:
    model = small_model()
    model["features_info"]["float_features"][0]["borders"] = [0.1, 1.5]
    model["oblivious_trees"] = [{"splits": [on_float(0, 0.1, 0)], "leaf_values": [1, 2]}]
    assert read(model).threshold.tolist() == [float(np.float32(0.1))]


def test_vector_leaves_and_classes() -> None:
    model = small_model()
    model["oblivious_trees"] = [{"splits": [on_float(0, 0.5, 0)], "leaf_values": [1, 2, 3, 4, 5, 6]}]
    model["scale_and_bias"] = [1, [0, 0, 0]]
    model["model_info"]["params"] = json.dumps({"loss_function": {"type": "MultiClass"}})
    for kind, names in (("String", ["a", "b", "c"]), ("Integer", [3, 1, 2]), ("Float", [0, 2.5, 5])):
        model["model_info"]["class_params"] = {"class_label_type": kind, "class_names": names}
        forest = read(model)
        assert forest.classes == tuple(names)
        assert [type(c) for c in forest.classes] == [{"String": str, "Integer": int, "Float": float}[kind]] * 3
    assert forest.link == "softmax"
    assert forest.leaf_value.tolist() == [[1, 2, 3], [4, 5, 6]]
    model["model_info"]["params"] = {"loss_function": {"type": "MultiLogloss"}}
    assert read(model).classes == ()


def test_mean_and_variance() -> None:
    model = small_model()
    model["oblivious_trees"] = [{"splits": [], "leaf_values": [1, 2]}]
    model["scale_and_bias"] = [1, [0, 0]]
    model["model_info"]["params"] = {"loss_function": {"type": "RMSEWithUncertainty"}}
    values = to_values(read(model), np.array([[1.0, 2.0], [0.0, -1.0]]))
    np.testing.assert_allclose(values, [[1, np.exp(4)], [0, np.exp(-2)]], rtol=1e-15)


def test_old_files() -> None:
    model = small_model()
    model["scale_and_bias"] = [1, 0.5]
    assert read(model).base_score.tolist() == [0.5]
    del model["scale_and_bias"], model["model_info"]
    assert read(model).base_score.tolist() == [0]
    model["oblivious_trees"] = [{"splits": [on_float(0, 0.5, 0)], "leaf_values": [1, 2, 3, 4, 5, 6]}]
    model["scale_and_bias"] = [1, 0]
    assert read(model).leaf_value.tolist() == [[1, 2, 3], [4, 5, 6]]
    model["oblivious_trees"].insert(0, {"splits": None, "leaf_values": [7, 8, 9]})
    assert read(model).leaf_value.tolist() == [[7, 8, 9], [1, 2, 3], [4, 5, 6]]


def test_summed_models_tell_their_loss_elsewhere() -> None:
    model = small_model()
    model["model_info"] = {"loss_function": '{"type":"Logloss","params":{}}'}
    assert (read(model).link, read(model).objective) == ("sigmoid", "Logloss")


def test_a_model_without_trees_scores_its_bias() -> None:
    model = small_model()
    model["oblivious_trees"] = []
    assert score(read(model), [[0, 0, 0]]) == ([100], [[]])


@pytest.mark.parametrize("first", ["features_info", "model_info", "trees", "ctr_data"])
def test_recognised_by_content(first: str) -> None:
    head = json.dumps({first: {}, "learner": {}}, indent=2).encode()
    assert reader.recognises(head)
    assert not xgboost_reader.recognises(head[:20])


def test_others_are_not_recognised() -> None:
    for head in (b'{"learner":{"gradient_booster":{}}}', b"tree\nversion=v4", b"", b"[]", b'{"name":"trees"}'):
        assert not reader.recognises(head)


FLOATS = ("features_info", "float_features")
TEXTS = ("features_info", "cat_features_hash")
TREE = ("oblivious_trees", 0)
SPLIT = (*TREE, "splits", 0)

BAD: dict[str, tuple[Edit, str]] = {
    "no features": (without("features_info"), "field 'features_info': is missing"),
    "features are a list": (at("features_info", value=[]), "field 'features_info': is not an object"),
    "a feature is a number": (at(*FLOATS, value=[1]), "field 'float_features': is not an array of objects"),
    "feature twice": (at(*FLOATS, 1, "feature_index", value=0), "field 'float_features': .* appears twice"),
    "column twice": (at(*FLOATS, 1, "flat_feature_index", value=1), "field 'categorical_features': .* twice"),
    "huge column": (at(*FLOATS, 1, "flat_feature_index", value=2**31), "field 'flat_feature_index'"),
    "a border of 400 digits": (at(*SPLIT, "border", value=10**400), "tree 0, field 'border': border is not a finite"),
    "borders descend": (at(*FLOATS, 0, "borders", value=[1.5, 0.5]), "field 'borders': do not ascend"),
    "borders are text": (at(*FLOATS, 0, "borders", value=["0"]), "field 'borders': is not an array of numbers"),
    "has nans": (at(*FLOATS, 0, "has_nans", value=1), "field 'has_nans': is not true or false"),
    "nan treatment": (at(*FLOATS, 0, "nan_value_treatment", value="AsMax"), "'AsMax' is not known"),
    "no trees": (without("oblivious_trees"), "field 'oblivious_trees': is missing"),
    "trees twice": (at("trees", value=[]), "field 'trees': is present together with oblivious_trees"),
    "a tree is a number": (at(*TREE, value=1), "tree 0, field 'splits'"),
    "values missing": (at(*TREE, "leaf_values", value=[1, 2]), "tree 0, field 'leaf_values': 2 values for 2 splits"),
    "a value is text": (at(*TREE, "leaf_values", value=["1"] * 4), "tree 0, field 'leaf_values'"),
    "a value is NaN": (at(*TREE, "leaf_values", value=[1, np.nan, 1, 1]), "tree 0, field 'leaf_value'"),
    "a value is huge": (at(*TREE, "leaf_values", value=[10**400] * 4), "tree 0, field 'leaf_values'"),
    "deep": (at(*TREE, "splits", value=[on_float(0, 0.5, 0)] * 31), "tree 0, field 'splits': .* deeper than 30"),
    "a split is a number": (at(*SPLIT, value=1), "tree 0, field 'split_type'"),
    "no border": (without(*SPLIT, "border"), "tree 0, field 'border': is missing"),
    "infinite border": (at(*SPLIT, "border", value=1e39), "tree 0, field 'border': border is not a finite"),
    "another border": (at(*SPLIT, "border", value=0.75), "tree 0, field 'split_index': names a different test"),
    "no split_index": (without(*SPLIT, "split_index"), "tree 0, field 'split_index': must be an integer"),
    "true for a leaf value": (at(*TREE, "leaf_values", 0, value=True), "tree 0, field 'leaf_values': holds true"),
    "a class twice": (
        at("model_info", "class_params", value={"class_to_label": [0, 1, 1]}),
        "field 'class_to_label': gives two classes the same label",
    ),
    "true for a scale": (at("scale_and_bias", 0, value=True), "field 'scale_and_bias': holds true"),
    "split_index outside": (at(*SPLIT, "split_index", value=5), "tree 0, field 'split_index'"),
    "no such feature": (
        at(*SPLIT, value={"split_type": "FloatFeature", "float_feature_index": 9, "border": 1, "split_index": 0}),
        "tree 0, field 'split_index': names a different test",
    ),
    "no such category": (
        at(*SPLIT, value={"split_type": "OneHotFeature", "cat_feature_index": 0, "value": 8, "split_index": 0}),
        "tree 0, field 'split_index': names a different test",
    ),
    "a text twice": (at(*TEXTS, 2, value=hashed(["blue"])[0]), "field 'cat_features_hash': a string appears twice"),
    "another hash": (at(*TEXTS, 2, "value", value="rot"), "field 'cat_features_hash': 'rot' does not match its hash"),
    "half a pair": (
        at(*TEXTS, 2, "value", value="\ud800"),
        "field 'cat_features_hash': holds strings that cannot be encoded as UTF-8",
    ),
    "a hash twice": (
        at("features_info", "categorical_features", 0, "values", value=[BLUE, TWELVE, BLUE - 2**32]),
        "field 'values': feature 0: a hash appears twice",
    ),
    "scale alone": (at("scale_and_bias", value=[1]), "field 'scale_and_bias': has 1 elements"),
    "no bias": (at("scale_and_bias", value=[1, []]), "field 'scale_and_bias': must be"),
    "scale is huge": (at("scale_and_bias", value=[1e308, [0]]), "tree 0, field .scale_and_bias.: leaf values times"),
    "scale is NaN": (at("scale_and_bias", value=[np.nan, [0]]), "field 'scale_and_bias': must be"),
    "params are damaged": (at("model_info", "params", value="{"), "is not JSON"),
    "labels of too many": (at("model_info", "class_params", value={"class_names": [1, 2, 3]}), "field 'classes'"),
    "a label is a list": (at("model_info", "class_params", value={"class_names": [[]] * 2}), "field 'class_names'"),
}
BAD_NESTED: dict[str, tuple[Edit, str]] = {
    "no left": (without("trees", 0, "left"), "tree 0, field 'left': is missing"),
    "right is a number": (at("trees", 0, "right", value=1), "tree 0, field 'right': is not an object"),
    "no value": (at("trees", 0, "right", value={}), "tree 0, field 'value': is missing"),
    "a value is text": (at("trees", 1, "value", value="8"), "tree 1, field 'value'"),
    "too many values": (at("trees", 1, "value", value=[8, 9]), "tree 1, field 'value': leaf 0: 2 values for 1"),
    "a tree is text": (at("trees", 1, value="leaf"), "tree 1, field 'value'"),
}


@pytest.mark.parametrize("name", [*BAD, *(f"nested {name}" for name in BAD_NESTED)])
def test_damaged_models_are_refused(name: str) -> None:
    make, bad = (nested_model, BAD_NESTED) if name.startswith("nested ") else (small_model, BAD)
    edit, message = bad[name.removeprefix("nested ")]
    model = make()
    edit(model)
    with pytest.raises(ModelFormatError, match=message) as caught:
        read(model)
    assert str(caught.value).startswith("model")


@pytest.mark.parametrize("left_out", [("cat_features_hash",), ("cat_features_hash", 0)])
def test_categories_without_texts_are_called_after_their_hashes(left_out: tuple[Any, ...]) -> None:
    model = small_model()
    without("features_info", *left_out)(model)
    forest = read(model)
    assert sorted(forest.schema.categories[1]) == sorted(map(name_of_hash, (BLUE, TWELVE)))
    assert forest.schema.has_hashes
    with pytest.raises(InputError, match="reads only arrays of integers or of objects; pass one of these"):
        gpuqs.from_model(forest).predict(np.zeros((2, 3)))


def texts_like_hashes(model: Document) -> None:
    texts = [name_of_hash(7), name_of_hash(9)]
    first, second = text_hashes(texts).tolist()
    model["features_info"]["cat_features_hash"] = hashed(texts)
    model["features_info"]["categorical_features"][0]["values"] = [first, second]
    model["oblivious_trees"][1]["splits"] = [one_hot(second, 4)]


def test_whole_numbers_of_twenty_digits() -> None:
    model, known = small_model(), 2**64 - 7
    listed = hashed([str(known), str(2**64 - 9)])
    model["features_info"]["cat_features_hash"] = listed
    model["features_info"]["categorical_features"][0]["values"] = [entry["hash"] for entry in listed]
    model["oblivious_trees"] = [{"splits": [one_hot(listed[0]["hash"], 3)], "leaf_values": [10, 20]}]
    X = np.array([[0, known, 0], [0, 2**64 - 9, 0], [0, 7, 0]], np.uint64)
    assert gpuqs.from_model(read(model)).predict(X, "raw").tolist() == [140, 120, 120]


UNSUPPORTED: dict[str, tuple[Edit, str]] = {
    "a new split": (at(*SPLIT, "split_type", value="NewFeature"), "tree 0: splits of type 'NewFeature'"),
    "text": (at("features_info", "text_features", value=[{}]), "text features are not evaluated"),
    "embedding": (at("features_info", "embedding_features", value=[{}]), "embedding features are not"),
    "loss": (at("model_info", "params", "loss_function", "type", value="NewLoss"), "loss 'NewLoss' is not known"),
    "texts as hashes": (texts_like_hashes, "categories such as 'CatBoost hash 00000007'"),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_is_not_evaluated_is_refused_by_name(name: str) -> None:
    edit, message = UNSUPPORTED[name]
    model = small_model()
    edit(model)
    with pytest.raises(UnsupportedModelError, match=f"^model.*{message}"):
        read(model)


def test_a_probability_threshold_is_for_classes_alone(tmp_path: Path) -> None:
    """In live models and in files; the model's objective stays a probability."""
    catboost = pytest.importorskip("catboost")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 3))
    trained = catboost.CatBoostClassifier(iterations=4, verbose=0, allow_writing_files=False).fit(X, X[:, 0] > 0)
    trained.set_probability_threshold(0.3)
    trained.save_model(tmp_path / "model.cbm")
    gpuqs.load(tmp_path / "model.cbm").save(tmp_path / "model.gpuqs")
    for model in (gpuqs.from_model(trained), gpuqs.load(tmp_path / "model.gpuqs")):
        np.testing.assert_array_equal(model.predict(X), trained.predict_proba(X)[:, 1])
        np.testing.assert_array_equal(model.predict(X, "raw"), trained.predict(X, prediction_type="RawFormulaVal"))
        with pytest.raises(UnsupportedModelError, match=r"threshold other than 0\.5.*compare the probabilities with"):
            model.predict(X, "class")


def test_a_probability_threshold_says_nothing_of_several_classes() -> None:
    catboost = pytest.importorskip("catboost")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 3))
    trained = catboost.CatBoostClassifier(iterations=4, verbose=0, allow_writing_files=False).fit(X, X[:, 0] // 1 % 3)
    before = trained.predict(X)
    trained.set_probability_threshold(0.01)
    np.testing.assert_array_equal(trained.predict(X), before)
    np.testing.assert_array_equal(gpuqs.from_model(trained).predict(X, "class"), before[:, 0])


@pytest.mark.parametrize("make", [small_model, nested_model])
def test_truncated_models_are_refused(make: Callable[[], Document]) -> None:
    data = json.dumps(make()).encode()
    for length in range(len(data)):
        with pytest.raises(ModelFormatError, match=r"^model: is not JSON"):
            reader.read(data[:length], "model")


def test_a_key_twice_is_refused() -> None:
    with pytest.raises(ModelFormatError, match="key 'trees' appears twice"):
        reader.read(b'{"features_info":{},"trees":[],"trees":[]}', "model")


def test_deep_nesting_is_refused() -> None:
    tree = '{"left":' * 100_000 + "1" + "}" * 100_000
    with pytest.raises(ModelFormatError, match="nested too deep"):
        reader.read(f'{{"features_info":{{}},"trees":[{tree}]}}'.encode(), "model")


def test_many_huge_category_sets_are_refused() -> None:
    model = small_model()
    n = 60_000
    listed = hashed([f"c{i}" for i in range(n)])
    values = list(dict.fromkeys(entry["hash"] for entry in listed))
    n = len(values)
    model["features_info"]["categorical_features"][0]["values"] = values
    model["features_info"]["cat_features_hash"] = listed
    n_borders = sum(len(feature["borders"]) for feature in model["features_info"]["float_features"])
    model["oblivious_trees"] = [{"splits": [one_hot(values[-1], n_borders + n - 1)] * 14, "leaf_values": [0] * 2**14}]
    with pytest.raises(ModelFormatError, match="category sets take"):
        read(model)


def test_every_edit_changes_the_model() -> None:
    for make, bad in ((small_model, BAD), (nested_model, BAD_NESTED), (small_model, UNSUPPORTED)):
        read(make())
        for edit, _ in bad.values():
            model = make()
            before = copy.deepcopy(model)
            edit(model)
            assert repr(model) != repr(before)


def test_live_objects() -> None:
    catboost = pytest.importorskip("catboost")
    with pytest.raises(ModelFormatError, match=r"catboost.CatBoostRegressor: the model is not fitted"):
        gpuqs.from_model(catboost.CatBoostRegressor())
    texts = [["good film"], ["bad film"]] * 50
    model = catboost.CatBoostClassifier(iterations=2, thread_count=1, allow_writing_files=False, verbose=False)
    model.fit(texts, [1, 0] * 50, text_features=[0])
    with pytest.raises(UnsupportedModelError, match="text and embedding features are not evaluated"):
        gpuqs.from_model(model)
    assert reader.from_object(object()) is None
