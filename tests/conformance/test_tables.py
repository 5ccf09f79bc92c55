"""Tables of every kind give the training library's scores bit for bit or are refused; never other scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from drawn_tables import KINDS, Drawn, Frame, Table, changed, polars, tables
from hypothesis import given, settings
from threadpoolctl import threadpool_limits

import gpuqs
from gpuqs.arrays import coded_rows
from gpuqs.cli.commands import cli
from gpuqs.errors import InputError, UnsupportedModelError
from gpuqs.model import Model
from gpuqs.readers import open_documents

lgb = pytest.importorskip("lightgbm")
xgb = pytest.importorskip("xgboost")
catboost = pytest.importorskip("catboost")
pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")

#: Tables for each library.
N_TABLES = 50


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Use one thread: the libraries' threads would spin waiting for each other when tests run in parallel."""
    with threadpool_limits(1):
        yield


def from_files(model: Model, frame: Frame, folder: Path) -> dict[str, Any]:
    """Scores of the frame written to files, or the errors that refuse them."""
    frame.to_parquet(folder / "rows.parquet")
    # CSV has no float32, and a float32's shortest decimal form parses to a different float64.
    frame.astype({name: float for name in frame.columns[frame.dtypes == np.float32]}).to_csv(
        folder / "rows.csv", index=False
    )
    outcome: dict[str, Any] = {}
    for name in ("rows.parquet", "rows.csv"):
        try:
            chunks = [chunk.values for chunk in open_documents(folder / name, model.forest)]
            outcome[name] = model.predict(coded_rows(np.concatenate(chunks)), "raw")
        except InputError as error:
            outcome[name] = error
    return outcome


# -- the libraries ------------------------------------------------------------------------

#: A model as gpuqs reads it, and a function that scores a frame with its library.
Trained = tuple[Model, Callable[[Frame], np.ndarray]]


def of_lightgbm(table: Table, rng: np.random.Generator, folder: Path) -> Trained:
    params = {"verbose": -1, "num_threads": 1, "min_data_per_group": 1, "cat_smooth": 1, "min_data_in_leaf": 3}
    subset: Any = "auto"
    if rng.random() < 0.4:  # category columns left out of the list are numbers, integer columns in it are categories
        able = [*table.categories, *table.train.columns[table.train.dtypes == "int64"]]
        subset = [name for name in able if rng.random() < 0.5]
    data = lgb.Dataset(table.train, table.target, categorical_feature=subset)
    booster = lgb.train({**params, "num_leaves": 8}, data, 4)
    return gpuqs.from_model(booster), lambda X: booster.predict(X, raw_score=True, num_threads=1)


def of_xgboost(table: Table, rng: np.random.Generator, folder: Path) -> Trained:
    data = xgb.DMatrix(table.train, table.target, enable_categorical=True, nthread=1)
    booster = xgb.train({"nthread": 1, "max_depth": 3, "max_cat_to_onehot": int(rng.integers(1, 5))}, data, 4)

    def score(X: Frame) -> np.ndarray:
        return booster.predict(xgb.DMatrix(X, enable_categorical=True, nthread=1), output_margin=True)

    return gpuqs.from_model(booster), score


def of_catboost(table: Table, rng: np.random.Generator, folder: Path) -> Trained:
    booster = catboost.CatBoostRegressor(
        iterations=4,
        depth=3,
        one_hot_max_size=20,
        verbose=0,
        thread_count=1,
        allow_writing_files=False,
        cat_features=table.categories,
    )
    booster.fit(table.train, table.target)
    pool = catboost.Pool(table.train, cat_features=table.categories)
    booster.save_model(str(folder / "model.json"), format="json", pool=pool)
    return gpuqs.load(folder / "model.json"), lambda X: booster.predict(X, thread_count=1)


def of_sklearn(table: Table, rng: np.random.Generator, folder: Path) -> Trained:
    from sklearn.ensemble import HistGradientBoostingRegressor

    model = HistGradientBoostingRegressor(
        max_iter=4, max_leaf_nodes=8, categorical_features="from_dtype", min_samples_leaf=3
    )
    model.fit(table.train, table.target)
    return gpuqs.from_model(model), model.predict


