"""The LightGBM reader: every node test decides as LightGBM does, and damaged files are refused."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from real_data import real_data

import gpuqs
from gpuqs.engines.reference import Reference
from gpuqs.errors import ModelFormatError, UnsupportedModelError
from gpuqs.forest import Forest
from gpuqs.formats import lightgbm as reader
from gpuqs.formats import read_model
from gpuqs.links import apply_link, to_values

lgb = pytest.importorskip("lightgbm")

ZERO = float(np.float32(1e-35))
SPECIAL = [
    *(np.nan, np.inf, -np.inf, 0.0, -0.0, 5e-324, -5e-324, 1e-310, -1e-310, 1e-40, -1e-40, 1e-45),
    *(1e300, -1e300, 3.5e38, -3.5e38, float(np.finfo(np.float32).max), 1.0, -1.0),
    *(sign * v for sign in (1, -1) for v in (ZERO, np.nextafter(ZERO, 1), np.nextafter(ZERO, 0), ZERO / 2)),
    *(sign * float(np.nextafter(np.float32(ZERO), np.float32(to))) for sign in (1, -1) for to in (0, 1)),
]
SMALL = {"num_leaves": 6, "min_data_in_leaf": 5, "verbose": -1, "num_threads": 1, "seed": 3}


def rows_about(forest: Forest) -> np.ndarray:
    """Rows of special values, and of every threshold with its neighbours in float64 and float32."""
    edges = np.unique(forest.threshold)
    single = edges[np.abs(edges) < 1e38].astype(np.float32)
    values = np.concatenate(
        [
            np.array(SPECIAL),
            *(edges, np.nextafter(edges, np.inf), np.nextafter(edges, -np.inf)),
            *(single, np.nextafter(single, np.float32(np.inf)), np.nextafter(single, np.float32(-np.inf))),
        ]
    )
    rng = np.random.default_rng(5)
    columns = [rng.permutation(np.resize(values, 2 * len(values))) for _ in range(forest.n_features)]
    return np.column_stack(columns)


def evaluate(forest: Forest, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Exit leaves [D, T], sums [D, K] and finished scores [D, K] of the reference engine."""
    engine = Reference()
    program = engine.prepare(forest, "exact")
    leaves = np.zeros((len(documents), forest.n_trees), np.int32)
    sums = np.zeros((len(documents), forest.n_outputs), program.values.sum_dtype)
    engine.leaves(program, documents, leaves, 1)
    engine.score(program, documents, sums, 1)
    return leaves, sums, program.values.finish(sums)


def assert_as_lightgbm(forest: Forest, booster, documents: np.ndarray) -> None:
    """Exit leaves equal, raw scores equal bit for bit."""
    for dtype in (np.float64, np.float32):
        with np.errstate(over="ignore"):
            x = documents.astype(dtype)
        leaves, sums, _ = evaluate(forest, x)
        expected = booster.predict(x, pred_leaf=True, num_threads=1).reshape(len(x), -1)
        np.testing.assert_array_equal(leaves, expected)
        raw = booster.predict(x, raw_score=True, num_threads=1).reshape(len(x), -1)
        np.testing.assert_array_equal(sums.view(np.int64), np.ascontiguousarray(raw).view(np.int64))


@cache
def trained(n_trees: int = 4, n_features: int = 3, **params):
    """A small Booster; a third of the values are zero, a tenth missing, and labels depend on both."""
    rng = np.random.default_rng(11)
    x = rng.normal(size=(300, n_features))
    x[rng.random(x.shape) < 0.3] = 0.0
    x[rng.random(x.shape) < 0.1] = np.nan
    hidden = np.nan_to_num(x, nan=1.5)
    y = hidden[:, 0] + np.abs(hidden[:, 1]) + 0.1 * rng.normal(size=len(x))
    classes = params.get("num_class", 2)
    group = None
    objective = params.get("objective", "regression")
    if objective in ("binary", "multiclass", "multiclassova", "lambdarank"):
        y = np.digitize(y, np.quantile(y, np.arange(1, classes) / classes))
    elif objective != "regression":
        y = np.clip((y - y.min()) / (y.max() - y.min()), 0.01, 1.0)
    if objective == "lambdarank":
        group = [10] * 30
    return lgb.train({**SMALL, **params}, lgb.Dataset(x, y, group=group), n_trees)


