"""Damaged and hostile XGBoost models are refused by file, tree and field, at once and in little memory."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpuqs.engines.reference import Reference
from gpuqs.errors import ModelFormatError
from gpuqs.forest import Forest
from gpuqs.formats import lightgbm
from gpuqs.formats import xgboost as reader


def exit_leaves(forest: Forest, rows: np.ndarray) -> np.ndarray:
    engine = Reference()
    out = np.empty((len(rows), forest.n_trees), np.int32)
    engine.leaves(engine.prepare(forest, "exact"), rows, out, 1)
    return out


def small_model() -> dict[str, Any]:
    """A tree of three leaves that tests feature 0 and then feature 1; a leaf."""

    def tree(number: int, **fields: list[float]) -> dict[str, Any]:
        return {"id": number, "tree_param": {"num_nodes": str(len(fields["left_children"]))}, **fields}

    trees = [
        tree(
            0,
            left_children=[1, 3, -1, -1, -1],
            right_children=[2, 4, -1, -1, -1],
            split_indices=[0, 1, 0, 0, 0],
            split_conditions=[0.5, 1.5, 3.0, 1.0, 2.0],
            default_left=[1, 0, 0, 0, 0],
        ),
        tree(
            1,
            left_children=[-1],
            right_children=[-1],
            split_indices=[0],
            split_conditions=[8],
            default_left=[0],
        ),
    ]
    return {
        "learner": {
            "gradient_booster": {
                "name": "gbtree",
                "model": {"gbtree_model_param": {"num_trees": "2"}, "tree_info": [0, 0], "trees": trees},
            },
            "learner_model_param": {"base_score": "5E-1", "num_class": "0", "num_feature": "2"},
            "objective": {"name": "reg:squarederror"},
            "unknown key": {"nested": [1, None]},
        },
        "version": [2, 1, 0],
    }


def test_small_model_is_sound() -> None:
    forest = reader.read(json.dumps(small_model()).encode(), "model")
    leaves = exit_leaves(forest, np.array([[0, 0], [0.5, 0], [np.nan, np.nan]], np.float32))
    assert forest.base_score == [0.5]
    assert leaves.tolist() == [[3, 0], [2, 0], [4, 0]]


Edit = Callable[[dict[str, Any]], Any]


def in_tree(key: str, value: Any, number: int = 0) -> Edit:
    return lambda model: model["learner"]["gradient_booster"]["model"]["trees"][number].__setitem__(
        key, value
    )


def all_of(*edits: Edit) -> Edit:
    def edit(model: dict[str, Any]) -> None:
        for one in edits:
            one(model)

    return edit


def weights(values: list[float]) -> Edit:
    """DART's weights as XGBoost 3.4 writes them."""
    return all_of(in_gbtree("weight_drop", values), lambda model: model.update(version=[3, 4, 0]))


def in_gbtree(key: str, value: Any) -> Edit:
    return lambda model: model["learner"]["gradient_booster"]["model"].__setitem__(key, value)


def in_param(key: str, value: Any) -> Edit:
    return lambda model: model["learner"]["learner_model_param"].__setitem__(key, value)


def in_learner(key: str, value: Any) -> Edit:
    return lambda model: model["learner"].__setitem__(key, value)


def sets(**fields: list[int]) -> Edit:
    """Make node 0 test a category set."""
    sound = {"nodes": [0], "segments": [0], "sizes": [2], "codes": [1, 3]} | fields
    names = {"nodes": "categories_nodes", "segments": "categories_segments", "sizes": "categories_sizes"}

    def edit(model: dict[str, Any]) -> None:
        in_tree("split_type", [1, 0, 0, 0, 0])(model)
        for key, value in sound.items():
            in_tree(names.get(key, "categories"), value)(model)

    return edit