@dataclass(frozen=True)
class Library:
    """How to train, on which kinds of categories, and whether values may be missing."""

    train: Callable[[Table, np.random.Generator, Path], Trained]
    kinds: tuple[str, ...]
    missing: bool = True


#: Whether XGBoost keeps the full strings of a frame's categories even if they are not ASCII.
KEEPS_TEXTS = tuple(map(int, xgb.__version__.split(".")[:2])) >= (3, 4)

LIBRARIES = {
    "LightGBM": Library(of_lightgbm, ("text", "whole", "fraction", "truth")),
    "XGBoost": Library(of_xgboost, ("text" if KEEPS_TEXTS else "ASCII", "whole")),
    "CatBoost": Library(of_catboost, ("text", "whole", "truth"), missing=False),
    "scikit-learn": Library(of_sklearn, ("text", "positive")),
}


def outcome_of(score: Callable[..., np.ndarray], *args: Any) -> Any:
    try:
        return score(*args)
    except InputError as error:
        return error


def agreement(
    library: Library, drawn: Drawn, folder: Path, equal: Counter[str], refused: dict[str, list[str]]
) -> None:
    """Train on a table; score it and a changed copy in every kind of table; count how many are equal and refused."""
    rng, table = np.random.default_rng(drawn.seed), drawn.table()
    model, score = library.train(table, rng, folder)
    model.save(folder / "model.gpuqs")
    model = gpuqs.load(folder / "model.gpuqs")
    for frame in (table.train, changed(table, rng)):
        try:
            expected = score(frame)
        except Exception:  # each library raises its own exceptions
            continue
        outcomes = {kind: outcome_of(model.predict, make(frame, rng), "raw") for kind, make in KINDS.items()}
        outcomes |= from_files(model, frame, folder)
        if model.forest.schema.in_order:
            placed = gpuqs.from_model(model.forest, categories=table.categories)
            outcomes["polars, placed"] = outcome_of(placed.predict, polars(frame, rng), "raw")
            outcomes |= {f"{file}, placed": got for file, got in from_files(placed, frame, folder).items()}
        for kind, got in outcomes.items():
            if isinstance(got, InputError):
                refused.setdefault(kind, []).append(str(got))
                continue
            equal[kind] += 1
            assert got.dtype == expected.dtype
            same = got.view(f"i{got.itemsize}") == expected.view(f"i{got.itemsize}")
            assert same.all(), f"{kind}: {got[~same][:3]} for {expected[~same][:3]}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", LIBRARIES)
def test_tables(name: str, tmp_path: Path) -> None:
    library = LIBRARIES[name]
    equal: Counter[str] = Counter()
    refused: dict[str, list[str]] = {}

    @settings(max_examples=N_TABLES, derandomize=True, deadline=None, database=None)
    @given(tables(library.kinds, library.missing))
    def agree(drawn: Drawn) -> None:
        agreement(library, drawn, tmp_path, equal, refused)

    agree()
    # LightGBM's file does not say whether string columns that its trees do not test were categories.
    always = [kind for kind in KINDS if kind != "polars" and (kind, name) != ("texts", "LightGBM")]
    assert min(equal[kind] for kind in always) > N_TABLES // 2, refused


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", LIBRARIES)
def test_texts_are_refused_nowhere(name: str, tmp_path: Path) -> None:
    """String categories keep their type in every kind of table, and in files."""
    library = LIBRARIES[name]

    @settings(max_examples=4, derandomize=True, deadline=None, database=None)
    @given(tables(library.kinds[:1], library.missing).filter(lambda drawn: drawn.table().categories))
    def taken(drawn: Drawn) -> None:
        rng, table = np.random.default_rng(drawn.seed), drawn.table()
        model, score = library.train(table, rng, tmp_path)
        expected = score(table.train)
        if model.forest.schema.in_order:  # otherwise LightGBM's strings are refused if the trees do not test them
            model = gpuqs.from_model(model.forest, categories=table.categories)
        for make in KINDS.values():
            np.testing.assert_array_equal(model.predict(make(table.train, rng), "raw"), expected)
        for file, got in from_files(model, table.train, tmp_path).items():
            assert not isinstance(got, InputError), got
            np.testing.assert_array_equal(got, expected, err_msg=file)

    taken()