def model_text(**params) -> str:
    return trained(**params).model_to_string()


def edited(text: str, **fields: str) -> str:
    """``text`` with the lines of these fields replaced in every tree, and no tree_sizes."""
    text = re.sub(r"^tree_sizes=.*\n", "", text, flags=re.M)
    for name, value in fields.items():
        text, n = re.subn(rf"^{name}=.*$", f"{name}={value}", text, flags=re.M)
        assert n > 0, f"no field {name} to edit"
    return text


# -- exactly as LightGBM ------------------------------------------------------------------


@pytest.mark.parametrize("missing", [0, 1, 2], ids=["none", "zero", "nan"])
@pytest.mark.parametrize("default_left", [0, 1], ids=["default right", "default left"])
@pytest.mark.parametrize(
    "thresholds",
    [
        *([0.0, -0.0], [1.0, -1.0], [ZERO, -ZERO], [ZERO / 2, -ZERO / 2], [5e-324, -5e-324], [1e-40, -1e-40]),
        *([np.nextafter(ZERO, 1), np.nextafter(-ZERO, -1)], [np.nextafter(ZERO, 0), np.nextafter(-ZERO, 0)]),
        *([1e300, -1e300], [np.inf, -np.inf], [3.4e38, -3.5e38], [0.1, 16777217.0]),
    ],
    ids=str,
)
def test_every_missing_type_and_default(missing: int, default_left: int, thresholds: list[float]) -> None:
    decision = missing * 4 + default_left * 2
    text = edited(
        model_text(n_trees=1, num_leaves=3, n_features=2),
        split_feature="0 1",
        threshold=" ".join(repr(float(t)) for t in thresholds),
        decision_type=f"{decision} {decision}",
    )
    forest = reader.read(text.encode(), "model")
    assert_as_lightgbm(forest, lgb.Booster(model_str=text), rows_about(forest))


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"zero_as_missing": True},
        {"use_missing": False},
        {"objective": "lambdarank"},
        {"objective": "binary"},
        {"objective": "multiclass", "num_class": 3},
        {"boosting": "dart", "drop_rate": 0.5},
        {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.7},
        {"extra_trees": True, "num_leaves": 40, "min_data_in_leaf": 1},
        {"num_leaves": 100, "min_data_in_leaf": 1, "boost_from_average": False},
    ],
    ids=str,
)
def test_trained_models(params: dict) -> None:
    booster = trained(n_trees=12, **params)
    forest = read_model(booster)
    assert forest.n_trees == booster.num_trees()
    assert_as_lightgbm(forest, booster, rows_about(forest))


def test_integers_are_cast_as_lightgbm_casts_them() -> None:
    text = edited(
        model_text(n_trees=1, num_leaves=2, n_features=2),
        split_feature="0",
        threshold="16777216.5",
        decision_type="2",
    )
    forest = reader.read(text.encode(), "model")
    x = np.array([[16777215, 0], [16777216, 0], [16777217, 0], [16777218, 0]])
    expected = lgb.Booster(model_str=text).predict(x, pred_leaf=True)
    leaves, _, _ = evaluate(forest, x.astype(forest.integer_dtype))
    np.testing.assert_array_equal(leaves, expected)
    assert (leaves != evaluate(forest, x.astype(np.float64))[0]).any(), "the rows do not tell the casts apart"


