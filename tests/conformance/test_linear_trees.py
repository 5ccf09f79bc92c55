"""LightGBM's trees with linear models in their leaves (``linear_tree=True``), bit for bit."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from agreement import COMPILED, assert_same_bits
from click.testing import CliRunner
from forests import probing_documents, random_forest

import gpuqs
from gpuqs.cli.commands import cli
from gpuqs.engines import ENGINES
from gpuqs.errors import ModelFormatError, UnsupportedModelError
from gpuqs.forest import ZERO_THRESHOLD, Forest
from gpuqs.model import Model
from gpuqs.sklearn import wrap
from gpuqs.verify import verify

lightgbm = pytest.importorskip("lightgbm")


class Trained(NamedTuple):
    booster: Any
    model: gpuqs.Model
    X: np.ndarray


RECIPES: dict[str, tuple[str, dict[str, Any]]] = {
    "regression": ("value", {}),
    "some leaves": ("value", {"num_leaves": 5, "linear_lambda": 0.1}),
    "large trees": ("value", {"num_leaves": 150, "min_data_in_leaf": 3}),
    "one leaf": ("value", {"min_data_in_leaf": 10**6}),
    "binary": ("binary", {"objective": "binary"}),
    "classes": ("class", {"objective": "multiclass", "num_class": 3}),
    "poisson": ("count", {"objective": "poisson"}),
    "dart": ("value", {"boosting": "dart", "drop_rate": 0.4}),
    "random forest": ("value", {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.7}),
    "no missing": ("value", {"use_missing": False}),
    "lambdarank": ("class", {"objective": "lambdarank"}),
}


@cache
def trained(name: str) -> Trained:
    label, params = RECIPES[name]
    rng = np.random.default_rng(8)
    X = rng.normal(size=(1500, 9))
    X[:, 2] = rng.integers(0, 15, 1500)
    X[rng.random(X.shape) < 0.04] = np.nan
    clean = np.nan_to_num(X)
    score = clean[:, 0] * 2 - clean[:, 1] + (clean[:, 2] % 4) + clean[:, 3] ** 2
    target = {
        "value": score,
        "binary": score > 1,
        "class": np.digitize(score, [0, 2]),
        "count": np.abs(np.rint(score)),
    }[label]
    quiet = {"verbosity": -1, "num_threads": 1, "seed": 3, "num_leaves": 20, "learning_rate": 0.2}
    data = lightgbm.Dataset(X, target.astype(float), categorical_feature=[2], free_raw_data=False)
    if name == "lambdarank":
        data.set_group([15] * 100)
    booster = lightgbm.train({**quiet, "linear_tree": True, **params}, data, 12)
    return Trained(booster, gpuqs.from_model(booster), X)


def documents(name: str) -> list[np.ndarray]:
    X = trained(name).X
    rng = np.random.default_rng(1)
    odd = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-310, 1e300, 3.0], (60, 9))
    return [X, X.astype(np.float32), np.asfortranarray(X), X[::3, :], odd, X[:1], rng.integers(-3, 9, (30, 9)), X[:0]]


@pytest.mark.parametrize("name", RECIPES)
def test_scores(name: str) -> None:
    booster, model, _ = trained(name)
    assert model.forest.has_linear_leaves
    for X in documents(name):
        for asked in ({"raw_score": True}, {}, {"pred_leaf": True}, {"raw_score": True, "num_iteration": 4}):
            if len(X):
                expected = booster.predict(X, **asked)
                got = model.predict(X, **asked)
                np.testing.assert_array_equal(got, expected.reshape(got.shape))
            else:
                assert len(model.predict(X, **asked)) == 0


@pytest.mark.parametrize("name", ["regression", "classes", "large trees"])
@pytest.mark.parametrize("engine", COMPILED)
def test_engines(isa: str, name: str, engine: str) -> None:
    booster, model, X = trained(name)
    if model.engines()[engine] is None:
        for n_threads in (1, 3):
            got = model.predict(X, "raw", engine=engine, n_threads=n_threads)
            assert_same_bits(got, booster.predict(X, raw_score=True))


def by_definition(forest: Forest, X: np.ndarray, leaves: np.ndarray) -> np.ndarray:
    """Each tree's output: the constant plus the terms in order, or the leaf's value if a term's feature is missing."""
    out = np.empty(leaves.shape)
    for place, position in np.ndenumerate(leaves):
        row, tree = place
        leaf = int(forest.leaf_offsets[tree]) + int(position)
        terms = range(*forest.linear_offsets[leaf : leaf + 2].tolist())
        values = [float(X[row, forest.linear_feature[term]]) for term in terms if forest.linear_feature[term] >= 0]
        out[place] = forest.leaf_value[leaf, 0]
        if terms and not np.isnan(values).any():
            out[place] = forest.linear_coefficient[terms[0]]
            for term, value in zip(terms[1:], values, strict=True):
                out[place] += forest.linear_coefficient[term] * value
    return out


