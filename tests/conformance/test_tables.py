"""Tables of every kind against the library that trained: its scores, bit for bit, or a refusal; never others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import gpuqs
from gpuqs.cli.commands import cli
from gpuqs.errors import InputError, UnsupportedModelError
from gpuqs.model import Model
from gpuqs.readers import open_documents

lgb = pytest.importorskip("lightgbm")
xgb = pytest.importorskip("xgboost")
catboost = pytest.importorskip("catboost")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

#: Tables for each library, in groups.
N_TABLES = 50
GROUP = 10
N_ROWS = 100

Frame = Any
TEXTS = ["red", "green", "blue", "b", "Blue ", "größe", "7"]


@dataclass
class Table:
    """A drawn table: the frame to train on, another to score, and which of their columns hold categories."""

    train: Frame
    score: Frame
    categories: list[str]
    target: np.ndarray


def levels_of(kind: str, rng: np.random.Generator) -> list[Any]:
    """Distinct levels in any order; numbers that are not their own codes."""
    values = {
        "text": TEXTS,
        "ASCII": [text for text in TEXTS if text.isascii()],
        "whole": [10, 20, 30, 3, 2, 1, -5],
        "fraction": [0.5, 1.5, 2.0, 10.25, -1.0],
        "positive": [10, 20, 30, 3, 2, 1, 0],
        "truth": [False, True],
    }[kind]
    return [values[i] for i in rng.permutation(len(values))[: rng.integers(2, len(values) + 1)]]


def draw_table(rng: np.random.Generator, kinds: tuple[str, ...], missing: bool) -> Table:
    """Numbers, constants and categories (some constant, some ordered), with missing levels and shuffled columns."""
    n, both, categories = N_ROWS, {}, []
    target = rng.normal(size=2 * n) * 0.1
    for column in range(int(rng.integers(2, 7))):
        name = f"col {column}" if rng.random() < 0.2 else f"c{column}"
        what = rng.choice(["float", "float32", "int", "bool", "constant", "category", "category", "category"])
        code = rng.integers(0, 7, 2 * n)
        if what == "category":
            levels = levels_of(str(rng.choice(kinds)), rng)
            code %= len(levels)
            if rng.random() < 0.15:
                code[:] = 0
            if missing and rng.random() < 0.4:
                code[rng.random(2 * n) < 0.2] = -1
            categories.append(name)
            values = pd.Categorical.from_codes(code, levels, ordered=bool(rng.random() < 0.4))
            target += rng.normal(size=8)[code] * 3
        else:
            values = {
                "float": lambda: np.where(rng.random(2 * n) < 0.1, np.nan, rng.normal(size=2 * n)),
                "float32": lambda: rng.normal(size=2 * n).astype(np.float32),
                "int": lambda: rng.integers(-3, 4, 2 * n),
                "bool": lambda: rng.random(2 * n) < 0.5,
                "constant": lambda: np.full(2 * n, 2.5),
            }[str(what)]()
            target += np.nan_to_num(np.asarray(values, float)) * rng.normal()
        both[name] = values
    both["last"] = rng.normal(size=2 * n)
    frame = pd.DataFrame(both)
    return Table(frame.iloc[:n].reset_index(drop=True), frame.iloc[n:].reset_index(drop=True), categories, target[:n])


def changed(table: Table, rng: np.random.Generator) -> Frame:
    """The frame to score with levels in another order, some gone, some that training has not seen."""
    frame = table.score.copy()
    for name in table.categories:
        levels = list(frame[name].cat.categories)
        new = [*levels, "never seen" if isinstance(levels[0], str) else 99] if len(levels) > 2 else levels
        frame[name] = frame[name].cat.set_categories([new[i] for i in rng.permutation(len(new))])
        if rng.random() < 0.3 and len(new) > len(levels):
            frame.loc[rng.random(len(frame)) < 0.1, name] = new[-1]
        if rng.random() < 0.3:
            frame[name] = frame[name].cat.remove_unused_categories()
        if rng.random() < 0.3:
            frame[name] = frame[name].cat.as_ordered()
    return frame


# -- kinds of tables ----------------------------------------------------------------------


def nullable(frame: Frame, rng: np.random.Generator) -> Frame:
    to = {"float64": "Float64", "float32": "Float32", "int64": "Int64", "bool": "boolean"}
    return frame.astype({name: to[str(kind)] for name, kind in frame.dtypes.items() if str(kind) in to})


def arrow_backed(frame: Frame, rng: np.random.Generator) -> Frame:
    plain = [name for name, kind in frame.dtypes.items() if str(kind) != "category"]
    frame = frame.assign(**{name: frame[name].convert_dtypes(dtype_backend="pyarrow") for name in plain})
    for name in set(frame.columns) - set(plain):
        if rng.random() < 0.5:
            frame[name] = pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([pa.array(frame[name])])))
    return frame


def texts(frame: Frame, rng: np.random.Generator) -> Frame:
    """Category columns of texts as texts."""
    of_texts = [name for name, kind in frame.dtypes.items() if str(kind) == "category" and holds_texts(frame[name])]
    return frame.astype({name: object if rng.random() < 0.5 else "str" for name in of_texts})


def holds_texts(column: Any) -> bool:
    return all(isinstance(level, str) for level in column.cat.categories)


def unsigned_codes(frame: Frame, rng: np.random.Generator) -> Any:
    """An Arrow table in several chunks whose dictionaries have unsigned indices."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    for at, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            kind = pa.dictionary(pa.uint8(), field.type.value_type)
            table = table.set_column(at, field.name, table.column(at).cast(kind))
    return pa.concat_tables([table.slice(0, 50), table.slice(50)])