def categorical_booster(**params):
    rng = np.random.default_rng(2)
    codes = rng.integers(0, 70, size=(600, 2)).astype(float)
    codes[rng.random(codes.shape) < 0.1] = np.nan
    y = np.sin(np.nan_to_num(codes[:, 0], nan=99.0) * 7) + (codes[:, 1] % 3 == 1)
    x = np.column_stack([codes, rng.normal(size=len(codes))])
    settings = {**SMALL, "num_leaves": 15, "min_data_per_group": 1, "cat_smooth": 1, "cat_l2": 1, **params}
    return lgb.train(settings, lgb.Dataset(x, y, categorical_feature=[0, 1]), 10)


@pytest.mark.parametrize("params", [{}, {"use_missing": False}, {"max_cat_to_onehot": 100}], ids=str)
def test_categorical_models(params: dict) -> None:
    booster = categorical_booster(**params)
    forest = read_model(booster)
    assert forest.has_categories
    codes = [
        *range(-3, 130),
        -0.5,
        -0.999,
        -1.0,
        -1.5,
        0.5,
        3.7,
        31.9,
        32.0,
        63.999,
        64.0,
        1e9,
        2.0**31,
        1e300,
    ]
    codes += [2.0**31 - 1, 2.0**32 + 1, -(2.0**31), 2.0**63, np.nan, np.inf, -np.inf, -0.0, 1e-40]
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.permutation(np.repeat(codes, 2)) for _ in range(3)])
    assert_as_lightgbm(forest, booster, x)


def test_category_sets_out_of_order_are_matched_to_their_nodes() -> None:
    text = edited(
        model_text(n_trees=1, num_leaves=3, n_features=2),
        **{"num_cat": "2", "split_feature": "0 1", "threshold": "1 0", "decision_type": "1 1"},
        is_linear="0\ncat_boundaries=0 1 3\ncat_threshold=5 2147483648 6",
    )
    forest = reader.read(text.encode(), "model")
    x = np.array([[a, b] for a in (0, 1, 2, 31, 33, 34, 40) for b in (0, 1, 2, 31, 33, 34)], float)
    assert_as_lightgbm(forest, lgb.Booster(model_str=text), x)
    assert forest.category_offsets.tolist() == [0, 2, 3]


def test_a_tree_of_one_leaf() -> None:
    x = np.random.default_rng(0).normal(size=(50, 2))
    booster = lgb.train({**SMALL, "objective": "regression"}, lgb.Dataset(x, np.full(50, 3.25)), 2)
    forest = read_model(booster)
    assert forest.n_leaves == 1
    assert_as_lightgbm(forest, booster, x)


def test_a_model_without_trees() -> None:
    text = model_text(n_trees=2)
    start, end = text.index("Tree=0"), text.index("end of trees")
    text = re.sub(r"^tree_sizes=.*$", "tree_sizes=", text[:start] + text[end:], flags=re.M)
    forest = reader.read(text.encode(), "model")
    assert (forest.n_trees, forest.n_features) == (0, 3)


@pytest.mark.parametrize(
    ("params", "link", "scale"),
    [
        ({"objective": "regression"}, "identity", 1.0),
        ({"objective": "regression", "reg_sqrt": True}, "sqrt_signed", 1.0),
        ({"objective": "regression_l1"}, "identity", 1.0),
        ({"objective": "huber", "reg_sqrt": True}, "identity", 1.0),
        ({"objective": "lambdarank"}, "identity", 1.0),
        ({"objective": "binary", "sigmoid": 0.125}, "sigmoid", 0.125),
        ({"objective": "cross_entropy"}, "sigmoid", 1.0),
        ({"objective": "cross_entropy_lambda"}, "log1p_exp", 1.0),
        ({"objective": "multiclass", "num_class": 3}, "softmax", 1.0),
        ({"objective": "multiclassova", "num_class": 3, "sigmoid": 1.7}, "ova_sigmoid", 1.7),
        ({"objective": "poisson"}, "exp", 1.0),
        ({"objective": "gamma"}, "exp", 1.0),
        ({"objective": "tweedie"}, "exp", 1.0),
    ],
    ids=str,
)
def test_links(params: dict, link: str, scale: float) -> None:
    booster = trained(**params)
    forest = read_model(booster)
    assert (forest.link, forest.link_scale) == (link, scale)
    x = np.random.default_rng(1).normal(size=(50, 3))
    value = apply_link(link, scale, evaluate(forest, x)[2])
    expected = booster.predict(x).reshape(value.shape)
    np.testing.assert_array_equal(value, expected)