BAD: dict[str, tuple[Edit, str]] = {
    "no learner": (lambda m: m.pop("learner"), "field 'learner': is missing"),
    "learner is a list": (lambda m: m.__setitem__("learner", []), "field 'learner': is not an object"),
    "no booster": (lambda m: m["learner"].pop("gradient_booster"), "field 'gradient_booster': is missing"),
    "trees are text": (in_gbtree("trees", "abc"), "field 'trees': is not an array"),
    "a tree is a number": (in_gbtree("trees", [1, 2]), "tree 0, field 'tree_param'"),
    "no tree_info": (in_gbtree("tree_info", [0]), "field 'tree_info': 1 values for 2 trees"),
    "class out of range": (
        in_gbtree("tree_info", [0, 1]),
        "tree 1, field 'tree_info': output is not in [0, 1)",
    ),
    "weights missing": (weights([1.0]), "field 'weight_drop': 1 values for 2 trees"),
    "weight NaN": (weights([1.0, np.nan]), "tree 1, field 'weight_drop'"),
    "iterations": (in_gbtree("iteration_indptr", [0, 5]), "field 'iteration_indptr': must rise from 0 to 2"),
    "features": (in_param("num_feature", "two"), "field 'num_feature': must be an integer"),
    "huge features": (in_param("num_feature", "9" * 30), "field 'num_feature': must be an integer"),
    "few features": (
        in_param("num_feature", "1"),
        "tree 0, field 'split_indices': node 1: feature is not in [0, 1)",
    ),
    "huge classes": (in_param("num_class", "999999999"), "field 'num_class': must be an integer"),
    "no base score": (lambda m: m["learner"]["learner_model_param"].pop("base_score"), "field 'base_score'"),
    "base score text": (in_param("base_score", "[1,"), "field 'base_score'"),
    "base score object": (in_param("base_score", '{"a":1}'), "field 'base_score'"),
    "base score NaN": (in_param("base_score", "NaN"), "field 'base_score': NaN is not a base score of"),
    "base score without end": (
        all_of(in_learner("objective", {"name": "binary:logistic"}), in_param("base_score", "9" * 400)),
        "field 'base_score': 999",
    ),
    "DART without weights": (
        in_learner("gradient_booster", {"name": "dart", "gbtree": small_model()["learner"]["gradient_booster"]}),
        "field 'weight_drop': is missing",
    ),
    "feature names": (
        in_learner("feature_names", ["a", 1]),
        "field 'feature_names': is not an array of strings",
    ),
    "few names": (
        in_learner("feature_names", ["a"]),
        "field 'feature_names': 1 feature names for 2 features",
    ),
    "version": (lambda m: m.__setitem__("version", ["3", "2"]), "field 'version'"),
    "tree order": (in_tree("id", 1), "tree 0, field 'id': trees are out of order"),
    "huge num_nodes": (
        in_tree("tree_param", {"num_nodes": "2000000000"}),
        "tree 0, field 'left_children': 5 values where 2000000000 should be",
    ),
    "no nodes": (
        in_tree("tree_param", {"num_nodes": "0"}),
        "tree 0, field 'num_nodes': must be an integer",
    ),
    "vector": (
        all_of(in_tree("tree_param", {"num_nodes": "5", "size_leaf_vector": "3"}), in_tree("base_weights", [0.5] * 15)),
        "tree 0, field 'size_leaf_vector': 3 values a leaf, but 1 outputs",
    ),
    "vector without values": (
        in_tree("tree_param", {"num_nodes": "5", "size_leaf_vector": "3"}),
        "tree 0, field 'base_weights': is missing",
    ),
    "array is text": (
        in_tree("split_conditions", "12345"),
        "tree 0, field 'split_conditions': is not an array",
    ),
    "texts in array": (
        in_tree("split_conditions", ["1"] * 5),
        "field 'split_conditions': is not an array of numbers",
    ),
    "arrays in array": (
        in_tree("left_children", [[1]] * 5),
        "tree 0, field 'left_children': is not an array of 64-bit",
    ),
    "fractions": (
        in_tree("left_children", [1.5] * 5),
        "tree 0, field 'left_children': is not an array of 64-bit",
    ),
    "huge integer": (
        in_tree("left_children", [2**70] * 5),
        "tree 0, field 'left_children': is not an array of 64-bit",
    ),
    "short array": (in_tree("default_left", [1]), "tree 0, field 'default_left': 1 values where 5 should be"),
    "child past the end": (
        in_tree("right_children", [2, 5, -1, -1, -1]),
        "tree 0, field 'right_children': node 1: child is outside of its tree",
    ),
    "child below -1": (
        in_tree("left_children", [1, -7, -1, -1, -1]),
        "field 'left_children': node 1: child is outside",
    ),
    "child is root": (
        in_tree("left_children", [0, 3, -1, -1, -1]),
        "field 'left_children': node 0: child is outside",
    ),
    "cycle": (in_tree("left_children", [1, 1, -1, -1, -1]), "node 1: node has several parents"),
    "shared child": (in_tree("right_children", [2, 2, -1, -1, -1]), "node 2: node has several parents"),
    "feature": (in_tree("split_indices", [0, 2**31 - 1, 0, 0, 0]), "node 1: feature is not in [0, 2)"),
    "negative feature": (in_tree("split_indices", [-1, 0, 0, 0, 0]), "node 0: feature is not in [0, 2)"),
    "threshold NaN": (
        in_tree("split_conditions", [0, np.nan, 0, 0, 0]),
        "tree 0, field 'split_conditions': node 1: threshold is NaN",
    ),
    "leaf NaN": (
        in_tree("split_conditions", [np.nan], 1),
        "tree 1, field 'split_conditions': node 0: leaf value",
    ),
    "leaf above float32": (in_tree("split_conditions", [1e300], 1), "node 0: leaf value is not finite"),
    "split type": (in_tree("split_type", [2, 0, 0, 0, 0]), "tree 0, field 'split_type': must be 0"),
    "default_left": (in_tree("default_left", [2, 0, 0, 0, 0]), "tree 0, field 'default_left': node 0: must be 0"),
    "negative default_left": (in_tree("default_left", [-1], 1), "tree 1, field 'default_left': node 0: must be 0"),
    "no sets for numeric splits": (in_tree("split_type", [0] * 5), "tree 0, field 'categories_nodes': is missing"),
    "no sets": (in_tree("split_type", [1, 0, 0, 0, 0]), "tree 0, field 'categories_nodes': is missing"),
    "negative code": (sets(codes=[1, -3]), "tree 0, field 'categories': code is not in"),
    "huge code": (sets(codes=[1, 2**24]), "tree 0, field 'categories': code is not in [0, 16777216)"),
    "set of no node": (sets(nodes=[5]), "tree 0, field 'categories_nodes': node is not in [0, 5)"),
    "a set is missing": (
        lambda model: (sets()(model), in_tree("split_type", [1, 1, 0, 0, 0])(model)),
        "tree 0, field 'categories_nodes': node 1 is categorical and has no set",
    ),
    "set twice": (
        sets(nodes=[0, 0], segments=[0, 1], sizes=[1, 1]),
        "tree 0, field 'categories_nodes': node appears twice",
    ),
    "segment": (sets(segments=[2**62]), "tree 0, field 'categories_segments': segment lies outside"),
    "segment size": (sets(sizes=[2**62]), "tree 0, field 'categories_segments': segment lies outside"),
    "segments overlap": (
        sets(nodes=[0, 1], segments=[0, 0], sizes=[2, 2]),
        "field 'categories_sizes': segments overlap",
    ),
    "sizes": (sets(sizes=[1, 1]), "tree 0, field 'categories_sizes': 2 values for 1 nodes"),
}


