"""XGBoost models read by gpuqs score as XGBoost does, bit for bit; damaged ones are refused by name."""

from __future__ import annotations

import copy
import itertools
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gpuqs
from gpuqs.engines.reference import Reference
from gpuqs.errors import ModelFormatError, UnsupportedModelError
from gpuqs.forest import Forest
from gpuqs.formats import xgboost as reader

xgb = pytest.importorskip("xgboost")

N_ROWS, N_FEATURES = 240, 5
MAX32 = float(np.finfo(np.float32).max)  # XGBoost refuses infinite values
SPECIAL = [np.nan, 0.0, -0.0, 1e-45, -1e-45, 1e-40, 1.1754944e-38, MAX32, -MAX32, 1.0, -1.0]


def training_rows(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(N_ROWS, N_FEATURES)).astype(np.float32)
    rows[:, 1] = np.round(rows[:, 1])
    rows[rng.random(rows.shape) < 0.1] = np.nan
    target = np.abs(np.nan_to_num(rows[:, 0]) + 0.3 * rng.normal(size=N_ROWS)) + 0.01
    return rows, target


def train(params: dict[str, Any], target: np.ndarray, n_rounds: int = 5, **data: Any) -> xgb.Booster:
    rows = data.pop("rows", training_rows()[0])
    matrix = xgb.DMatrix(rows, target, **data)
    return xgb.train({"max_depth": 3, "nthread": 1, **params}, matrix, n_rounds)