def test_random_forests_average() -> None:
    booster = trained(boosting="rf", bagging_freq=1, bagging_fraction=0.7, n_trees=7)
    forest = read_model(booster)
    x = np.random.default_rng(1).normal(size=(50, 3))
    assert forest.average
    raw = evaluate(forest, x)[2]
    np.testing.assert_array_equal(raw[:, 0], booster.predict(x, raw_score=True))
    np.testing.assert_array_equal(to_values(forest, raw)[:, 0], booster.predict(x))


def test_custom_objectives_are_raw_scores() -> None:
    x = np.random.default_rng(0).normal(size=(100, 3))
    params = {**SMALL, "objective": lambda score, data: (score - data.get_label(), np.ones(len(score)))}
    booster = lgb.train(params, lgb.Dataset(x, x[:, 0]), 3)
    forest = read_model(booster)
    assert forest.link == "identity"
    np.testing.assert_array_equal(evaluate(forest, x)[2][:, 0], booster.predict(x))


def test_a_booster_with_a_best_iteration_stops_there() -> None:
    booster = lgb.Booster(model_str=model_text(n_trees=8))
    booster.best_iteration = 3
    forest = read_model(booster)
    assert (forest.n_trees, booster.num_trees()) == (3, 8)
    assert_as_lightgbm(forest, booster, rows_about(forest))


def test_scikit_learn_wrappers_are_read_through_their_booster() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3))
    wrapper = lgb.LGBMRegressor(n_estimators=5, num_leaves=5, verbose=-1, n_jobs=1).fit(x, x[:, 0])
    np.testing.assert_array_equal(evaluate(read_model(wrapper), x)[2][:, 0], wrapper.predict(x))


def test_names_and_descriptions() -> None:
    x = np.random.default_rng(0).normal(size=(100, 2))
    data = lgb.Dataset(x, x[:, 0], feature_name=["größe", "price"])
    forest = read_model(lgb.train({**SMALL, "objective": "regression"}, data, 1))
    assert forest.feature_names == ("größe", "price")
    assert (forest.source, forest.objective) == ("LightGBM 4", "regression")
    forest = read_model(trained())
    assert forest.feature_names == tuple(f"Column_{i}" for i in range(forest.n_features))
    assert not forest.schema.has_names, "names that LightGBM made up are not names"


# -- the text, in its variations ----------------------------------------------------------


def test_the_same_forest_from_every_spelling() -> None:
    text = model_text()
    plain = reader.read(text.encode(), "model")
    old = text.replace("version=v4", "version=v2")
    old_end = old[: old.index("end of trees")] + "\nfeature importances:\nColumn_0=3\n"
    spellings = {
        "CRLF": text.replace("\n", "\r\n"),
        "no tree_sizes": edited(text),
        "before 2.2": old_end,
        "unknown keys": edited(text, num_cat="0\nfuture_key=1 2 3").replace("tree\n", "tree\nnew=1\nalone\n"),
        "runs of spaces": re.sub(r"(?<=\d) (?=[-\d])", "   ", edited(text)),
        "no final line": old[: old.index("end of trees") + len("end of trees")],
        "of the command": text[: text.index("pandas_categorical")],
        "of old files saved anew": text[: text.index("parameters:")] + text[text.index("pandas_categorical") :],
    }
    for name, spelling in spellings.items():
        forest = reader.read(spelling.encode(), name)
        for array in ("feature", "threshold", "left", "right", "routing", "leaf_value"):
            np.testing.assert_array_equal(getattr(forest, array), getattr(plain, array), err_msg=name)
    assert reader.read(memoryview(text.encode()), "model").n_trees == plain.n_trees


