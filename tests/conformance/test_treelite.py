"""Treelite models, live and as JSON, against ``treelite.gtil``: exit leaves and sums bit for bit."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agreement import assert_reads_or_refuses
from forests import probing_documents, threshold_documents
from trained import labels, lightgbm_trained, rows, xgboost_trained

import gpuqs
from gpuqs.errors import ModelFormatError, UnsupportedModelError
from gpuqs.formats import treelite_json

treelite = pytest.importorskip("treelite")
from treelite.model_builder import Metadata, ModelBuilder, PostProcessorFunc, TreeAnnotation  # noqa: E402

LIGHTGBM = ["regression", "binary", "multiclass", "multiclassova", "dart", "rf", "nan", "zero_as_missing with nan"]
LIGHTGBM += ["odd scales", "one leaf", "300 leaves", "categories", "categories one-hot"]
XGBOOST = [
    "regression",
    "binary",
    "logitraw",
    "hinge",
    "poisson",
    "rank:ndcg",
    "softprob",
    "vector leaves",
    "dart",
    "nan",
]
XGBOOST += ["odd scales", "one leaf", "300 leaves", "categories", "categories of classes"]
SKLEARN = {
    "RandomForestRegressor": "value",
    "RandomForestRegressor of two": "two",
    "RandomForestClassifier": "class",
    "RandomForestClassifier of two": "two classes",
    "ExtraTreesRegressor": "value",
    "GradientBoostingRegressor": "value",
    "GradientBoostingClassifier": "class",
    "IsolationForest": "value",
    "HistGradientBoostingRegressor": "value",
}


@cache
def imported(name: str) -> Any:
    """Import a trained model into Treelite: "lgb ...", "xgb ..." or a scikit-learn class."""
    if name.startswith("lgb "):
        return treelite.frontend.from_lightgbm(lightgbm_trained(name[4:]).booster)
    if name.startswith("xgb "):
        return treelite.frontend.from_xgboost(xgboost_trained(name[4:]).booster)
    import sklearn.ensemble as ensembles

    X, target = rows(np.random.default_rng(3), 400)
    grade, half = labels("class", target).astype(int), labels("binary", target).astype(int)
    targets = {"two": np.column_stack([target, -target]), "two classes": np.column_stack([half, grade])}
    y = targets.get(SKLEARN[name], grade if SKLEARN[name] == "class" else target)
    size = {"max_iter" if name.startswith("Hist") else "n_estimators": 5, "random_state": 0}
    return treelite.sklearn.import_model(getattr(ensembles, name.split()[0])(**size).fit(X, y))


def documents(forest: Any) -> np.ndarray:
    rng, dtype = np.random.default_rng(29), np.dtype(forest.input_dtype).type
    parts = [threshold_documents(rng, forest, dtype)[:800], probing_documents(rng, forest, 300, dtype)]
    with np.errstate(over="ignore"):
        return np.concatenate([*parts, rng.normal(size=(200, forest.n_features)).astype(dtype)])


def ask(model: Any, X: np.ndarray, **how: Any) -> np.ndarray:
    """gtil's answer [D, targets x classes]."""
    return treelite.gtil.predict(model, X, nthread=1, **how).reshape(len(X), -1)


def check(model: Any, engine: str = "auto") -> Any:
    """Compare leaves, raw scores and values with gtil's."""
    read = gpuqs.from_model(model)
    forest, X = read.forest, documents(read.forest)
    leaves = treelite.gtil.predict_leaf(model, X, nthread=1).reshape(len(X), -1)
    np.testing.assert_array_equal(read.predict(X, "leaf", engine=engine), leaves)
    raw, value = (read.predict(X, output, engine=engine).reshape(len(X), -1) for output in ("raw", "value"))
    assert raw.dtype == forest.sum_dtype
    np.testing.assert_array_equal(raw, ask(model, X, pred_margin=True))
    bounds = (1e-14, 1e-15) if forest.link == "exp2" else (0, 0)  # gtil divides by the ratio, gpuqs multiplies
    np.testing.assert_allclose(value, ask(model, X), *bounds)
    return read


