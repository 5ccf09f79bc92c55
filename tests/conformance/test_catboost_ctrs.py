"""CatBoost's category statistics (CTRs): live models, both file formats, all kinds of input, bit for bit."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from agreement import COMPILED
from click.testing import CliRunner

import gpuqs
from gpuqs.cli.commands import cli
from gpuqs.errors import InputError, UnsupportedModelError
from gpuqs.sklearn import wrap
from gpuqs.verify import verify

catboost = pytest.importorskip("catboost")
pd = pytest.importorskip("pandas")

CATEGORIES = ["city", "code", "flag", "kind"]


class Trained(NamedTuple):
    booster: Any
    frame: Any
    other: Any


def frames() -> tuple[Any, Any]:
    """Rows to train on, and others with categories unseen in training."""
    rng = np.random.default_rng(4)
    n = 1500
    frame = pd.DataFrame(
        {
            "city": rng.choice([f"Düsseldorf {number}" * (1 + number % 4) for number in range(60)], n),
            "size": rng.normal(size=n),
            "code": rng.integers(-20, 300, n),
            "flag": rng.random(n) < 0.3,
            "weight": rng.normal(size=n).astype(np.float32),
            "kind": pd.Categorical(rng.choice(list("abcdefghijk"), n)),
        }
    )
    frame.loc[rng.random(n) < 0.1, "size"] = np.nan
    other = frame.sample(500, random_state=1).reset_index(drop=True)
    other["kind"] = other["kind"].astype(str)
    other.loc[:60, "city"], other.loc[30:90, "code"], other.loc[80:120, "kind"] = "nowhere", 12_345, "new"
    return frame, other


RECIPES: dict[str, tuple[str, dict[str, Any]]] = {
    "defaults": ("Classifier", {}),
    "no one-hot": ("Classifier", {"one_hot_max_size": 0}),
    "one-hot of some": ("Classifier", {"one_hot_max_size": 20}),
    "simple alone": ("Regressor", {"max_ctr_complexity": 1}),
    "deep combinations": ("Regressor", {"max_ctr_complexity": 4, "depth": 7, "one_hot_max_size": 4}),
    "buckets": ("Regressor", {"simple_ctr": ["Buckets"], "combinations_ctr": ["Buckets", "Counter"]}),
    "means": ("Regressor", {f"{which}_ctr": ["BinarizedTargetMeanValue"] for which in ("simple", "combinations")}),
    "counters": ("Regressor", {"simple_ctr": ["Counter"], "counter_calc_method": "Full"}),
    "borders between labels": ("Regressor", {"simple_ctr": ["Borders:TargetBorderCount=4", "Counter"]}),
    "priors": ("Classifier", {"simple_ctr": ["Borders:Prior=0.3/1:Prior=2/1", "Counter:CtrBorderCount=7"]}),
    "classes": ("Classifier", {"loss_function": "MultiClass"}),
    "one against all": ("Classifier", {"loss_function": "MultiClassOneVsAll"}),
    "Depthwise": ("Regressor", {"grow_policy": "Depthwise"}),
    "Lossguide": ("Classifier", {"grow_policy": "Lossguide", "max_leaves": 20}),
    "nan Max": ("Regressor", {"nan_mode": "Max", "max_ctr_complexity": 3}),
    "Ordered": ("Classifier", {"boosting_type": "Ordered"}),
    "ranks": ("Ranker", {"loss_function": "YetiRank"}),
}
#: What CatBoost's JSON does not hold.
BINARY_ALONE: dict[str, tuple[str, dict[str, Any]]] = {
    "several targets": ("Regressor", {"loss_function": "MultiRMSE"}),
    "intervals": ("Regressor", {"loss_function": "SurvivalAft"}),
    "several borders between labels": (
        "Regressor",
        {"simple_ctr": ["Borders:TargetBorderCount=1", "Borders:TargetBorderCount=3"]},
    ),
}


@cache
def trained(name: str) -> Trained:
    kind, params = (RECIPES | BINARY_ALONE)[name]
    frame, other = frames()
    score = frame["code"] % 7 + np.nan_to_num(frame["size"]) * 2 + frame["city"].str.len() % 5 + frame["flag"]
    target: Any = score
    if kind == "Classifier":
        target = np.digitize(score, [5, 8] if "MultiClass" in params.get("loss_function", "") else [6])
    elif kind == "Ranker":
        target = np.digitize(score, [4, 6, 9])
    elif params.get("loss_function") == "SurvivalAft":
        target = np.column_stack([np.abs(score), np.where(score > 5, -1, np.abs(score) + 1)])
    elif params.get("loss_function") == "MultiRMSE":
        target = np.column_stack([score, frame["code"] % 3])
    quiet = {"thread_count": 1, "allow_writing_files": False, "verbose": False, "random_seed": 3}
    defaults = {"iterations": 30, "depth": 5, "learning_rate": 0.2}
    model = getattr(catboost, f"CatBoost{kind}")(**defaults | quiet | params)
    groups = {"group_id": np.arange(len(frame)) // 15} if kind == "Ranker" else {}
    return Trained(model.fit(frame, target, cat_features=CATEGORIES, **groups), frame, other)


def raw(booster: Any, X: Any) -> np.ndarray:
    return catboost.CatBoost.predict(booster, X, prediction_type="RawFormulaVal", thread_count=1)


@pytest.mark.parametrize("name", [*RECIPES, *BINARY_ALONE])
def test_live_models_and_files(name: str, tmp_path: Path) -> None:
    booster, frame, other = trained(name)
    live = gpuqs.from_model(booster)
    assert live.forest.ctrs is not None and live.n_features == 6
    booster.save_model(str(tmp_path / "model.cbm"))
    booster.save_model(str(tmp_path / "model.json"), format="json")
    live.save(tmp_path / "model.gpuqs")
    models = [live, gpuqs.load(tmp_path / "model.cbm"), gpuqs.load(tmp_path / "model.gpuqs")]
    if name in BINARY_ALONE:
        with pytest.raises(UnsupportedModelError, match=r"binary form"):
            gpuqs.load(tmp_path / "model.json")
    else:
        models.append(gpuqs.load(tmp_path / "model.json"))
    for X in (frame, other, other[::-1][["kind", *other.columns[:5]]], other.iloc[:1], other.iloc[:0]):
        given = X[list(frame.columns)]
        expected = raw(booster, given) if len(X) else np.zeros(raw(booster, frame)[:0].shape)
        for model in models:
            np.testing.assert_array_equal(model.predict(X, "raw"), expected)
        if len(X):
            for model in models[:3]:  # CatBoost renumbers the leaves of its JSON
                np.testing.assert_array_equal(model.predict(X, "leaf"), booster.calc_leaf_indexes(given))


@pytest.mark.parametrize("name", ["defaults", "classes", "Lossguide", "deep combinations"])
@pytest.mark.parametrize("engine", COMPILED)
def test_engines(isa: str, name: str, engine: str) -> None:
    booster, _, other = trained(name)
    model = gpuqs.from_model(booster)
    if model.engines()[engine] is None:
        np.testing.assert_array_equal(model.predict(other, "raw", engine=engine), raw(booster, other))


def test_ways_in() -> None:
    booster, _, other = trained("defaults")
    model, expected = gpuqs.from_model(booster), raw(booster, other)
    pa = pytest.importorskip("pyarrow")
    ways = {
        "categories": other.assign(city=other["city"].astype("category"), code=other["code"].astype("category")),
        "arrow": pa.Table.from_pandas(other),
        "arrow's types": other.convert_dtypes(dtype_backend="pyarrow"),
        "objects": other.astype(object).to_numpy(),
        "a list": other.astype(object).to_numpy().tolist(),
        "a tuple": tuple(map(tuple, other.astype(object).to_numpy().tolist())),
    }
    if polars := pytest.importorskip("polars"):
        ways["polars"] = polars.from_pandas(other)
    for way, X in ways.items():
        np.testing.assert_array_equal(model.predict(X, "raw"), expected, way)
    np.testing.assert_array_equal(raw(booster, ways["objects"]), expected)
    many, n = pd.concat([other] * 5), 5 * len(other)
    for n_threads in (1, 3, None):
        np.testing.assert_array_equal(model.predict(many, "raw", n_threads=n_threads), np.resize(expected, n))
        coded = model.encode(many, n_threads=n_threads)
        np.testing.assert_array_equal(model.predict(coded, "raw"), np.resize(expected, n))
    np.testing.assert_array_equal(model.predict(model.encode(other), "raw"), expected)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(other, "raw"), expected)
    np.testing.assert_array_equal(model.predict(other, "raw", trees=slice(3, 9)), _part(booster, other, 3, 9))
    out = np.empty(len(other))
    assert model.predict(other, "raw", out=out) is out and np.array_equal(out, expected)
    for X in (other, ways["objects"], ways["a list"]):
        np.testing.assert_array_equal(wrap(booster).predict_proba(X), booster.predict_proba(other))
    np.testing.assert_array_equal(model.warm_up(100).predict(other), booster.predict_proba(other)[:, 1])
    np.testing.assert_array_equal(model.predict(other, "class"), booster.predict(other))
    model.tune(other, 0.2)
    np.testing.assert_array_equal(model.predict(other, "raw"), expected)


def test_few_rows_of_a_frame() -> None:
    """Their values are read in one pass; columns may be in another order, with unrelated ones between them."""
    booster, _, other = trained("defaults")
    model, other = gpuqs.from_model(booster), other.copy()
    other.loc[:9, "weight"], other.loc[5:20, "size"] = np.float32(1e-42), 1e300
    expected = raw(booster, other)
    wider = other.assign(when=pd.Timestamp("2026-01-01"), none=None)[["when", *other.columns[::-1], "none"]]
    objects = other.astype({"city": object, "kind": object})
    whole = other.astype({"weight": float}).assign(size=(other.index.to_numpy() % 7 << 60) + (1 << 38) + 1)
    for frame in (other, wider, objects, other[other.columns[::-1]], other.astype({"weight": float}), whole):
        if frame is whole:
            expected = raw(booster, whole)
        for n in (1, 3, 30):
            for start in (0, 4, 25, 77, 300):
                got = model.predict(frame[start : start + n], "raw")
                np.testing.assert_array_equal(got, expected[start : start + n])
    for n in (1, 300):  # few rows are read in one pass, more column by column
        for wrong in (None, 1.0):
            with pytest.raises(InputError, match="city"):
                model.predict(objects[:n].assign(city=pd.Series([1, wrong] * n, dtype=object)[1 : n + 1]), "raw")


def test_few_lists() -> None:
    """Lists of Python's own numbers and strings are read by compiled code, those of NumPy's in another way."""
    booster, _, other = trained("defaults")
    model, other = gpuqs.from_model(booster), other.copy()
    other.loc[:9, "weight"], other.loc[5:20, "size"] = np.float32(1e-42), 1e300
    expected, rows = raw(booster, other), other.astype(object).to_numpy().tolist()
    odd = [[np.float64(value) if type(value) is float else value for value in row] for row in rows]
    odder = [[np.str_(value) if type(value) is str else value for value in row] for row in rows]
    for given in (rows, odd, odder):
        for n in (1, 3, 30, 500):
            for start in (0, 4, 25, 77, 300):
                got = model.predict(given[start : start + n], "raw")
                np.testing.assert_array_equal(got, expected[start : start + n])
    values = model.predict(rows[:1])
    assert values.tobytes() == model.predict(rows[:1], engine="walk").tobytes()


def _part(booster: Any, X: Any, start: int, stop: int) -> np.ndarray:
    return booster.predict(X, prediction_type="RawFormulaVal", ntree_start=start, ntree_end=stop)


def test_whole_numbers_of_arrays() -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(-5, 40, (800, 4))
    target = (X[:, 0] * 7 + X[:, 1]) % 5 + X[:, 2] / 9
    quiet = {"iterations": 20, "verbose": 0, "allow_writing_files": False, "thread_count": 1}
    booster = catboost.CatBoostRegressor(**quiet).fit(X, target, cat_features=[0, 1])
    model = gpuqs.from_model(booster)
    assert model.forest.ctrs is not None
    X[::5, 0], X[::3, 2] = 1_000_000, 2**24 + 1  # unseen, and not representable in float32
    turned = X[:, ::-1].copy()[:, ::-1]
    for given in (X, X.astype(np.int32), np.asfortranarray(X), turned, X.tolist(), X.astype(object)):
        np.testing.assert_array_equal(model.predict(given), booster.predict(X))


def test_the_command_line(tmp_path: Path) -> None:
    booster, _, other = trained("deep combinations")
    model, table = tmp_path / "model.cbm", tmp_path / "rows.parquet"
    booster.save_model(str(model))
    other.to_parquet(table)
    other.to_csv(tmp_path / "rows.csv", index=False)
    for data in (table, tmp_path / "rows.csv"):
        out = tmp_path / "out.npy"
        scored = CliRunner().invoke(cli, ["score", str(model), str(data), "-o", str(out)])
        assert scored.exit_code == 0, scored.output
        np.testing.assert_array_equal(np.load(out), raw(booster, other))
    verified = CliRunner().invoke(cli, ["verify", str(model), str(table)])
    assert verified.exit_code == 0 and "500 rows of" in verified.output, verified.output
    assert CliRunner().invoke(cli, ["verify", str(model)]).exit_code == 1  # nothing to compare
    info = CliRunner().invoke(cli, ["info", str(model)])
    assert info.exit_code == 0 and "statistics of categories" in " ".join(info.output.split()), info.output
    tuned = CliRunner().invoke(cli, ["tune", str(model), str(table), "--budget", "0.2"])
    assert tuned.exit_code == 0, tuned.output
    np.testing.assert_array_equal(gpuqs.load(tmp_path / "model.tuned.gpuqs").predict(other), raw(booster, other))


def test_verify(tmp_path: Path) -> None:
    booster, _, other = trained("Depthwise")
    path = tmp_path / "model.cbm"
    booster.save_model(str(path))
    found = verify(path, other)
    assert found.ok and found.rows == {"rows of X as a frame": 500}
    assert not verify(path).ok


def test_csv_spells_categories_as_tables_of_ctrs_tell(tmp_path: Path) -> None:
    """They give the hashes of categories; if they do not, a column of booleans may hold strings."""
    frame, other = frames()
    target = frame["flag"] + (frame["code"] % 3) / 3
    quiet = {"iterations": 20, "one_hot_max_size": 0, "verbose": 0, "allow_writing_files": False, "random_seed": 1}
    columns = ["flag", "code"]
    for as_text in (False, True):
        X = frame[columns].assign(flag=frame["flag"].astype(str)) if as_text else frame[columns]
        booster = catboost.CatBoostRegressor(max_ctr_complexity=1, **quiet).fit(X, target, cat_features=columns)
        model = gpuqs.from_model(booster)
        assert len(model.forest.ctrs.met(0)) == 2 and model.forest.ctrs.codes == {}
        model.save(tmp_path / "model.gpuqs")
        spelled = other[columns].assign(code=other["code"].map("{:+05d}".format))
        spelled.to_csv(tmp_path / "rows.csv", index=False)
        command = ["score", str(tmp_path / "model.gpuqs"), str(tmp_path / "rows.csv"), "-o", str(tmp_path / "out.npy")]
        assert CliRunner().invoke(cli, command).exit_code == 1  # +0012 is no category, and 12 is one
        other[columns].to_csv(tmp_path / "rows.csv", index=False)
        scored = CliRunner().invoke(cli, command)
        assert scored.exit_code == 0, scored.output
        given = other[columns].assign(flag=other["flag"].astype(str)) if as_text else other[columns]
        np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), raw(booster, given))
    combined = replace(model.forest.ctrs, projections=tuple(_two(p) for p in model.forest.ctrs.projections))
    gpuqs.from_model(replace(model.forest, ctrs=combined)).save(tmp_path / "model.gpuqs")
    refused = CliRunner().invoke(cli, command)
    assert refused.exit_code == 1 and "does not say what is among a column's categories" in refused.output


def _two(projection: Any) -> Any:
    return replace(projection, categories=(0, 1))


def test_what_is_refused() -> None:
    booster, _, other = trained("defaults")
    model = gpuqs.from_model(booster)
    for X, message in (
        (other.assign(code=1.5), "'code' holds fractions, which CatBoost does not accept as categories; make it"),
        (other.assign(city=None), "column 'city' has missing categories, which CatBoost refuses"),
        ([["\ud800", 1.0, 2, True, 0.0, "a"]], "column 'city' holds a string that is not Unicode"),
        (other.drop(columns="size"), "lacks 1 of the model's 6 features: 'size'"),
        (np.zeros((2, 6)), "dtype float64, but the model has categories"),
        (np.zeros((2, 7), int), "X has 7 features; the model was trained on 6"),
        ([["x", 1.0, 2.5, True, 0.0, "a"]], "column 'code' holds the category 2.5"),
        ([["x", "1.0", 2, True, 0.0, "a"]], "X holds a str"),
        ([["x", 1.0, [2], True, 0.0, "a"]], "cannot be"),
    ):
        with pytest.raises(InputError, match=message):
            model.predict(X)