@pytest.mark.parametrize("case", BAD)
def test_damage_is_named(case: str) -> None:
    edit, problem = BAD[case]
    model = small_model()
    edit(model)
    with pytest.raises(ModelFormatError) as caught:
        reader.read(json.dumps(model).encode(), "some/model.json")
    assert str(caught.value).startswith("some/model.json")
    assert problem in str(caught.value)


def test_a_sound_category_set_is_read() -> None:
    model = small_model()
    sets()(model)
    forest = reader.read(json.dumps(model).encode(), "model")
    leaves = exit_leaves(forest, np.array([[1, 0], [2, 0], [3.9, 0], [-1, 0], [np.nan, 0]]))
    assert leaves[:, 0].tolist() == [2, 3, 2, 3, 3]


RAW = {
    "empty": (b"", "is not JSON, or is truncated"),
    "truncated": (json.dumps(small_model()).encode()[:-40], "is not JSON, or is truncated"),
    "not an object": (b"[1, 2]", "field 'learner': is not inside an object"),
    "not UTF-8": (b'{"learner": "\xff"}', "is not JSON, or is truncated"),
    "deep arrays": (b'{"learner": {"a": ' + b"[" * 200_000, "JSON is nested too deep"),
    "deep objects": (b'{"learner": ' + b'{"a":' * 200_000, "JSON is nested too deep"),
    "endless number": (b'{"learner": {"a": ' + b"9" * 100_000 + b"}}", "field 'gradient_booster'"),
    "repeated key": (b'{"learner": {"a": 1, "a": 2}}', "key 'a' appears twice"),
    "UBJSON cut off": (b"{U\x07learner{", "UBJSON, byte 11"),
    "UBJSON huge": (b"{U\x07learner[$D#L" + b"\x7f" * 8, "UBJSON, byte 23: length"),
}


SOUND = {
    "XGBoost": (reader.read, json.dumps(small_model()).encode()),
    "LightGBM": (
        lightgbm.read,
        b"tree\nnum_class=1\nmax_feature_idx=0\n\nTree=0\nnum_leaves=1\nnum_cat=0\nleaf_value=1\n\nend of trees\n\n"
        b'pandas_categorical:[["a"]]\n',
    ),
    "XGBoost's base score": (
        lambda data, _: reader._base_margin({"base_score": data.decode()}, "", "margin", 1, (3, 1), True), b"[5E-1]"
    ),
}


@pytest.mark.parametrize("case", SOUND)
def test_a_sound_model_where_pythons_stack_is_nearly_full(case: str) -> None:
    """A nearly full stack must not count as a fault of the file."""
    (read, data), told = SOUND[case], set()

    def deeper() -> None:
        try:
            read(data, "some/model")
        except Exception as error:
            told.add(type(error))
        deeper()

    with pytest.raises(RecursionError):
        deeper()
    assert told == {RecursionError}