@pytest.mark.parametrize("engine", ["auto", "reference"])
@pytest.mark.parametrize(
    "name", [*(f"lgb {name}" for name in LIGHTGBM), *(f"xgb {name}" for name in XGBOOST), *SKLEARN]
)
def test_imported(name: str, engine: str) -> None:
    read = check(imported(name), engine)
    assert read.forest.has_categories == ("categories" in name)


def test_as_the_training_library() -> None:
    """A model imported by Treelite equals the one read from the library's own file."""
    for name, trained in (("lgb nan", lightgbm_trained("nan")), ("xgb regression", xgboost_trained("regression"))):
        X = trained.rows.astype(np.float32)
        a, b = gpuqs.from_model(imported(name)).predict(X, "raw"), trained.model.predict(X, "raw")
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


def test_files_are_found_by_content(tmp_path: Path) -> None:
    model = imported("lgb regression")
    path = tmp_path / "model.txt"
    path.write_text(model.dump_as_json())
    X = documents(gpuqs.load(path).forest)
    np.testing.assert_array_equal(gpuqs.load(path).predict(X), ask(model, X)[:, 0])
    assert not treelite_json.recognises(b'{"learner":{"attributes":{}')
    assert treelite_json.recognises(b' {\n "num_feature": 3,')


def test_classes() -> None:
    model = imported("RandomForestClassifier")
    read = gpuqs.from_model(model)
    X = documents(read.forest)
    np.testing.assert_array_equal(read.predict(X, "class"), ask(model, X).argmax(axis=1))


# -- models made by hand -------------------------------------------------------------------------


def built(
    trees: list[list[tuple]],
    dtype: str = "float32",
    post: str = "identity",
    base: float = 0.0,
    average: bool = False,
    **more: Any,
) -> Any:
    """A model of one output; a node is (feature, operator or codes, threshold or side, left, right, default left)."""
    builder = ModelBuilder(
        threshold_type=dtype,
        leaf_output_type=dtype,
        metadata=Metadata(
            num_feature=3,
            task_type="kRegressor",
            average_tree_output=average,
            num_target=1,
            num_class=[1],
            leaf_vector_shape=(1, 1),
        ),
        tree_annotation=TreeAnnotation(num_tree=len(trees), target_id=[0] * len(trees), class_id=[0] * len(trees)),
        postprocessor=PostProcessorFunc(name=post, **more),
        base_scores=[base],
    )
    for tree in trees:
        builder.start_tree()
        for key, node in enumerate(tree):
            builder.start_node(key)
            if len(node) == 1:
                builder.leaf(node[0])
            else:
                feature, test, value, left, right, default_left = node
                common = {"feature_id": feature, "default_left": default_left}
                common |= {"left_child_key": left, "right_child_key": right}
                if isinstance(test, str):
                    builder.numerical_test(**common, threshold=value, opname=test)
                else:
                    builder.categorical_test(**common, category_list=test, category_list_right_child=value)
            builder.end_node()
        builder.end_tree()
    return builder.commit()


@pytest.mark.parametrize("default_left", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("operator", ["<", "<=", ">", ">=", "=="])
def test_operators(operator: str, dtype: str, default_left: bool) -> None:
    thresholds = [0.0, 1.0, 7.0] if operator == "==" else [0.0, -0.0, 0.1, -3.0, 1e-40, 1e30]
    trees = [[(i % 3, operator, value, 1, 2, default_left), (2.0**i,), (0.5,)] for i, value in enumerate(thresholds)]
    read = check(built(trees, dtype))
    assert read.forest.has_categories == (operator == "==")


@pytest.mark.parametrize("default_left", [False, True])
@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_category_lists(dtype: str, right: bool, default_left: bool) -> None:
    codes = [[0], [1, 5, 33], [], [16_777_216, 3], [4, 97]]
    trees = [[(i % 3, listed, right, 1, 2, default_left), (2.0**i,), (0.5,)] for i, listed in enumerate(codes)]
    model = built(trees, dtype)
    check(model)
    read = gpuqs.from_model(model)
    odd = [-0.0, 0.5, -0.5, -1, 1.999, 5, 33, 97, 3, 4, 2.0**24, 2.0**24 + 2, 2.0**32, -np.inf, np.inf, 1e30, np.nan]
    X = np.repeat(np.array(odd, dtype)[:, None], 3, axis=1)
    np.testing.assert_array_equal(read.predict(X), ask(model, X)[:, 0])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("post", "more"),
    [
        ("identity", {}),
        ("signed_square", {}),
        ("hinge", {}),
        ("sigmoid", {"sigmoid_alpha": 1.5}),
        ("exponential", {}),
        ("exponential_standard_ratio", {"ratio_c": 2.5}),
        ("logarithm_one_plus_exp", {}),
    ],
)
def test_postprocessors(post: str, more: dict[str, float], dtype: str) -> None:
    trees = [[(i, "<", 0.25, 1, 2, True), (0.7 * i - 1,), (0.3 - i,)] for i in range(3)]
    check(built(trees, dtype, post, base=0.5, **more))
    check(built(trees, dtype, post, average=True, **more))