def score(forest: Forest, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Raw scores and exit leaves by the reference engine."""
    engine = Reference()
    program = engine.prepare(forest, "exact")
    sums = np.empty((len(rows), forest.n_outputs), program.values.sum_dtype)
    engine.score(program, rows, sums, 1)
    leaves = np.empty((len(rows), forest.n_trees), np.int32)
    engine.leaves(program, rows, leaves, 1)
    return program.values.finish(sums), leaves


def probing_rows(booster: xgb.Booster) -> np.ndarray:
    """Random rows, rows of special values, rows on every threshold and one float32 either side."""
    rng = np.random.default_rng(1)
    rows = [training_rows()[0], rng.choice(SPECIAL, size=(300, N_FEATURES)).astype(np.float32)]
    for tree in document(booster)["learner"]["gradient_booster"]["model"]["trees"]:
        inner = np.array(tree["left_children"]) != -1
        threshold = np.array(tree["split_conditions"], np.float32)[inner]
        feature = np.array(tree["split_indices"])[inner]
        for near in (threshold, np.nextafter(threshold, -np.inf), np.nextafter(threshold, np.inf)):
            row = rng.choice(training_rows()[0].ravel(), size=(len(near), N_FEATURES))
            row[np.arange(len(near)), feature] = near
            rows.append(row)
    probes = np.concatenate(rows).astype(np.float32)
    return np.where(np.isinf(probes), np.float32(MAX32), probes)


def document(booster: xgb.Booster) -> dict[str, Any]:
    parsed = json.loads(booster.save_raw("json"))
    booster_part = parsed["learner"]["gradient_booster"]
    if "gbtree" in booster_part:
        booster_part.setdefault("model", booster_part["gbtree"]["model"])
    return parsed


def assert_same_scores(booster: xgb.Booster, forest: Forest, rows: np.ndarray) -> None:
    types = booster.feature_types
    matrix = xgb.DMatrix(rows, feature_types=types, feature_names=booster.feature_names, nthread=1)
    got, leaves = score(forest, rows)
    margin = booster.predict(matrix, output_margin=True).reshape(got.shape)
    np.testing.assert_array_equal(got.view(np.int32), margin.view(np.int32))
    np.testing.assert_array_equal(leaves, booster.predict(matrix, pred_leaf=True).reshape(leaves.shape))


def assert_equal_forests(one: Forest, other: Forest) -> None:
    for name, value in vars(one).items():
        if isinstance(value, np.ndarray) and name != "_depth":
            np.testing.assert_array_equal(value, getattr(other, name), err_msg=name)
        elif name != "_depth":
            assert repr(value) == repr(getattr(other, name)), name  # repr, since NaN is not equal to itself


ROWS, TARGET = training_rows()
CLASSES = np.arange(N_ROWS) % 3
BINARY = (TARGET > 0.6).astype(np.float32)
THREE = np.stack([TARGET, -TARGET, 2 * TARGET], axis=1)
BOUNDS = {"label_lower_bound": TARGET, "label_upper_bound": TARGET + 1}
GROUPS = {"group": [30] * 8}
RELEASE = tuple(int(part) for part in xgb.__version__.split(".")[:2])
CASES: dict[str, tuple[dict[str, Any], np.ndarray | None, dict[str, Any], str]] = {
    "regression": ({}, TARGET, {}, "identity"),
    "log error": ({"objective": "reg:squaredlogerror"}, TARGET, {}, "identity"),
    "huber": ({"objective": "reg:pseudohubererror"}, TARGET, {}, "identity"),
    "absolute": ({"objective": "reg:absoluteerror"}, TARGET, {}, "identity"),
    "quantiles": (
        {"objective": "reg:quantileerror", "quantile_alpha": [0.2, 0.8]},
        TARGET,
        {},
        "ascending" if RELEASE >= (3, 4) else "identity",
    ),
    "binary": ({"objective": "binary:logistic"}, BINARY, {}, "sigmoid"),
    "rare": ({"objective": "binary:logistic", "base_score": 1e-7}, BINARY, {}, "sigmoid"),
    "logistic": ({"objective": "reg:logistic", "base_score": 0.2}, BINARY, {}, "sigmoid"),
    "logitraw": ({"objective": "binary:logitraw"}, BINARY, {}, "identity"),
    "hinge": ({"objective": "binary:hinge"}, BINARY, {}, "hinge"),
    "poisson": ({"objective": "count:poisson"}, TARGET, {}, "exp"),
    "gamma": ({"objective": "reg:gamma"}, TARGET, {}, "exp"),
    "tweedie": ({"objective": "reg:tweedie"}, TARGET, {}, "exp"),
    "cox": ({"objective": "survival:cox"}, TARGET, {}, "exp"),
    "aft": ({"objective": "survival:aft"}, None, BOUNDS, "exp"),
    "ndcg": ({"objective": "rank:ndcg"}, BINARY, GROUPS, "identity"),
    "pairwise": ({"objective": "rank:pairwise"}, BINARY, GROUPS, "identity"),
    "map": ({"objective": "rank:map"}, BINARY, GROUPS, "identity"),
    "classes": ({"objective": "multi:softprob", "num_class": 3}, CLASSES, {}, "softmax"),
    "class": ({"objective": "multi:softmax", "num_class": 3}, CLASSES, {}, "argmax"),
    "targets": ({}, THREE, {}, "identity"),
    "vector leaves": ({"multi_strategy": "multi_output_tree"}, THREE, {}, "identity"),
    "forest": ({"num_parallel_tree": 3, "subsample": 0.5}, TARGET, {}, "identity"),
    "dart": ({"booster": "dart", "rate_drop": 0.5}, TARGET, {}, "identity"),
    "dart classes": (
        {"booster": "dart", "rate_drop": 0.5, "objective": "multi:softprob", "num_class": 3},
        CLASSES,
        {},
        "softmax",
    ),
    "pruned": ({"tree_method": "exact", "gamma": 2.0, "max_depth": 6}, TARGET, {}, "identity"),
    "leafwise": ({"grow_policy": "lossguide", "max_leaves": 40, "max_depth": 0}, TARGET, {}, "identity"),
}
if RELEASE >= (3, 3):
    LEVELS = {"objective": "reg:expectileerror", "expectile_alpha": [0.1, 0.5, 0.9]}
    CASES["expectiles"] = LEVELS, TARGET, {}, "expectiles"
    CASES["expectiles in vector leaves"] = {**LEVELS, "multi_strategy": "multi_output_tree"}, TARGET, {}, "expectiles"
    CASES["an expectile"] = {**LEVELS, "expectile_alpha": 0.3}, TARGET, {}, "identity"
    CASES["expectiles from a base score"] = {**LEVELS, "base_score": 0.3}, TARGET, {}, "expectiles"
    CASES["dropout"] = {"rate_drop": 0.5}, TARGET, {}, "identity"


@pytest.mark.parametrize("case", CASES)
def test_scores_and_leaves_are_xgboosts(case: str) -> None:
    params, target, data, link = CASES[case]
    booster = train(params, target, **data)
    forest = reader.from_object(booster)
    assert forest is not None
    assert forest.link == link and forest.n_trees > 0
    assert forest.objective == params.get("objective", "reg:squarederror")
    assert forest.source.startswith("XGBoost ")
    rows = probing_rows(booster)
    assert_same_scores(booster, forest, rows)
    with np.errstate(over="ignore"):
        wide = np.nextafter(rows.astype(np.float64), np.inf)  # not float32 values, so they are cast first
    assert_same_scores(booster, forest, np.where(np.abs(wide) > MAX32, MAX32, wide))


@pytest.mark.parametrize("case", CASES)
def test_values_are_what_predict_gives(case: str) -> None:
    """Also in shape and type: labels of multi:softmax, one column or a flat array."""
    params, target, data, _ = CASES[case]
    booster = train(params, target, **data)
    rows = training_rows()[0]
    ours, theirs = gpuqs.from_model(booster).predict(rows), booster.predict(xgb.DMatrix(rows))
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    np.testing.assert_allclose(ours, theirs, rtol=3e-6)


@pytest.mark.parametrize("case", ["regression", "dart", "classes", "vector leaves"])
def test_json_and_ubjson_give_equal_forests(case: str) -> None:
    params, target, data, _ = CASES[case]
    booster = train(params, target, **data)
    forms = [bytes(booster.save_raw(form)) for form in ("json", "ubj")]
    assert all(reader.recognises(form[:4096]) for form in forms)
    assert_equal_forests(*(reader.read(memoryview(form), "model") for form in forms))


@pytest.mark.parametrize("max_cat_to_onehot", [1, 100])
def test_categories(max_cat_to_onehot: int) -> None:
    rng = np.random.default_rng(2)
    rows = ROWS.copy()
    rows[:, 2], rows[:, 3] = rng.integers(0, 40, N_ROWS), rng.integers(0, 3, N_ROWS)
    rows[::17, 2] = np.nan
    target = TARGET * (rows[:, 2] % 3 == 1) + rows[:, 3]
    types = ["q", "q", "c", "c", "q"]
    params = {"max_depth": 5, "max_cat_to_onehot": max_cat_to_onehot}
    booster = train(params, target, rows=rows, feature_types=types, enable_categorical=True)
    forest = reader.from_object(booster)
    assert forest is not None and forest.has_categories
    odd = [
        -1.0,
        -0.5,
        -0.0,
        0.5,
        2.99,
        39.5,
        40.0,
        63.0,
        64.0,
        1e4,
        2**24 - 1,
        2**24,
        3e9,
        MAX32,
        -MAX32,
        np.nan,
    ]
    probes = np.tile(rows, (3, 1))
    probes[:, 2] = rng.choice([*odd, *range(40)], len(probes))
    probes[:, 3] = rng.choice([*odd, 0, 1, 2], len(probes))
    assert_same_scores(booster, forest, probes)


def test_thresholds_at_the_ends_of_float32() -> None:
    model = document(train({"max_depth": 5}, TARGET))
    ends = [-np.inf, np.inf, 0.0, -0.0, 1e-45, -1e-45, MAX32, -MAX32, 1.1754944e-38]
    place = 0
    for tree in model["learner"]["gradient_booster"]["model"]["trees"]:
        for node, left in enumerate(tree["left_children"]):
            if left != -1:
                tree["split_conditions"][node] = ends[place % len(ends)]
                place += 1
    assert place > len(ends)
    raw = json.dumps(model).encode()
    booster = xgb.Booster(model_file=bytearray(raw))
    rows = np.random.default_rng(3).choice(SPECIAL, size=(2000, N_FEATURES)).astype(np.float32)
    forest = reader.read(raw, "model")
    assert_same_scores(booster, forest, rows)
    rows[::3, 0], rows[1::3, 2] = np.inf, -np.inf  # only inplace_predict accepts these
    inplace = booster.inplace_predict(rows, predict_type="margin")
    np.testing.assert_array_equal(score(forest, rows)[0][:, 0], inplace)


def test_base_scores_become_margins_by_xgboosts_own_rounding() -> None:
    rng = np.random.default_rng(4)
    for objective, target in (("binary:logistic", BINARY), ("count:poisson", TARGET)):
        model = document(train({"objective": objective}, target, 1))
        for base in rng.random(25, np.float32):
            model["learner"]["learner_model_param"]["base_score"] = f"[{base}]"
            raw = json.dumps(model).encode()
            assert_same_scores(xgb.Booster(model_file=bytearray(raw)), reader.read(raw, "model"), ROWS[:9])


@pytest.mark.parametrize("base_score", [None, 0.3])
@pytest.mark.parametrize(
    "objective", ["binary:logistic", "reg:logistic", "count:poisson", "reg:gamma", "survival:cox", "reg:squarederror"]
)
def test_models_of_no_rounds(objective: str, base_score: float | None) -> None:
    """Until the first round estimates it, a base score is a margin, whatever the objective's link."""
    params = {"objective": objective} | ({} if base_score is None else {"base_score": base_score})
    for estimated in ({}, {"boost_from_average": 1}):
        booster = xgb.train(params | estimated, xgb.DMatrix(ROWS, np.abs(BINARY)), 0)
        for kind in ("json", "ubj"):
            raw = bytes(booster.save_raw(kind))
            assert_same_scores(xgb.Booster(model_file=bytearray(raw)), reader.read(raw, "model"), ROWS[:9])
    booster = xgb.train(params, xgb.DMatrix(ROWS, np.abs(BINARY)), 0)
    model = document(booster)
    model["version"] = [3, 0, 5]  # this version did not distinguish them
    before = reader.read(json.dumps(model).encode(), "model").base_score
    model["learner"]["learner_model_param"]["boost_from_average"] = "0"
    np.testing.assert_array_equal(before, reader.read(json.dumps(model).encode(), "model").base_score)


# -- versions ----------------------------------------------------------------------------------


def as_version(model: dict[str, Any], version: list[int], base_score: str) -> dict[str, Any]:
    """The model as an older XGBoost wrote it."""
    model = copy.deepcopy(model)
    learner = model["learner"]
    learner["learner_model_param"] = {
        "base_score": base_score,
        "num_class": learner["learner_model_param"]["num_class"],
        "num_feature": learner["learner_model_param"]["num_feature"],
    }
    del learner["feature_names"], learner["feature_types"]
    gbtree = learner["gradient_booster"]["model"]
    del gbtree["cats"], gbtree["iteration_indptr"], gbtree["gbtree_model_param"]["num_parallel_tree"]
    gbtree["gbtree_model_param"]["size_leaf_vector"] = "0"
    for tree in gbtree["trees"]:
        tree["tree_param"]["size_leaf_vector"] = "0"
        tree["default_left"] = [bool(left) for left in tree["default_left"]]
        tree["leaf_child_counts"] = [0] * len(tree["default_left"])
        for key in (
            "split_type",
            "categories",
            "categories_nodes",
            "categories_segments",
            "categories_sizes",
        ):
            del tree[key]
    model["version"] = version
    return model


@pytest.mark.parametrize("case", ["regression", "binary", "poisson", "classes"])
def test_layout_of_version_1_with_scalar_base_score(case: str) -> None:
    params, target, data, _ = CASES[case]
    new = document(train({**params, "base_score": 0.25}, target, **data))
    raw = json.dumps(as_version(new, [1, 4, 2], "2.5E-1")).encode()
    assert reader.recognises(raw[:4096])
    old, now = reader.read(raw, "model"), reader.read(json.dumps(new).encode(), "model")
    assert old.source == "XGBoost 1.4"
    np.testing.assert_array_equal(old.base_score, now.base_score)
    np.testing.assert_array_equal(score(old, ROWS)[0], score(now, ROWS)[0])


def test_vector_base_score_and_its_length() -> None:
    model = document(train({"objective": "multi:softprob", "num_class": 3}, CLASSES))
    param = model["learner"]["learner_model_param"]
    param["base_score"] = "[1E0,-2.5E-1,3E-3]"
    forest = reader.read(json.dumps(model).encode(), "model")
    np.testing.assert_array_equal(forest.base_score, np.array([1, -0.25, 3e-3], np.float32))
    for scalar in ("5E-1", "[5E-1]"):
        param["base_score"] = scalar
        np.testing.assert_array_equal(reader.read(json.dumps(model).encode(), "m").base_score, [0.5] * 3)
    param["base_score"] = "[1,2]"
    with pytest.raises(ModelFormatError, match="'base_score': 2 values for 3 outputs"):
        reader.read(json.dumps(model).encode(), "model")


def test_raw_logit_base_score_was_a_probability_before_1_3() -> None:
    model = document(train({"objective": "binary:logitraw"}, BINARY))
    for version, margin in (([1, 2, 0], 0.0), ([1, 3, 0], 0.5), ([3, 2, 0], 0.5)):
        old = as_version(model, version, "5E-1")
        assert reader.read(json.dumps(old).encode(), "model").base_score == [margin]


def test_base_score_is_kept_off_0_and_1_only_since_3_2() -> None:
    model = document(train({"objective": "binary:logistic"}, BINARY))
    model["learner"]["learner_model_param"]["base_score"] = "[1E-8]"
    model["version"] = [3, 1, 0]
    before = reader.read(json.dumps(model).encode(), "model").base_score[0]
    model["version"] = [3, 2, 0]
    since = reader.read(json.dumps(model).encode(), "model").base_score[0]
    assert before == pytest.approx(np.log(1e-8), rel=1e-6)
    assert since == pytest.approx(np.log(1e-6), rel=1e-6)


def test_vector_leaves_before_3_2_lie_in_the_base_weights() -> None:
    model = document(train({"multi_strategy": "multi_output_tree"}, THREE))
    now = reader.read(json.dumps(model).encode(), "model")
    for tree in model["learner"]["gradient_booster"]["model"]["trees"]:
        weights = np.array(tree.pop("leaf_weights")).reshape(-1, 3)
        at_nodes = np.zeros((len(tree["left_children"]), 3))
        leaves = np.flatnonzero(np.array(tree["left_children"]) == -1)
        at_nodes[leaves] = weights[np.array(tree["right_children"])[leaves]]
        tree["base_weights"] = at_nodes.ravel().tolist()
        right = np.array(tree["right_children"])
        right[leaves] = -1
        tree["right_children"] = right.tolist()
    assert_equal_forests(now, reader.read(json.dumps(model).encode(), "model"))


def test_dart_weights_beside_the_trees() -> None:
    """XGBoost 3.4 writes them into the model; earlier versions did not."""
    model = json.loads(train({"booster": "dart", "rate_drop": 0.5}, TARGET).save_raw("json"))
    written = reader.read(json.dumps(model).encode(), "model")
    assert len(np.unique(written.tree_weight)) > 1
    booster = model["learner"]["gradient_booster"]
    if "gbtree" in booster:
        booster["gbtree"]["model"]["weight_drop"] = booster["weight_drop"]
        other, model["version"] = booster["gbtree"], [3, 4, 0]
    else:
        weights = booster.pop("weight_drop", None) or booster["model"].pop("weight_drop")
        other, model["version"] = {"name": "dart", "weight_drop": weights, "gbtree": booster}, [3, 2, 0]
    model["learner"]["gradient_booster"] = other
    read = reader.read(json.dumps(model).encode(), "model")
    assert_equal_forests(replace(written, source=read.source), read)


@pytest.mark.parametrize("place", ["booster", "model"])
def test_weights_of_trees_that_are_no_dart_count_for_nothing(place: str) -> None:
    model, rows = json.loads(train({}, TARGET).save_raw("json")), training_rows()[0]
    model["version"] = [3, 2, 0]
    booster = model["learner"]["gradient_booster"]
    (booster if place == "booster" else booster["model"])["weight_drop"] = [0.5] * len(booster["model"]["trees"])
    text = json.dumps(model).encode()
    forest = reader.read(text, "model")
    np.testing.assert_array_equal(forest.tree_weight, 1)
    if RELEASE < (3, 3):
        expected = xgb.Booster(model_file=bytearray(text)).predict(xgb.DMatrix(rows), output_margin=True)
        np.testing.assert_array_equal(gpuqs.from_model(forest).predict(rows, "raw"), expected)


@pytest.mark.parametrize("rounds", [1, 4])
def test_dart_models_that_were_refreshed(rounds: int) -> None:
    booster, rows = train({"booster": "dart", "rate_drop": 0.5, "seed": 1}, TARGET), training_rows()[0]
    refreshing = {"booster": "dart", "process_type": "update", "updater": "refresh", "nthread": 1, "verbosity": 0}
    try:
        again = xgb.train(refreshing, xgb.DMatrix(rows, TARGET), rounds, xgb_model=booster)
    except xgb.core.XGBoostError as error:
        assert "weight_drop.size()" in str(error)
        pytest.skip("this release of XGBoost (3.4 is one) does not refresh fewer trees than there are")
    model = gpuqs.from_model(again)
    assert model.n_trees == rounds
    np.testing.assert_array_equal(model.predict(rows), again.predict(xgb.DMatrix(rows)))


def test_dart_weights_that_no_tree_has() -> None:
    """As XGBoost 3.2 writes them when it has refreshed fewer trees than there are."""
    model = json.loads(train({"booster": "dart", "rate_drop": 0.5, "seed": 1}, TARGET).save_raw("json"))
    expected = reader.read(json.dumps(model).encode(), "model")
    booster = model["learner"]["gradient_booster"]
    (booster if "weight_drop" in booster else booster["model"])["weight_drop"] += [0.25, 0.5]
    assert_equal_forests(reader.read(json.dumps(model).encode(), "model"), expected)


@pytest.mark.parametrize(
    "number, place",
    [
        *itertools.product(
            ["1.00000005960464478", "16777217.00000000001", "-1.00000005960464477", "7.1e-46"], ["leaf", "base score"]
        ),
        ("9007199791611905", "base score"),  # XGBoost does not accept an integer for a leaf
    ],
)
def test_decimals_are_rounded_once(number: str, place: str) -> None:
    """As XGBoost reads files by other writers with more digits than it writes itself."""
    model, rows = document(train({"max_depth": 1}, TARGET, 1)), training_rows()[0]
    if place == "leaf":
        model["learner"]["gradient_booster"]["model"]["trees"][0]["split_conditions"][1] = "here"
    else:
        model["learner"]["learner_model_param"]["base_score"] = f"[{number}]"
    text = json.dumps(model).replace('"here"', number).encode()
    booster = xgb.Booster(model_file=bytearray(text))
    expected = booster.predict(xgb.DMatrix(rows), output_margin=True)
    np.testing.assert_array_equal(gpuqs.from_model(reader.read(text, "model")).predict(rows, "raw"), expected)


def test_deleted_nodes_are_dropped() -> None:
    booster = train({}, TARGET)
    model = document(booster)
    tree = model["learner"]["gradient_booster"]["model"]["trees"][1]
    parent = next(
        node
        for node, left in enumerate(tree["left_children"])
        if left != -1
        and tree["left_children"][left] == tree["left_children"][tree["right_children"][node]] == -1
    )
    tree["left_children"][parent] = tree["right_children"][parent] = -1  # as XGBoost's pruner does
    forest = reader.read(json.dumps(model).encode(), "model")
    whole = reader.from_object(booster)
    assert whole is not None
    assert forest.n_nodes == whole.n_nodes - 1
    assert parent in forest.leaf_id[forest.leaf_offsets[1] : forest.leaf_offsets[2]]


# -- live objects and names --------------------------------------------------------------------


def test_feature_names_are_kept() -> None:
    names = [f"name {i}" for i in range(N_FEATURES)]
    forest = reader.from_object(train({}, TARGET, feature_names=names))
    assert forest is not None and list(forest.feature_names) == names


def test_booster_takes_all_trees_and_model_stops_at_best_iteration() -> None:
    model = xgb.XGBClassifier(n_estimators=40, learning_rate=1.0, early_stopping_rounds=3, n_jobs=1)
    noise = np.random.default_rng(5).integers(0, 3, 60)
    model.fit(ROWS, CLASSES, eval_set=[(ROWS[:60], noise)], verbose=False)
    booster = model.get_booster()
    whole, best = reader.from_object(booster), reader.from_object(model)
    assert whole is not None and best is not None
    assert best.n_trees == 3 * (model.best_iteration + 1) < whole.n_trees == 3 * booster.num_boosted_rounds()
    assert_same_scores(booster, whole, ROWS)
    np.testing.assert_array_equal(score(best, ROWS)[0], model.predict(ROWS, output_margin=True))


def test_model_objects() -> None:
    model = xgb.XGBRegressor(n_estimators=3, n_jobs=1)
    with pytest.raises(ModelFormatError, match="XGBRegressor: the model is not fitted; call fit"):
        reader.from_object(model)
    forest = reader.from_object(model.fit(ROWS, TARGET))
    assert forest is not None
    np.testing.assert_array_equal(score(forest, ROWS)[0][:, 0], model.predict(ROWS, output_margin=True))
    assert reader.from_object(object()) is None
    assert reader.from_object(xgb.DMatrix(ROWS)) is None


def test_random_forest_model() -> None:
    model = xgb.XGBRFRegressor(n_estimators=6, max_depth=4, n_jobs=1).fit(ROWS, TARGET)
    forest = reader.from_object(model)
    assert forest is not None and forest.n_trees == 6
    np.testing.assert_array_equal(score(forest, ROWS)[0][:, 0], model.predict(ROWS, output_margin=True))


def old_binary(objective: bytes, booster: bytes) -> bytes:
    """The beginning of a file by XGBoost up to 1.0."""
    parameters = np.array([0.5], "<f4").tobytes() + np.array([6], "<u4").tobytes() + bytes(128)
    return parameters + b"".join(len(name).to_bytes(8, "little") + name for name in (objective, booster)) + bytes(300)


OLD_BINARY = (
    b"binf\x00\x00\x00\x3f",
    old_binary(b"reg:squarederror", b"gbtree"),
    old_binary(b"multi:softprob", b"dart"),
    old_binary(b"survival:cox", b"gblinear"),
)


def test_content_is_recognised() -> None:
    assert reader.recognises(b' \n{ "version":[1,0,0], "learner" : {')
    assert all(map(reader.recognises, OLD_BINARY))
    for other in (
        old_binary(b"reg:squarederror", b"forest"),
        old_binary(b"", b"gbtree"),
        OLD_BINARY[1][1:],
        OLD_BINARY[1][:150],
        b'{"model_info": {"params": "learner"}, "oblivious_trees": [',
        b'{"name":"tree","version":"v4","num_class":1,',
        b"tree\nversion=v4\n",
        b'"learner": {',
        b"{",
        b"",
    ):
        assert not reader.recognises(other), other


# -- models that are not evaluated -------------------------------------------------------------


def test_linear_model_is_refused_by_name() -> None:
    booster = xgb.train({"booster": "gblinear"}, xgb.DMatrix(ROWS, TARGET), 2)
    with pytest.raises(UnsupportedModelError, match=r"booster 'gblinear' is not an ensemble of trees"):
        reader.from_object(booster)


@pytest.mark.parametrize("data", OLD_BINARY, ids=["binf", "0.90", "dart", "gblinear"])
def test_old_binary_form_is_refused_by_name(data: bytes) -> None:
    mend = r"load it with XGBoost 2\.0, or .*save_model"
    with pytest.raises(UnsupportedModelError, match=rf"old.model: XGBoost's old binary format is not read; {mend}"):
        reader.read(memoryview(data), "old.model")


def test_unknown_objective_is_refused_by_name() -> None:
    model = document(train({}, TARGET))
    model["learner"]["objective"]["name"] = "reg:magic"
    with pytest.raises(UnsupportedModelError, match=r"objective 'reg:magic' is not known"):
        reader.read(json.dumps(model).encode(), "model")


def test_categories_of_a_frame_that_do_not_fit_are_refused() -> None:
    document = json.loads(xgb.train({}, xgb.DMatrix(ROWS, np.arange(len(ROWS))), 1).save_raw("json"))
    model = document["learner"]["gradient_booster"]["model"]
    plain = [{"offsets": [], "values": []}] * (ROWS.shape[1] - 1)
    for column, field in (
        ({"offsets": [0, 3], "values": [97, 98]}, "cats.enc.offsets"),
        ({"offsets": [0, 2, 1, 2], "values": [97, 98]}, "cats.enc.offsets"),
        ({"offsets": [0, 1], "values": ["a"]}, "cats.enc.values"),
        ({"offsets": [0, 1]}, "values"),
    ):
        model["cats"] = {"enc": [column, *plain]}
        with pytest.raises(ModelFormatError) as caught:
            reader.read(json.dumps(document).encode(), "file")
        assert caught.value.field == field
    model["cats"] = {"enc": [{"offsets": [0, 1, 3], "values": [97, 98, 99]}, *plain[1:]]}
    with pytest.raises(ModelFormatError, match="columns for"):
        reader.read(json.dumps(document).encode(), "file")
    model["cats"] = {"enc": [{"offsets": [0, 1, 3], "values": [97, 98, 99]}, *plain]}
    assert reader.read(json.dumps(document).encode(), "file").schema.categories[0] == ("a", "bc")


def test_categories_beyond_ascii_are_believed_where_xgboost_keeps_them_whole() -> None:
    """XGBoost does so since 3.4, but keeps what an earlier release cut, usually in the middle of a character."""
    document = json.loads(xgb.train({}, xgb.DMatrix(ROWS, np.arange(len(ROWS))), 1).save_raw("json"))
    model, plain = document["learner"]["gradient_booster"]["model"], [{"values": []}] * (ROWS.shape[1] - 1)
    whole, cut = "Köln Zürich".replace(" ", "").encode(), "größeab".encode()
    for version, text, offsets, known in (
        ([3, 4, 0], whole, [0, 5, 12], ("Köln", "Zürich")),
        ([4, 0, 0], whole, [0, 5, 12], ("Köln", "Zürich")),
        ([3, 3, 9], whole, [0, 5, 12], None),
        ([3, 4, 0], cut, [0, 3, 8, 9], None),
        ([3, 4, 0], "éabaéab".encode(), [0, 2, 3, 5, 7, 8], None),  # cut at character boundaries: two are called "a"
        ([3, 3, 9], b"abc", [0, 1, 3], ("a", "bc")),
    ):
        document["version"] = version
        model["cats"] = {"enc": [{"offsets": offsets, "values": list(text)[: offsets[-1]]}, *plain]}
        schema = reader.read(json.dumps(document).encode(), "file").schema
        assert (schema.categories[0] if known else schema.lost) == (known or (0,))


def test_vector_leaves_and_others_in_one_model_are_refused_by_name() -> None:
    """Callbacks that change multi_strategy during training produce such models, so they are not damaged."""
    mixed, other = document(train({"multi_strategy": "multi_output_tree"}, THREE, 2)), document(train({}, THREE, 2))
    trees, others = (of["learner"]["gradient_booster"]["model"]["trees"] for of in (mixed, other))
    trees[1] = others[1]
    with pytest.raises(UnsupportedModelError, match=r"tree 1: some trees have vector .*with XGBoost, .*multi_strategy"):
        reader.read(json.dumps(mixed).encode(), "file")


@pytest.mark.parametrize(
    ("kind", "stored", "category"),
    [(10, -56, 200), (11, -25536, -25536), (12, -25536, 40_000), (13, -1, -1), (14, -294_967_296, 4_000_000_000),
     (12, 40_000, 40_000), (15, -(2**40), -(2**40)), (16, 2**40, 2**40)],
)  # fmt: skip
def test_unsigned_categories_are_stored_as_signed_ones_of_the_same_bits(kind: int, stored: int, category: int) -> None:
    document = json.loads(xgb.train({}, xgb.DMatrix(ROWS, np.arange(len(ROWS))), 1).save_raw("json"))
    columns = [{"type": kind, "values": [stored, 7]}, *[{"values": []}] * (ROWS.shape[1] - 1)]
    document["learner"]["gradient_booster"]["model"]["cats"] = {"enc": columns}
    assert reader.read(json.dumps(document).encode(), "file").schema.categories[0] == (category, 7)


@pytest.mark.parametrize("text", ["3", "-1", "abc", "3.0", "", "9" * 30, "٣"])
def test_a_best_iteration_is_a_plain_number(text: str) -> None:
    booster = train({}, TARGET)
    booster.set_attr(best_iteration=text)
    forest = reader.read(booster.save_raw("json"), "model")
    assert forest.best_iteration == (3 if text == "3" else None)