def test_numbers_are_read_as_they_were_written() -> None:
    written = [
        "0.10000000000000001",
        "4.9406564584124654e-324",
        "2.2250738585072011e-308",
        "-1.7976931348623157e+308",
    ]
    text = edited(model_text(n_trees=1, num_leaves=4), leaf_value=" ".join(written))
    forest = reader.read(text.encode(), "model")
    assert forest.leaf_value[:, 0].tolist() == [float(w) for w in written]


# -- damaged and hostile files ------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def traced() -> Iterator[None]:
    """Once for all tests: CPython before 3.12.9 may crash if another thread allocates while tracing stops."""
    tracemalloc.start()
    yield
    tracemalloc.stop()


def refused(text: str | bytes, problem: str, **place) -> None:
    """Reading must fail at ``place`` with ``problem``, using little memory."""
    data = text.encode() if isinstance(text, str) else text
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    with pytest.raises(ModelFormatError, match=problem) as caught:
        reader.read(data, "bad.txt")
    peak = tracemalloc.get_traced_memory()[1] - before
    assert caught.value.source == "bad.txt"
    assert {name: getattr(caught.value, name) for name in place} == place
    assert peak < 1_000_000 + 10 * len(data)


STUMPS = {"n_trees": 3, "num_leaves": 3, "n_features": 2}


@pytest.mark.parametrize(
    ("fields", "problem", "where"),
    [
        ({"num_leaves": "2000000000"}, "holds 3 values, not 2000000000", "leaf_value"),
        ({"num_leaves": "99999999999999999999999"}, "not an integer", "num_leaves"),
        ({"num_leaves": "0"}, "not an integer", "num_leaves"),
        ({"num_leaves": "-3"}, "not an integer", "num_leaves"),
        ({"num_leaves": "3.0"}, "not an integer", "num_leaves"),
        ({"num_leaves": ""}, "not an integer", "num_leaves"),
        ({"num_cat": "2000000000"}, "not an integer", "num_cat"),
        ({"num_cat": "1"}, "is missing", "cat_boundaries"),
        ({"num_cat": "1\ncat_boundaries=0 1\ncat_threshold=1"}, "category sets once", "threshold"),
        ({"num_cat": "1\ncat_boundaries=0 2000000000\ncat_threshold=1"}, "holds 1 values", "cat_threshold"),
        ({"num_cat": "1\ncat_boundaries=0 -1\ncat_threshold=1"}, "does not rise", "cat_boundaries"),
        ({"num_cat": "1\ncat_boundaries=0 1\ncat_threshold=4294967296"}, "outside uint32", "cat_threshold"),
        ({"decision_type": "1 2"}, "category sets once", "threshold"),
        ({"decision_type": "12 2"}, "not in", "decision_type"),
        ({"decision_type": "-1 2"}, "not in", "decision_type"),
        ({"decision_type": "2"}, "holds 1 values, not 2", "decision_type"),
        ({"threshold": "nan 1"}, "NaN", "threshold"),
        ({"threshold": "1 2 3"}, "holds 3 values, not 2", "threshold"),
        ({"threshold": "1 x"}, "not a number", "threshold"),
        ({"threshold": "x 1"}, "not a number", "threshold"),
        ({"threshold": "1 2x"}, "not a number", "threshold"),
        ({"threshold": "1-2 3"}, "not a number", "threshold"),
        ({"threshold": "1-2  "}, "holds 1 values", "threshold"),
        ({"threshold": "0x10 1"}, "not a number", "threshold"),
        ({"threshold": "1_0 1"}, "not a number", "threshold"),
        ({"threshold": "1,5 1"}, "not a number", "threshold"),
        ({"threshold": ""}, "holds 0 values", "threshold"),
        ({"leaf_value": "1 2 inf"}, "not finite", "leaf_value"),
        ({"leaf_value": "1 nan 3"}, "not finite", "leaf_value"),
        ({"leaf_value": "1 2"}, "holds 2 values, not 3", "leaf_value"),
        ({"split_feature": "0 2"}, "feature is not in", "feature"),
        ({"split_feature": "0 -1"}, "feature is not in", "feature"),
        ({"split_feature": "0 0.5"}, "not a number", "split_feature"),
        ({"split_feature": "0 4294967296"}, "outside int32", "split_feature"),
        ({"split_feature": "0 -99999999999999999999"}, "outside int32", "split_feature"),
        ({"left_child": "99 -1"}, "outside its tree", "left"),
        ({"right_child": "-99 -1"}, "outside its tree", "right"),
        ({"left_child": "0 -1"}, "outside its tree", "left"),
        ({"left_child": "-1 1", "right_child": "-2 -3"}, "form a cycle", "left/right"),
        ({"left_child": "-1 -1", "right_child": "1 -3"}, "no parent or several", "left/right"),
        ({"right_child": "9223372036854775808 1"}, "outside int32", "right_child"),
    ],
    ids=lambda value: str(value)[:60] if isinstance(value, dict) else "",
)
def test_damaged_trees_are_refused(fields: dict[str, str], problem: str, where: str) -> None:
    refused(edited(model_text(**STUMPS), **fields), problem, tree=0, field=where)