@pytest.mark.parametrize("name", ["regression", "classes", "one leaf"])
def test_outputs_of_trees(name: str) -> None:
    _, model, X = trained(name)
    X = X[:200]
    expected = by_definition(model.forest, X, model.predict(X, "leaf"))
    assert_same_bits(model.predict(X, "per_tree"), expected)
    assert_same_bits(model.predict(X, "per_tree", trees=slice(3, 7)), expected[:, 3:7])
    numbered = replace(model.forest, leaf_id=model.forest.leaf_id * 2 + 1)  # as other libraries number leaves
    assert_same_bits(gpuqs.from_model(numbered).predict(X, "per_tree"), expected)
    assert_same_bits(gpuqs.from_model(numbered).predict(X, "raw"), model.predict(X, "raw"))


def test_ways_in(tmp_path: Path) -> None:
    booster, model, X = trained("regression")
    expected = booster.predict(X)
    sparse = pytest.importorskip("scipy.sparse")
    for matrix in (sparse.csr_matrix(np.nan_to_num(X)), sparse.csc_matrix(np.nan_to_num(X))):
        np.testing.assert_array_equal(model.predict(matrix), booster.predict(matrix))
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=booster.feature_name())
    np.testing.assert_array_equal(model.predict(frame[frame.columns[::-1]]), expected)
    model.save(tmp_path / "model.gpuqs", ready=True)
    booster.save_model(tmp_path / "model.txt")
    np.testing.assert_array_equal(gpuqs.load(tmp_path / "model.gpuqs").predict(X), expected)
    np.testing.assert_array_equal(gpuqs.load(tmp_path / "model.gpuqs", mmap=True).predict(X), expected)
    np.testing.assert_array_equal(gpuqs.load(tmp_path / "model.txt").predict(X), expected)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), expected)
    out = np.empty(len(X))
    np.testing.assert_array_equal(model.predict(X, out=out), expected)
    model.warm_up(50).tune(X, 0.2)
    np.testing.assert_array_equal(model.predict(X), expected)
    np.testing.assert_array_equal(wrap(booster).predict(X), expected)
    assert verify(tmp_path / "model.txt", X, rows=300).ok
    np.save(tmp_path / "rows.npy", X)
    command = ["score", str(tmp_path / "model.txt"), str(tmp_path / "rows.npy"), "-o", str(tmp_path / "out.npy")]
    scored = CliRunner().invoke(cli, command)
    assert scored.exit_code == 0, scored.output
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected)


@pytest.mark.parametrize("max_leaves", [1, 12, 70, 300])
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_every_engine_adds_what_reference_does(isa: str, n_outputs: int, max_leaves: int) -> None:
    rng = np.random.default_rng(max_leaves)
    forest = random_forest(rng, n_trees=42, max_leaves=max_leaves, n_outputs=n_outputs, n_features=6, linear=0.6)
    model = Model(forest)
    engines = [name for name, reason in model.engines().items() if reason is None and ENGINES[name].device == "cpu"]
    assert len(engines) > 2
    for n, dtype in product((1, 7, 70, 600), (np.float64, np.float32)):
        X = probing_documents(rng, forest, n, dtype)
        X[np.abs(X) <= ZERO_THRESHOLD] = 0  # generated thresholds may lie among such tiny numbers, LightGBM's do not
        X[:, 0] = rng.normal(size=n)
        margin = rng.normal(size=(n, n_outputs))
        for options in ({}, {"trees": slice(3, 30)}, {"base_margin": margin}):
            with np.errstate(all="ignore"):
                want = model.predict(X, "raw", engine="reference", **options)
            for engine in (*engines, "auto"):
                got = model.predict(X, "raw", engine=engine, n_threads=1 + n % 2, **options)
                same = (got.view("u8") == want.view("u8")) | (np.isnan(got) & np.isnan(want))
                assert same.all(), (engine, n, options.keys())


def test_sparse_documents_hold_what_models_take() -> None:
    """Features of linear models are read even if no tree tests them."""
    _, model, X = trained("regression")
    forest = model.forest
    untested = sorted(set(range(9)) - set(np.unique(forest.feature).tolist()))
    feature = forest.linear_feature.copy()
    feature[feature == 0] = untested[0] if untested else 8
    changed = replace(forest, linear_feature=feature)
    sparse = pytest.importorskip("scipy.sparse")
    dense = np.nan_to_num(X[:100])
    np.testing.assert_array_equal(
        gpuqs.from_model(changed).predict(sparse.csr_matrix(dense)), gpuqs.from_model(changed).predict(dense)
    )


def test_what_is_refused() -> None:
    _, model, X = trained("regression")
    with pytest.raises(ValueError, match="use precision='exact'"):
        model.predict(X, precision="fast")
    with pytest.raises(UnsupportedModelError, match="lack the values that the leaves' linear models need"):
        model.encode(X)
    for name in ("qs_gpu", "bitslice_gpu", "walk_gpu"):
        assert "linear models" in (model.engines()[name] or "")