@pytest.mark.parametrize("case", RAW)
def test_bytes_that_are_no_model(case: str) -> None:
    data, problem = RAW[case]
    with pytest.raises(ModelFormatError, match=r"^some/model") as caught:
        reader.read(data, "some/model")
    if case != "endless number":  # some Python versions refuse to read it, some do not
        assert problem in str(caught.value)


def test_a_base_score_that_is_nested_deep() -> None:
    model = small_model()
    model["learner"]["learner_model_param"]["base_score"] = "[" * 100_000
    with pytest.raises(ModelFormatError, match="field 'base_score': JSON is nested too deep"):
        reader.read(json.dumps(model).encode(), "some/model")


@pytest.mark.parametrize("form", ["json", "ubj"])
def test_every_truncation_is_refused(form: str) -> None:
    xgb = pytest.importorskip("xgboost")
    rows = np.arange(40.0).reshape(20, 2)
    raw = bytes(xgb.train({"max_depth": 2}, xgb.DMatrix(rows, rows[:, 0]), 1).save_raw(form))
    assert reader.read(raw, "model").n_trees == 1
    for end in range(0, len(raw), 7):
        with pytest.raises(ModelFormatError):
            reader.read(raw[:end], "model")


def test_chains_up_to_the_depth_bound() -> None:
    def chain(depth: int) -> bytes:
        left = [node + 1 if node % 2 == 0 and node < 2 * depth else -1 for node in range(2 * depth + 1)]
        right = [child + 1 if child != -1 else -1 for child in left]
        model = small_model()
        model["learner"]["gradient_booster"]["model"]["tree_info"] = [0]
        model["learner"]["gradient_booster"]["model"]["trees"] = [
            {
                "tree_param": {"num_nodes": str(len(left))},
                "left_children": left,
                "right_children": right,
                "split_indices": [0] * len(left),
                "split_conditions": [0.0] * len(left),
                "default_left": [0] * len(left),
            }
        ]
        return json.dumps(model).encode()

    assert reader.read(chain(2000), "model").n_leaves == 2001
    with pytest.raises(ModelFormatError, match=r"tree 0.*deeper than 10000"):
        reader.read(chain(10_100), "model")


def test_category_sets_may_not_blow_up() -> None:
    n_nodes = 401
    model = small_model()
    gbtree = model["learner"]["gradient_booster"]["model"]
    left = [2 * i + 1 if 2 * i + 2 < n_nodes else -1 for i in range(n_nodes)]
    inner = [i for i, child in enumerate(left) if child != -1]
    tree = gbtree["trees"][0]
    tree["tree_param"]["num_nodes"] = str(n_nodes)
    tree["left_children"], tree["right_children"] = left, [c + 1 if c != -1 else -1 for c in left]
    tree["split_indices"], tree["default_left"] = [0] * n_nodes, [0] * n_nodes
    tree["split_conditions"] = [0.0] * n_nodes
    tree["split_type"] = [int(child != -1) for child in left]
    tree["categories_nodes"], tree["categories_segments"] = inner, list(range(len(inner)))
    tree["categories_sizes"], tree["categories"] = [1] * len(inner), [2**24 - 1] * len(inner)
    with pytest.raises(ModelFormatError, match="field 'categories': category sets take 400 MiB"):
        reader.read(json.dumps(model).encode(), "model")


@pytest.mark.parametrize(("width", "n_values"), [(2_000, 2_000), (2**31 - 1, 0)])
def test_vector_leaves_take_no_memory_for_what_is_no_leaf(width: int, n_values: int) -> None:
    """The first of 2,000 nodes is a leaf, or none is; no row of values is kept for the others."""
    n_nodes, model = 2_000, small_model()
    learner = model["learner"]
    n_outputs = min(width, 2_000)
    learner["learner_model_param"] |= {"num_target": str(n_outputs), "base_score": "[" + "0," * (n_outputs - 1) + "0]"}
    zeros = dict.fromkeys(("right_children", "split_indices", "split_conditions", "default_left"), [0] * n_nodes)
    tree = {"left_children": [-1 if n_values else 0] + [0] * (n_nodes - 1), **zeros, "leaf_weights": [1.5] * n_values}
    tree["tree_param"] = {"num_nodes": str(n_nodes), "size_leaf_vector": str(width)}
    learner["gradient_booster"]["model"] |= {"trees": [tree], "tree_info": [0]}
    data = json.dumps(model).encode()
    tracemalloc.start()
    try:
        if n_values:
            assert reader.read(data, "model").leaf_value.tolist() == [[1.5] * n_values]
        else:
            with pytest.raises(ModelFormatError, match="tree 0"):
                reader.read(data, "model")
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