def test_the_damaged_tree_is_named() -> None:
    text = edited(model_text(**STUMPS))
    last = text.index("Tree=2")
    refused(text[:last] + edited(text[last:], threshold="1 nan"), "node 1: threshold is NaN", tree=2)
    refused(text[:last] + edited(text[last:], leaf_value="1 2"), "holds 2 values", tree=2, field="leaf_value")
    refused(text[:last] + edited(text[last:], decision_type="2 99"), "node 1", tree=2, field="decision_type")


@pytest.mark.parametrize(
    ("line", "replacement", "problem", "where"),
    [
        ("max_feature_idx=.*", "max_feature_idx=2147483647", "not an integer", "max_feature_idx"),
        ("max_feature_idx=.*", "max_feature_idx=2000000000", "2 names for 2000000001", "feature_names"),
        ("max_feature_idx=.*", "x=1", "is missing", "max_feature_idx"),
        ("num_class=.*", "num_class=0", "not an integer", "num_class"),
        ("num_class=.*", "no=1", "is missing", "num_class"),
        (
            "num_tree_per_iteration=.*",
            "num_tree_per_iteration=2",
            "not whole iterations",
            "num_tree_per_iteration",
        ),
        (
            "num_tree_per_iteration=.*",
            "num_tree_per_iteration=2000000000",
            "not an integer",
            "num_tree_per_iteration",
        ),
        ("objective=.*", "objective=binary", "sigmoid: is missing", "objective"),
        ("objective=.*", "objective=binary sigmoid:-1", "not a positive number", "objective"),
        ("objective=.*", "objective=binary sigmoid:x", "not a positive number", "objective"),
        ("objective=.*", "objective=binary sigmoid:nan", "not a positive number", "objective"),
        ("objective=.*", "objective=binary sigmoid:1_0", "not a positive number", "objective"),
        ("feature_names=.*", "feature_names=a b c d", "4 names for 2 features", "feature_names"),
        ("tree_sizes=.*", "tree_sizes=1 2", "lists 2 trees but the file holds 3", "tree_sizes"),
        ("tree_sizes=.*", "tree_sizes=", "lists 0 trees", "tree_sizes"),
        ("tree_sizes=.*", "tree_sizes=1 x 3", "not a number", "tree_sizes"),
        ("tree_sizes=.*", "tree_sizes=1 2 3", "bytes, not 1", "tree_sizes"),
        ("Tree=1", "Tree=7", "out of order", "Tree"),
    ],
)
def test_damaged_headers_are_refused(line: str, replacement: str, problem: str, where: str) -> None:
    text, n = re.subn(rf"^{line}$", replacement, model_text(**STUMPS), flags=re.M)
    assert n == 1
    refused(text, problem, field=where)