@pytest.mark.parametrize("base", [0.1, -1e-9, 1 / 3, 1e9 + 1 / 3])
def test_base_scores_are_float64(base: float) -> None:
    """Also for float32 models, as Treelite imports XGBoost models with logistic and other objectives."""
    values = np.random.default_rng(4).normal(size=(30, 2)).astype(np.float32)
    read = check(built([[(0, "<=", 0.1, 1, 2, False), (float(a),), (float(b),)] for a, b in values], base=base))
    X = documents(read.forest)
    for precision in ("exact", "fast"):  # plain calls, and others
        raw = read.predict(X, "raw", precision=precision)
        np.testing.assert_array_equal(raw, read.predict(X, "raw", precision=precision, engine="reference"))


# -- bad input -----------------------------------------------------------------------------------


def document(name: str = "lgb regression") -> dict[str, Any]:
    """A model's JSON."""
    return json.loads(imported(name).dump_as_json())


BAD = {
    "field 'threshold_type': is missing": ({}, "threshold_type", None),
    "field 'threshold_type': float32 and float64": ({}, "threshold_type", "float32"),
    "field 'leaf_output_type'": ({}, "leaf_output_type", 3),
    "field 'num_feature'": ({}, "num_feature", 1 << 40),
    "field 'num_target'": ({}, "num_target", 0),
    "field 'num_class': holds values outside": ({}, "num_class", [1 << 30]),
    "field 'num_class': holds 2": ({}, "num_class", [1, 1]),
    "field 'leaf_vector_shape': leaves have shape": ({}, "leaf_vector_shape", [1, 2]),
    "field 'class_id': holds values outside": ({}, "class_id", [3] * 20),
    "field 'target_id': holds 1 values, not 20": ({}, "target_id", [0]),
    "field 'base_scores': holds 2": ({}, "base_scores", [0.0, 0.0]),
    "base score is not finite": ({}, "base_scores", [float("nan")]),
    "field 'average_tree_output'": ({}, "average_tree_output", "yes"),
    "field 'trees': the model has no trees": ({}, "trees", []),
    "tree 2, field 'nodes': is missing": ({"tree": 2}, "nodes", None),
    "tree 2, field 'nodes'": ({"tree": 2}, "nodes", []),
    "tree 3, field 'node_id'": ({"tree": 3, "node": 1}, "node_id", 7),
    "tree 3, field 'left_child'": ({"tree": 3, "node": 0}, "left_child", 1 << 20),
    "tree 3, field 'right_child'": ({"tree": 3, "node": 0}, "right_child", -1),
    "tree 3, field '(left|left/right)'": ({"tree": 3, "node": 0}, "left_child", 0),
    "tree 3, field 'nodes': the first node": ({"tree": 3, "node": 0}, "leaf_value", 1.0),
    "tree 0, field 'split_feature_id'": ({"tree": 0, "node": 0}, "split_feature_id", "a"),
    "tree 0, field 'feature'": ({"tree": 0, "node": 0}, "split_feature_id", 8),
    "tree 0, field 'node_type'": ({"tree": 0, "node": 0}, "node_type", "odd_node"),
    "tree 0, field 'comparison_op'": ({"tree": 0, "node": 0}, "comparison_op", "=<"),
    "tree 0, field 'threshold': is not an array of numbers": ({"tree": 0, "node": 0}, "threshold", "1"),
    "tree 0, field 'threshold'": ({"tree": 0, "node": 0}, "threshold", float("nan")),
    "tree 0, field 'default_left'": ({"tree": 0, "node": 0}, "default_left", 1),
    "tree 1, field 'leaf_value'": ({"tree": 1, "node": -1}, "leaf_value", [1.0, 2.0]),
    "tree 1, field 'leaf_value': is not an array": ({"tree": 1, "node": -1}, "leaf_value", {}),
    "value is not finite": ({"tree": 1, "node": -1}, "leaf_value", float("inf")),
}