@pytest.mark.skipif(KEEPS_TEXTS, reason="this XGBoost keeps texts whole")
def test_what_xgboost_cuts_short_is_refused(tmp_path: Path) -> None:
    """XGBoost cuts a frame's strings by character counts as if those were bytes: "größe" and all after it are lost."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=200), "c": pd.Categorical(rng.choice(["größe", "abc", "bcd"], 200))})
    data = xgb.DMatrix(frame, rng.normal(size=200), enable_categorical=True)
    model = gpuqs.from_model(xgb.train({"nthread": 1}, data, 2))
    model.save(tmp_path / "model.gpuqs")
    for held in (model, gpuqs.load(tmp_path / "model.gpuqs")):
        for X in (frame, frame.astype({"c": str}), pa.Table.from_pandas(frame)):
            with pytest.raises(InputError, match=r"column 'c' has .*, whose categories hold non-ASCII strings: XGB"):
                held.predict(X)
        coded = frame.assign(c=frame["c"].cat.codes)
        for X in (coded, coded.astype({"c": float}), pa.Table.from_pandas(coded)):  # nobody knows if these are codes
            with pytest.raises(InputError, match="column 'c' holds numbers, but the model's categories are strings"):
                held.predict(X)
        for told in ({"c": ["abc", "bcd", "größe"]}, ["c"]):
            with pytest.raises(InputError, match="categories names 'c', whose categories hold non-ASCII strings"):
                gpuqs.from_model(held.forest, categories=told)
    codes = np.column_stack([frame["x"], frame["c"].cat.codes])
    assert len(model.predict(codes)) == 200


def test_whole_number_categories_of_xgboost_that_the_caller_states(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=200), "c": pd.Categorical(rng.choice([10, 20, 30], 200))})
    target = (frame["c"] == 20) + 0.1 * frame["x"]
    booster = xgb.train({"nthread": 1}, xgb.DMatrix(frame, target, enable_categorical=True), 3)
    expected = booster.predict(xgb.DMatrix(frame, enable_categorical=True), output_margin=True)
    model = gpuqs.from_model(booster)
    stated = gpuqs.from_model(booster, categories={"c": [10, 20, 30]})
    stated.save(tmp_path / "stated.gpuqs")
    numbers = frame.astype({"c": "int64"})
    with pytest.raises(InputError, match=r"column 'c' holds numbers.* categories=\[column\]\)\.save"):
        model.predict(numbers)
    for held in (stated, gpuqs.load(tmp_path / "stated.gpuqs")):
        for X in (frame, numbers, pa.Table.from_pandas(numbers)):
            np.testing.assert_array_equal(held.predict(X, "raw"), expected)
        for file, got in from_files(held, numbers.astype({"x": "float64"}), tmp_path).items():
            np.testing.assert_array_equal(got, expected, err_msg=file)


@pytest.mark.parametrize("seen", ["zz", "w", "a"])
def test_xgboost_refuses_categories_that_it_has_not_seen(seen: str) -> None:
    """gpuqs always refuses them, as XGBoost claims to; XGBoost mistakes some for their alphabetical neighbours."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=99), "c": pd.Categorical(rng.choice(["x", "y", "z"], 99))})
    data = xgb.DMatrix(frame, rng.normal(size=99), enable_categorical=True)
    model = gpuqs.from_model(xgb.train({"nthread": 1}, data, 2))
    other = frame.assign(c=frame["c"].cat.add_categories([seen]))
    np.testing.assert_array_equal(model.predict(other), model.predict(frame))  # not in any row
    other.loc[7, "c"] = seen
    with pytest.raises(InputError, match=f"column 'c' holds the category '{seen}', which the model has not seen"):
        model.predict(other)
    with pytest.raises(InputError, match="'c' holds numbers, but the model's categories are strings"):
        model.predict(frame.assign(c=1))