def test_a_huge_feature_count_costs_nothing() -> None:
    text = edited(model_text(**STUMPS), max_feature_idx="2000000000")
    text = re.sub(r"^feature_names=.*\n", "", text, flags=re.M)
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    forest = reader.read(text.encode(), "model")
    peak = tracemalloc.get_traced_memory()[1] - before
    assert forest.n_features == 2_000_000_001
    assert peak < 1_000_000


def test_long_lines_and_many_lines_cost_no_more_than_the_file() -> None:
    text = model_text(**STUMPS)
    for name in ("threshold", "split_feature", "leaf_value", "num_leaves"):
        refused(edited(text, **{name: "1 " * 200_000}), "holds 200000 values|not an integer", field=name)
    for line in ("tree_sizes", "feature_names"):
        long = re.sub(rf"^{line}=.*$", f"{line}=" + "7  " * 200_000, text, flags=re.M)
        refused(long, "200000 trees|200000 names", field=line)
    refused(text.replace("\nTree=0", "\nx" * 200_000 + "\nTree=0"), "more than 1000 lines")
    refused(edited(text, num_cat="0" + "\nx" * 200_000), "more than 22 lines", tree=0)


def test_what_lightgbm_would_read_otherwise_is_refused() -> None:
    text = edited(model_text(**STUMPS))
    refused(text.replace("max_feature_idx", "\0ax_feature_idx"), "is NUL")
    refused(text + "\0", f"byte {len(text)} of the text is NUL")
    refused(edited(text, num_cat="0\nend of trees\n"), "holds fields after the line 'end of trees'")
    refused(edited(text, num_cat="0\nalone"), "line 'alone' has no '='", tree=0)
    refused(edited(text, num_cat="0\n"), "holds a blank line, where LightGBM stops reading", tree=0)
    refused(edited(text, shrinkage="1\n\nfuture_key=1"), "holds a blank line", tree=0)
    refused(re.sub("\n\n+Tree=", "\nTree=", text), "ends without a blank line", tree=0)
    refused(edited(text, num_cat="0" + "".join(f"\nkey{n}=1" for n in range(9))), "more than 22 lines", tree=0)
    refused(edited(text, num_cat="0\nis_linear=0\nis_linear=0"), "a field appears twice", tree=0)


def test_every_truncation_is_refused() -> None:
    data = model_text(**STUMPS).encode()
    end = data.index(b"end of parameters")
    last = data.index(b"pandas_categorical:")
    assert reader.read(data[:last], "whole").n_trees == 3
    for length in (*range(len(b"tree\n"), end, 13), last + 8, last + len(b"pandas_categorical:")):
        refused(data[:length], "cut short")


def test_cutting_out_a_part_is_refused() -> None:
    text = model_text(**STUMPS)
    middle = text[: text.index("Tree=1")] + text[text.index("Tree=2") :]
    refused(middle, "out of order", tree=1, field="Tree")
    refused(edited(middle), "out of order", tree=1, field="Tree")
    tail = text[: text.index("Tree=2")] + text[text.index("end of trees") :]
    refused(tail, "lists 3 trees but the file holds 2", field="tree_sizes")
    half = text.index("right_child", text.index("Tree=1"))
    refused(text[:half] + text[text.index("Tree=2") :], "ends without a blank line", tree=1)


def test_sharing_a_category_set_is_refused() -> None:
    shared = {"threshold": "0 0", "decision_type": "1 1", "num_cat": "1\ncat_boundaries=0 1\ncat_threshold=1"}
    refused(edited(model_text(**STUMPS), **shared), "category sets once", tree=0)


def test_random_damage_never_gets_past_as_anything_but_an_error_or_a_forest() -> None:
    rng = np.random.default_rng(8)
    data = np.frombuffer(edited(model_text(**STUMPS)).encode(), np.uint8)
    outcomes = set()
    for _ in range(300):
        damaged = data.copy()
        where = rng.integers(0, data.tobytes().index(b"end of trees"), size=2)
        damaged[where] = rng.choice(np.frombuffer(b"0123456789-+.e =\nx\x00\xff", np.uint8), size=2)
        try:
            outcomes.add(type(reader.read(damaged.tobytes(), "damaged")))
        except (ModelFormatError, UnsupportedModelError) as error:
            assert "damaged" in str(error)
            outcomes.add(type(error))
    assert {Forest, ModelFormatError} <= outcomes