def polars(frame: Frame, rng: np.random.Generator) -> Any:
    frame = pl.from_pandas(frame)
    names = [name for name, kind in frame.schema.items() if kind == pl.Categorical]
    enums = [name for name in names if rng.random() < 0.5]
    levels = {name: frame[name].cast(pl.String).drop_nulls().unique().to_list() for name in enums}
    return frame.with_columns(pl.col(name).cast(pl.String).cast(pl.Enum(levels[name])) for name in enums)


def shuffled(frame: Frame, rng: np.random.Generator) -> Frame:
    return frame.assign(other=1.0)[rng.permutation([*frame.columns, "other"])]


def unaligned(frame: Frame, rng: np.random.Generator) -> Frame:
    """Its float64 columns over memory that is not aligned, as worker processes get it."""
    out = frame.copy()
    for name in frame.columns[frame.dtypes == np.float64]:
        view = np.zeros(8 * len(frame) + 1, np.uint8)[1:].view(np.float64)
        view[:] = frame[name]
        out[name] = pd.Series(view, copy=False)
    return out


KINDS: dict[str, Callable[[Frame, np.random.Generator], Any]] = {
    "as it is": lambda frame, rng: frame,
    "shuffled": shuffled,
    "nullable": nullable,
    "Arrow-backed": arrow_backed,
    "texts": texts,
    "unaligned": unaligned,
    "Arrow": lambda frame, rng: pa.Table.from_pandas(frame, preserve_index=False),
    "Arrow, unsigned": unsigned_codes,
    "polars": polars,
}


def from_files(model: Model, frame: Frame, folder: Path) -> dict[str, Any]:
    """Scores of the frame as files, or what they are refused with."""
    frame.to_parquet(folder / "rows.parquet")
    # CSV has no float32, and its shortest text is another float64.
    frame.astype({name: float for name in frame.columns[frame.dtypes == np.float32]}).to_csv(
        folder / "rows.csv", index=False
    )
    outcome: dict[str, Any] = {}
    for name in ("rows.parquet", "rows.csv"):
        try:
            chunks = [chunk.values for chunk in open_documents(folder / name, model.forest)]
            outcome[name] = model.predict(np.concatenate(chunks), "raw")
        except InputError as error:
            outcome[name] = error
    return outcome