def untold(name: str) -> tuple[Frame, Any]:
    """Frames whose category columns feature_infos does not reveal, and LightGBM's categorical_feature."""
    rng = np.random.default_rng(1)
    n = 400
    code = rng.integers(0, 3, (n, 2))
    ordered = pd.Categorical.from_codes(code[:, 0], [10, 20, 30], ordered=True)
    numeric = pd.Categorical.from_codes(code[:, 0], [10, 20, 30])
    text = pd.Categorical.from_codes(code[:, 1], ["x", "y", "z"])
    x, whole, constant = rng.normal(size=n), code[:, 1] * 5, pd.Categorical([7] * n)
    return {
        "ordered": (pd.DataFrame({"x": x, "c": ordered}), "auto"),
        "ordered and not": (pd.DataFrame({"c": ordered, "x": x, "t": text}), "auto"),
        "ordered texts": (pd.DataFrame({"x": x, "t": text.as_ordered()}), "auto"),
        "no categorical_feature": (pd.DataFrame({"x": x, "c": numeric}), []),
        "left out of the list": (pd.DataFrame({"t": text, "x": x, "c": numeric}), ["t"]),
        "beside an int in the list": (pd.DataFrame({"i": whole, "c": numeric, "x": x}), ["i"]),
        "constant beside an int": (pd.DataFrame({"i": whole, "c": constant, "x": x}), ["i"]),
        "constant beside a float": (pd.DataFrame({"f": 1.5, "c": constant, "n": numeric, "x": x}), "auto"),
    }[name]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    [
        *("ordered", "ordered and not", "ordered texts", "no categorical_feature", "left out of the list"),
        *("beside an int in the list", "constant beside an int", "constant beside a float"),
    ],
)
def test_lightgbm_frames_whose_columns_the_file_does_not_tell(name: str, tmp_path: Path) -> None:
    frame, listed = untold(name)
    codes = [column.cat.codes if str(column.dtype) == "category" else column for _, column in frame.items()]
    target = np.column_stack(codes) @ np.arange(1, 1 + len(codes)) + 2 * (codes[-2] == 1)
    params = {"verbose": -1, "num_threads": 1, "min_data_per_group": 1, "cat_smooth": 1}
    booster = lgb.train(params, lgb.Dataset(frame, target, categorical_feature=listed), 10)
    raw = booster.predict(frame, raw_score=True)
    assert len(np.unique(raw)) > 5
    model = gpuqs.from_model(booster)
    told = gpuqs.from_model(booster, categories=[name for name in frame if str(frame[name].dtype) == "category"])
    table = pa.Table.from_pandas(frame, preserve_index=False)
    for X in (frame, frame[frame.columns[::-1]], table):
        np.testing.assert_array_equal(model.predict(X, "raw"), raw)
        np.testing.assert_array_equal(told.predict(X, "raw"), raw)
    for file, got in from_files(told, frame, tmp_path).items():
        np.testing.assert_array_equal(got, raw, err_msg=file)
    for file, got in from_files(model, frame, tmp_path).items():
        assert isinstance(got, InputError) or np.array_equal(got, raw), file


TENS = [10, 20, 30, 40, 50, 60]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (["x", "t"], "categories names column 'x', but the model's trees compare it with .* not halfway between"),
        (["i", "t"], "column 'i', but .* compare it with [1-9].5, which is not halfway between two codes of 6 cat"),
        (["c", "u"], r"column 'c', but .* test it for the code 5, but .* only 2 categories, such as \('y', 'z'\)"),
        ({"t": ["y", "z"], "x": TENS}, "column 'x', but"),
    ],
)
def test_lightgbm_columns_that_cannot_be_its_category_columns(wrong: Any, problem: str, tmp_path: Path) -> None:
    """The trees do not test the named columns the way they would test the columns with the model's categories."""
    rng = np.random.default_rng(2)
    n = 600
    code, other = rng.integers(0, 6, n), rng.integers(0, 2, n)
    frame = pd.DataFrame({"t": pd.Categorical.from_codes(other, ["y", "z"]), "x": rng.normal(size=n)})
    frame["i"], frame["c"] = rng.integers(3, 12, n), pd.Categorical.from_codes(code, TENS)
    frame["u"] = 0.0
    target = frame["x"] + (code == 1) * 3 - (code == 5) + other + frame["i"] / 2
    params = {"verbose": -1, "num_threads": 1, "min_data_per_group": 1, "cat_smooth": 0}
    booster = lgb.train(params, lgb.Dataset(frame, target), 20)
    booster.save_model(tmp_path / "model.txt")
    with pytest.raises(InputError, match=problem):
        gpuqs.load(tmp_path / "model.txt", categories=wrong)
    told = gpuqs.load(tmp_path / "model.txt", categories=["c", "t"])
    np.testing.assert_array_equal(told.predict(frame, "raw"), booster.predict(frame, raw_score=True))