@pytest.mark.parametrize("coefficient", ["1e34", "nan", "inf", "-nan"])
def test_numbers_next_to_zero_and_odd_coefficients(coefficient: str) -> None:
    """LightGBM treats numbers up to 1e-35 as 0, except in CSR matrices and Arrow tables."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    quiet = {"verbosity": -1, "num_threads": 1, "num_leaves": 3, "linear_tree": True}
    text = lightgbm.train(quiet, lightgbm.Dataset(X, X[:, 0] * 2), 2).model_to_string()
    text = re.sub(r"tree_sizes=.*\n", "", text)
    text = re.sub(r"leaf_coeff=(.*)", lambda line: "leaf_coeff=" + re.sub(r"\S+", coefficient, line[1]), text)
    booster = lightgbm.Booster(model_str=text)
    model = gpuqs.from_model(text.encode())
    limit = np.float32(1e-35)
    near = [0.0, -0.0, 1e-35, -1e-35, float(limit), float(np.nextafter(limit, 1)), 1e-40, 5e-324]
    rows = np.array([[a, b] for a in [*near, 2e-35, 1.0] for b in [*near, -1.0]])
    sparse, pa = pytest.importorskip("scipy.sparse"), pytest.importorskip("pyarrow")
    pd = pytest.importorskip("pandas")
    stored = rows[(np.abs(rows) != float(limit)).all(axis=1)]  # gpuqs refuses its negative in sparse matrices
    for form in (
        rows, rows.astype(np.float32), np.asfortranarray(rows), pd.DataFrame(rows, columns=booster.feature_name()),
        sparse.csr_matrix(stored), sparse.csc_matrix(stored),
        pa.table({name: rows[:, at] for at, name in enumerate(booster.feature_name())}),
    ):  # fmt: skip
        theirs = booster.predict(form, raw_score=True)
        np.testing.assert_array_equal(model.predict(form, "raw"), theirs)
        np.testing.assert_array_equal(model.predict(form, "leaf"), booster.predict(form, pred_leaf=True))


def test_models_that_met_infinities() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 3))
    target = X[:, 0] * 3 + X[:, 1]
    X[7, 0] = np.inf
    quiet = {"verbosity": -1, "num_threads": 1, "num_leaves": 8, "linear_tree": True}
    booster = lightgbm.train(quiet, lightgbm.Dataset(X, target), 6)
    model = gpuqs.from_model(booster)
    assert np.isnan(model.forest.linear_coefficient).any()
    np.testing.assert_array_equal(model.predict(X), booster.predict(X))


@pytest.mark.parametrize("text", ["1", "0", "00", "01", "true", "", " 1", "-1", "0x1", "2"])
def test_which_trees_are_linear(text: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    quiet = {"verbosity": -1, "num_threads": 1, "num_leaves": 3, "linear_tree": True}
    model_text = lightgbm.train(quiet, lightgbm.Dataset(X, X[:, 0] * 2), 3).model_to_string()
    model_text = re.sub(r"tree_sizes=.*\n", "", model_text).replace("is_linear=1", f"is_linear={text}")
    expected = lightgbm.Booster(model_str=model_text).predict(X)
    np.testing.assert_array_equal(gpuqs.from_model(model_text.encode()).predict(X), expected)


EDITS = {
    "num_features": ("num_features=", "num_features=9 ", "'num_features': holds"),
    "negative": ("num_features=1", "num_features=-1", "'num_features': is negative"),
    "too many": ("num_features=1", "num_features=99999999", "'num_features': names more features"),
    "leaf_features": ("leaf_features=0", "leaf_features=9", r"tree 1, field 'leaf_features': feature is not in \[0, 3"),
    "a feature less": ("leaf_features=0 ", "leaf_features=", "'leaf_features': holds"),
    "a feature is a text": ("leaf_features=0", "leaf_features=x", "'leaf_features': holds something"),
    "a feature is negative": ("leaf_features=0", "leaf_features=-1", "'leaf_features': is outside"),
    "leaf_coeff": ("leaf_coeff=", "leaf_coeff=1 ", "'leaf_coeff': holds"),
    "leaf_const": ("leaf_const=", "leaf_const=1 ", "'leaf_const': holds"),
    "no constants": ("leaf_const=", "leaf_konst=", "'leaf_const': is missing"),
}


@pytest.mark.parametrize("name", EDITS)
def test_damaged_models_are_refused(name: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    quiet = {"verbosity": -1, "num_threads": 1, "num_leaves": 3, "linear_tree": True}
    booster = lightgbm.train(quiet, lightgbm.Dataset(X, X[:, 0] * 2), 2)
    before, after, message = EDITS[name]
    text = "\n".join(line for line in booster.model_to_string().split("\n") if not line.startswith("tree_sizes"))
    head, tree, rest = text.rpartition("Tree=1")
    assert before in rest, rest
    with pytest.raises(ModelFormatError, match=message):
        gpuqs.from_model((head + tree + rest.replace(before, after, 1)).encode())