# -- the libraries ------------------------------------------------------------------------

#: A model as gpuqs reads it, and what its library makes of a frame.
Trained = tuple[Model, Callable[[Frame], np.ndarray]]


def of_lightgbm(table: Table, rng: np.random.Generator, folder: Path) -> Trained:
    params = {"verbose": -1, "num_threads": 1, "min_data_per_group": 1, "cat_smooth": 1, "min_data_in_leaf": 3}
    subset: Any = "auto"
    if rng.random() < 0.4:  # left out of the list they are numbers, and ints in it are categories
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
    """How to train, on which kinds of categories, and whether some may be missing."""

    train: Callable[[Table, np.random.Generator, Path], Trained]
    kinds: tuple[str, ...]
    missing: bool = True


LIBRARIES = {
    "LightGBM": Library(of_lightgbm, ("text", "whole", "fraction", "truth")),
    "XGBoost": Library(of_xgboost, ("ASCII", "whole")),
    "CatBoost": Library(of_catboost, ("text", "whole", "truth"), missing=False),
    "scikit-learn": Library(of_sklearn, ("text", "positive")),
}


def outcome_of(score: Callable[..., np.ndarray], *args: Any) -> Any:
    try:
        return score(*args)
    except InputError as error:
        return error


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", range(0, N_TABLES, GROUP))
@pytest.mark.parametrize("name", LIBRARIES)
def test_tables(name: str, first: int, tmp_path: Path) -> None:
    library = LIBRARIES[name]
    equal: Counter[str] = Counter()
    refused: dict[str, list[str]] = {}
    for seed in range(first, first + GROUP):
        rng = np.random.default_rng([seed, len(name)])
        table = draw_table(rng, library.kinds, library.missing)
        model, score = library.train(table, rng, tmp_path)
        model.save(tmp_path / "model.gpuqs")
        model = gpuqs.load(tmp_path / "model.gpuqs")
        for frame in (table.train, changed(table, rng)):
            try:
                expected = score(frame)
            except Exception:  # each library has its own kinds
                continue
            outcomes = {kind: outcome_of(model.predict, make(frame, rng), "raw") for kind, make in KINDS.items()}
            outcomes |= from_files(model, frame, tmp_path)
            if model.forest.schema.in_order:
                placed = gpuqs.from_model(model.forest, categories=table.categories)
                outcomes["polars, placed"] = outcome_of(placed.predict, polars(frame, rng), "raw")
                outcomes |= {f"{file}, placed": got for file, got in from_files(placed, frame, tmp_path).items()}
            for kind, got in outcomes.items():
                if isinstance(got, InputError):
                    refused.setdefault(kind, []).append(str(got))
                    continue
                equal[kind] += 1
                assert got.dtype == expected.dtype
                same = got.view(f"i{got.itemsize}") == expected.view(f"i{got.itemsize}")
                assert same.all(), f"{kind} of table {seed}: {got[~same][:3]} for {expected[~same][:3]}"
    # LightGBM's file does not tell whether texts that its trees do not test were categories.
    always = [kind for kind in KINDS if kind != "polars" and (kind, name) != ("texts", "LightGBM")]
    assert min(equal[kind] for kind in always) > GROUP // 2, refused


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", LIBRARIES)
def test_texts_are_refused_nowhere(name: str, tmp_path: Path) -> None:
    """Categories that are texts keep their type in every kind of table, and in files."""
    for seed in range(4):
        rng = np.random.default_rng([seed, 7])
        table = draw_table(rng, LIBRARIES[name].kinds[:1], LIBRARIES[name].missing)
        if not table.categories:  # then nobody looks at what type CSV's columns have
            continue
        model, score = LIBRARIES[name].train(table, rng, tmp_path)
        expected = score(table.train)
        if model.forest.schema.in_order:  # else LightGBM's texts are refused where the trees do not test them
            model = gpuqs.from_model(model.forest, categories=table.categories)
        for make in KINDS.values():
            np.testing.assert_array_equal(model.predict(make(table.train, rng), "raw"), expected)
        for file, got in from_files(model, table.train, tmp_path).items():
            assert not isinstance(got, InputError), got
            np.testing.assert_array_equal(got, expected, err_msg=file)