@pytest.mark.filterwarnings("ignore")
def test_the_command_scores_files_with_categories(tmp_path: Path) -> None:
    frame, _ = untold("left out of the list")
    code = frame["t"].cat.codes + frame["c"].cat.codes
    booster = lgb.train({"verbose": -1, "num_threads": 1}, lgb.Dataset(frame, code), 5)
    booster.save_model(tmp_path / "model.txt")
    gpuqs.load(tmp_path / "model.txt", categories=["t", "c"]).save(tmp_path / "told.gpuqs")
    frame.to_parquet(tmp_path / "rows.parquet")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    for model, rows, sound in (
        ("told.gpuqs", "rows.parquet", True),
        ("told.gpuqs", "rows.csv", True),
        ("model.txt", "rows.csv", False),
    ):
        command = ["score", str(tmp_path / model), str(tmp_path / rows), "-o", str(tmp_path / "out.npy")]
        result = CliRunner().invoke(cli, command)
        assert (result.exit_code == 0) == sound, result.output
        if sound:
            np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), booster.predict(frame))
        else:
            assert "trained on a frame with 2 category columns" in result.output
            assert "--category COLUMN on the command line" in result.output


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("order", ["cxt", "txc", "xct"])
def test_csv_whose_texts_begin_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str) -> None:
    """A model file that does not name its category columns, and a CSV file with empty columns in its first blocks."""
    rng = np.random.default_rng(5)
    code = rng.integers(0, 3, (2, 600))
    columns: dict[str, Any] = {
        name: pd.Categorical.from_codes(c, [f"{name}{at}" for at in range(3)])
        for name, c in zip("ct", code, strict=True)
    }
    frame = pd.DataFrame({**columns, "x": rng.normal(size=600)})[list(order)]
    params = {"verbose": -1, "num_threads": 1, "min_data_per_group": 1, "cat_smooth": 1}
    booster = lgb.train(params, lgb.Dataset(frame, (code[0] == 1) + 2.0 * (code[1] == 2)), 10)
    booster.save_model(tmp_path / "model.txt")
    frame.loc[:400, "c"] = None
    frame.loc[:200, "t"] = None
    frame.to_csv(tmp_path / "rows.csv", index=False)
    monkeypatch.setattr("gpuqs.readers.csv_blocks._BLOCK_BYTES", 500)
    for command in ("score", "verify"):
        out = ["-o", str(tmp_path / "out.npy")] if command == "score" else []
        result = CliRunner().invoke(cli, [command, str(tmp_path / "model.txt"), str(tmp_path / "rows.csv"), *out])
        assert result.exit_code == 0, result.output
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), booster.predict(frame))