@pytest.mark.parametrize("problem", BAD)
def test_damaged(problem: str) -> None:
    place, key, value = BAD[problem]
    whole = at = document()
    if "tree" in place:
        at = at["trees"][place["tree"]]
    if "node" in place:
        at = at["nodes"][place["node"]]
    if value is None:
        del at[key]
    else:
        at[key] = value
    with pytest.raises(ModelFormatError, match=f"model text, .*{problem}|model text: .*{problem}"):
        gpuqs.load(json.dumps(whole))


def test_hostile_categories() -> None:
    whole = document("lgb categories")
    node = next(node for tree in whole["trees"] for node in tree["nodes"] if "category_list" in node)
    for codes, problem in (
        ([-1], "uint32"),
        ([1 << 32], "uint32"),
        ([0xFFFFFFFF], "too much memory: number the categories"),
        ("a", "array"),
    ):
        node["category_list"] = codes
        with pytest.raises(ModelFormatError, match=f"field 'category_list': .*{problem}"):
            gpuqs.load(json.dumps(whole))
    small = document("lgb categories")
    for tree in small["trees"]:  # one such set is enough
        for node in tree["nodes"]:
            if "category_list" in node:
                node["category_list"] = [1 << 24]
    with pytest.raises(ModelFormatError, match=r"tree \d+, field 'category_list': .*too much memory"):
        gpuqs.load(json.dumps(small))


def test_refused_by_name() -> None:
    averaged = document("RandomForestRegressor")
    averaged["base_scores"] = [0.5]
    for whole, problem in (
        ({**document(), "postprocessor": "probit"}, "postprocessor 'probit' is not known"),
        (averaged, "base scores added to an average"),
        ({**document("xgb softprob"), "postprocessor": "sigmoid"}, "postprocessor 'sigmoid' of 1 targets of 3"),
        (
            {**document("lgb multiclass"), "average_tree_output": True, "class_id": [0] * 60},
            "different numbers of trees",
        ),
    ):
        with pytest.raises(UnsupportedModelError, match=f"model text: .*{problem}"):
            gpuqs.load(json.dumps(whole))
    builder = built([[(0, "==", 0.5, 1, 2, True), (1.0,), (2.0,)]])
    with pytest.raises(UnsupportedModelError, match=r"treelite.Model: tree 0, node 0: tests x == 0\.5"):
        gpuqs.from_model(builder)


def test_infinite_thresholds_are_lost_in_treelites_text() -> None:
    with pytest.raises(UnsupportedModelError, match=r"treelite.Model: Treelite leaves out infinite thresholds"):
        gpuqs.from_model(built([[(0, "<=", np.inf, 1, 2, False), (1.0,), (2.0,)]]))


def test_mutated_text() -> None:
    """Whatever the text: the result is a forest whose scores are all numbers, or one of our errors."""
    trees = [[(i, "<", 0.25, 1, 2, True), (0.7 * i - 1,), (0.3 - i,)] for i in range(3)]
    text = built([*trees, [(0, [1, 4], True, 1, 2, False), (1.0,), (2.0,)]]).dump_as_json(pretty_print=False).encode()
    rng = np.random.default_rng(5)
    X = rng.normal(size=(3, 3)).astype(np.float32)

    def broken() -> bytes:
        copy = bytearray(text)
        for _ in range(rng.integers(1, 3)):
            copy[rng.integers(40, len(copy))] = rng.choice(list(b'0123456789-.,"{}[]eE: tfn'))
        return bytes(copy)

    assert_reads_or_refuses((broken() for _ in range(1500)), X)