def test_unknown_objectives_are_refused_by_name() -> None:
    text = edited(model_text(), objective="astrology house:7")
    with pytest.raises(UnsupportedModelError, match=r"model\.txt: objective 'astrology' is not known"):
        reader.read(text.encode(), "model.txt")


def test_a_model_older_than_lightgbm_itself_reads() -> None:
    path = real_data("model_formats", "LightGBM.model.txt")
    with pytest.raises(lgb.basic.LightGBMError, match="num_cat"):
        lgb.Booster(model_file=str(path))
    with pytest.raises(ModelFormatError, match=r"before 2\.0\.5.*train again") as caught:
        read_model(path)
    assert (caught.value.source, caught.value.tree, caught.value.field) == (str(path), 0, "num_cat")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('[["a", "b"], [3, 4.5, true]]', (("a", "b"), (3, 4.5, True))),
        ('[["a"], []]', (("a",), ())),
        ("[]", ()),
        ("null", ()),
    ],
)
def test_categories_of_a_frame_have_no_places(line: str, expected: tuple) -> None:
    """Whatever feature_infos says: "[0:1]" may be an ordered category, "none" a constant number or category."""
    text = "tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\nmax_feature_idx=2\nobjective=regression\n"
    text += "feature_infos=[0:1] 0:1 -1:2:0\n\nTree=0\nnum_leaves=1\nnum_cat=0\nleaf_value=1\n\nend of trees\n\n"
    forest = reader.read(f"{text}pandas_categorical:{line}\n".encode(), "file")
    assert repr(forest.schema.in_order) == repr(expected)
    assert (forest.schema.categories, forest.schema.library) == ((), "LightGBM")


def test_more_categories_than_features() -> None:
    text = "tree\nnum_class=1\nmax_feature_idx=0\n\nTree=0\nnum_leaves=1\nnum_cat=0\nleaf_value=1\n\nend of trees\n\n"
    with pytest.raises(ModelFormatError, match="2 lists of categories for 1 features"):
        reader.read(f"{text}pandas_categorical:[[1], [2]]\n".encode(), "file")


@pytest.mark.parametrize("line", ["[[1], 2]", '[["a"', "{}x", "[[null]]", "[[[1]]]", "[" * 100_000])
def test_damaged_categories_of_a_frame(line: str) -> None:
    text = "tree\nnum_class=1\nmax_feature_idx=0\n\nTree=0\nnum_leaves=1\nnum_cat=0\nleaf_value=1\n\nend of trees\n\n"
    with pytest.raises(ModelFormatError) as caught:
        reader.read(f"{text}pandas_categorical:{line}\n".encode(), "file")
    assert caught.value.field == "pandas_categorical"


def test_names_end_at_spaces_alone() -> None:
    text = edited(model_text()).replace("feature_names=Column_0 ", "feature_names=a\tb  ")
    assert reader.read(text.encode(), "model").schema.names == ("a\tb", "Column_1", "Column_2")


def test_models_of_cross_validation_are_passed_one_by_one() -> None:
    lgb = pytest.importorskip("lightgbm")
    rows, y = np.arange(200.0).reshape(100, 2), np.arange(100.0)
    options = {"nfold": 2, "stratified": False, "return_cvbooster": True}
    cv = lgb.cv({"verbosity": -1}, lgb.Dataset(rows, y), 2, **options)["cvbooster"]
    with pytest.raises(UnsupportedModelError, match="holds a model for each fold; pass one of its boosters"):
        gpuqs.from_model(cv)
    one = cv.boosters[0]
    np.testing.assert_array_equal(gpuqs.from_model(one).predict(rows), one.predict(rows))