def test_what_xgboost_cuts_short_is_refused(tmp_path: Path) -> None:
    """XGBoost keeps a frame's texts cut by characters as if these were bytes: "größe" and all after it are lost."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=200), "c": pd.Categorical(rng.choice(["größe", "abc", "bcd"], 200))})
    data = xgb.DMatrix(frame, rng.normal(size=200), enable_categorical=True)
    model = gpuqs.from_model(xgb.train({"nthread": 1}, data, 2))
    model.save(tmp_path / "model.gpuqs")
    for held in (model, gpuqs.load(tmp_path / "model.gpuqs")):
        for X in (frame, frame.astype({"c": str}), pa.Table.from_pandas(frame)):
            with pytest.raises(InputError, match=r"column 'c' has .*, whose categories are lost: XGBoost keeps texts"):
                held.predict(X)
        with pytest.raises(InputError, match="categories names 'c', whose categories are lost"):
            gpuqs.from_model(held.forest, categories={"c": ["abc", "bcd", "größe"]})
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
    with pytest.raises(InputError, match=r"column 'c' holds whole numbers.* categories=\{.*\}\)\.save"):
        model.predict(numbers)
    for held in (stated, gpuqs.load(tmp_path / "stated.gpuqs")):
        for X in (frame, numbers, pa.Table.from_pandas(numbers)):
            np.testing.assert_array_equal(held.predict(X, "raw"), expected)
        for file, got in from_files(held, numbers.astype({"x": "float64"}), tmp_path).items():
            np.testing.assert_array_equal(got, expected, err_msg=file)


@pytest.mark.parametrize("seen", ["zz", "w", "a"])
def test_xgboost_refuses_categories_that_it_has_not_seen(seen: str) -> None:
    """Always, as XGBoost says that it does; it takes some for their neighbours in the alphabet."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=99), "c": pd.Categorical(rng.choice(["x", "y", "z"], 99))})
    data = xgb.DMatrix(frame, rng.normal(size=99), enable_categorical=True)
    model = gpuqs.from_model(xgb.train({"nthread": 1}, data, 2))
    other = frame.assign(c=frame["c"].cat.add_categories([seen]))
    np.testing.assert_array_equal(model.predict(other), model.predict(frame))  # not in any row
    other.loc[7, "c"] = seen
    with pytest.raises(InputError, match=f"column 'c' holds the category '{seen}', which the model has not seen"):
        model.predict(other)
    with pytest.raises(InputError, match="'c' holds numbers, but the model's categories are texts"):
        model.predict(frame.assign(c=1))


def untold(name: str) -> tuple[Frame, Any]:
    """Frames whose category columns feature_infos does not tell, and LightGBM's categorical_feature."""
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
            assert "save that model for the command line" in result.output


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
        with pytest.raises(InputError, match=f"column '{dirty}' holds texts, but the model's trees .*categories="):
            model.predict(X)
    with pytest.raises(ValueError, match=r"pandas dtypes must be int, float or bool|categorical_feature do not match"):
        booster.predict(read)
    for command in ("score", "verify"):
        out = ["-o", str(tmp_path / "out.npy")] if command == "score" else []
        result = CliRunner().invoke(cli, [command, str(tmp_path / "model.txt"), str(tmp_path / "rows.csv"), *out])
        assert result.exit_code == 1, (command, result.output)
        assert f"column '{dirty}' holds texts" in result.output, (command, result.output)
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
    with pytest.raises(InputError, match="column 'c' holds whole numbers, but the model's trees test it as categories"):
        gpuqs.from_model(booster).predict(X)