def test_categories_that_lightgbm_cannot_write(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": np.arange(99.0), "c": pd.cut(np.arange(99.0), 3)})
    data = lgb.Dataset(frame, frame["x"])
    booster = lgb.train({"verbose": -1, "num_threads": 1}, data, 1, keep_training_booster=True)
    with pytest.raises(UnsupportedModelError, match="cannot write the categories of its training frame"):
        gpuqs.from_model(booster)


@pytest.mark.parametrize("dirty", ["z", "unused"])
def test_texts_in_the_place_of_lightgbm_category_columns_are_refused(dirty: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    n = 300
    code = rng.integers(0, 3, n)
    frame = pd.DataFrame({"x": rng.normal(size=n), "c": pd.Categorical.from_codes(code, ["1", "2", "3"])})
    frame = frame.assign(z=rng.normal(size=n), unused=0.0)
    params = {"verbose": -1, "num_threads": 1, "min_data_per_group": 1, "cat_smooth": 1}
    booster = lgb.train(params, lgb.Dataset(frame, (code == 1) + 0.1 * frame["z"]), 10)
    booster.save_model(tmp_path / "model.txt")
    written = frame.astype({dirty: object})
    written.loc[5, dirty] = "?"
    written.to_csv(tmp_path / "rows.csv", index=False)
    read = pd.read_csv(tmp_path / "rows.csv")
    assert read["c"].dtype == "int64"
    model = gpuqs.load(tmp_path / "model.txt")
    for X in (read, pa.Table.from_pandas(read), frame.astype({"c": int, dirty: str})):
        with pytest.raises(InputError, match=f"column '{dirty}' holds strings, but the model's trees .*categories="):
            model.predict(X)
    with pytest.raises(ValueError, match=r"pandas dtypes must be int, float or bool|categorical_feature do not match"):
        booster.predict(read)
    for command in ("score", "verify"):
        out = ["-o", str(tmp_path / "out.npy")] if command == "score" else []
        result = CliRunner().invoke(cli, [command, str(tmp_path / "model.txt"), str(tmp_path / "rows.csv"), *out])
        assert result.exit_code == 1, (command, result.output)
        assert f"column '{dirty}' holds strings" in result.output, (command, result.output)
    texts = frame.assign(c=frame["c"].astype(str))
    np.testing.assert_array_equal(model.predict(texts), booster.predict(frame))


def test_numbers_in_the_place_of_lightgbm_categories_beside_texts_are_refused() -> None:
    rng = np.random.default_rng(3)
    code = rng.integers(0, 3, (300, 2))
    of = {name: pd.Categorical.from_codes(code[:, at], ["1", "2", "3"]) for at, name in enumerate("cd")}
    frame = pd.DataFrame(of)
    frame["x"] = rng.normal(size=300)
    params = {"verbose": -1, "num_threads": 1, "min_data_per_group": 1, "cat_smooth": 1}
    booster = lgb.train(params, lgb.Dataset(frame, code @ [1, 3] % 4), 10)
    X = frame.assign(c=code[:, 0], d=frame["d"].astype(str), x=pd.Categorical(["a"] * 300))
    with pytest.raises(InputError, match="column 'c' holds integers, but the model's trees test it as categories"):
        gpuqs.from_model(booster).predict(X)


def test_large_integers_beside_objects() -> None:
    """scikit-learn makes one type of all columns first, and rounds twice."""
    ensemble = pytest.importorskip("sklearn.ensemble")
    near = [2**54, 2**54 + 2**31]
    trained = ensemble.RandomForestRegressor(3, random_state=0).fit(
        pd.DataFrame({"a": near * 50, "b": np.zeros(100)}), [0.0, 1.0] * 50
    )
    model = gpuqs.from_model(trained)
    for a in (np.array([near[0] + 2**30 + 1]), np.array([near[0] + 2**30 + 1], np.uint64)):
        for frame in (pd.DataFrame({"a": a, "b": [0.0]}), pd.DataFrame({"a": a, "b": np.array([0.0], object)})):
            for rows in (frame, frame.astype({"a": object}), frame.astype(float)):
                np.testing.assert_array_equal(model.predict(rows), trained.predict(rows))


def test_objects_are_categories_where_order_tells_which_columns_have_some() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"v": rng.random(200), "o": pd.Categorical(rng.choice([10, 20, 30], 200), ordered=True)})
    y = frame.v + frame.o.cat.codes
    booster = lgb.train({"verbosity": -1, "num_leaves": 4}, lgb.Dataset(frame, y), 5)
    model = gpuqs.from_model(booster)
    np.testing.assert_array_equal(model.predict(frame), booster.predict(frame))
    numbers = frame.astype({"v": object})
    with pytest.raises(InputError, match=r"X has 2: 'v', 'o' \(objects count as categories: cast those"):
        model.predict(numbers)
    with pytest.raises(InputError, match=r"column 'o' holds|objects count as categories"):
        model.predict(frame.assign(v=pd.Categorical(frame.v), o=frame.o.astype(object)))
