"""`gpuqs verify` and the coding of frames: the training library codes them, and so does gpuqs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from gpuqs.cli.commands import cli
from gpuqs.formats import lightgbm as lightgbm_reader
from gpuqs.verify import Check, compare_made_rows, open_source, verify

lgb = pytest.importorskip("lightgbm")
pd = pytest.importorskip("pandas")

LEVELS = {"text": ["x", "y", "z"], "whole": [10, 20, 30]}


def frame_of(n: int = 300) -> tuple[Any, np.ndarray]:
    rng = np.random.default_rng(0)
    code = rng.integers(0, 3, (n, 3))
    frame = pd.DataFrame(
        {
            "a": rng.normal(size=n),
            "t": pd.Categorical.from_codes(code[:, 0], LEVELS["text"]),
            "w": pd.Categorical.from_codes(code[:, 1], LEVELS["whole"]),
            "o": pd.Categorical.from_codes(code[:, 2], [7, 5, 6], ordered=True),
        }
    )
    return frame, frame["a"].to_numpy() + code @ [1.0, 3.0, -2.0]


def lightgbm_file(folder: Path, columns: list[str]) -> Path:
    frame, target = frame_of()
    params = {"verbose": -1, "num_threads": 1, "min_data_per_group": 1, "cat_smooth": 1}
    booster = lgb.train(params, lgb.Dataset(frame[columns], target), 5)
    booster.save_model(folder / "model.txt")
    return folder / "model.txt"


def xgboost_file(folder: Path, columns: list[str]) -> Path:
    xgb = pytest.importorskip("xgboost")
    frame, target = frame_of()
    data = xgb.DMatrix(frame[columns], target, enable_categorical=True)
    xgb.train({"nthread": 1, "max_depth": 3}, data, 5).save_model(folder / "model.json")
    return folder / "model.json"


@pytest.mark.parametrize("width", ["int16", "int32", "int64"])
def test_whole_numbers_of_every_width(tmp_path: Path, width: str) -> None:
    xgb = pytest.importorskip("xgboost")
    frame, target = frame_of()
    frame["w"] = frame["w"].cat.rename_categories(frame["w"].cat.categories.astype(width))
    data = xgb.DMatrix(frame[["a", "w"]], target, enable_categorical=True)
    xgb.train({"nthread": 1, "max_depth": 3}, data, 5).save_model(tmp_path / "model.json")
    certificate = verify(tmp_path / "model.json", rows=100)
    assert certificate.ok and certificate.rows["made rows as frames"] > 80, certificate


def catboost_file(folder: Path, columns: list[str]) -> Path:
    catboost = pytest.importorskip("catboost")
    frame, target = frame_of()
    pool = catboost.Pool(frame[columns], target, cat_features=columns[1:])
    options = {"iterations": 5, "one_hot_max_size": 9, "verbose": 0, "allow_writing_files": False}
    catboost.CatBoostRegressor(**options).fit(pool).save_model(str(folder / "model.json"), format="json", pool=pool)
    return folder / "model.json"


@pytest.mark.filterwarnings("ignore")
def test_a_category_column_of_catboost_that_no_tree_tests(tmp_path: Path) -> None:
    catboost = pytest.importorskip("catboost")
    rng = np.random.default_rng(2)
    X = np.column_stack([rng.integers(0, 5, 300), np.full(300, 7), rng.integers(0, 100, 300)])
    options = {"iterations": 5, "one_hot_max_size": 9, "verbose": 0, "allow_writing_files": False}
    pool = catboost.Pool(X, X[:, 0] % 3 + X[:, 2] / 50, cat_features=[0, 1])
    model = catboost.CatBoostRegressor(**options).fit(pool)
    assert model.feature_importances_[1] == 0
    model.save_model(str(tmp_path / "model.json"), format="json", pool=pool)
    certificate = verify(tmp_path / "model.json", rows=100)
    assert certificate.ok and certificate.rows["made rows as frames"] > 80, certificate


FILES = {"LightGBM": lightgbm_file, "XGBoost": xgboost_file, "CatBoost": catboost_file}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FILES)
def test_categories_swapped_are_found(name: str, tmp_path: Path) -> None:
    path = FILES[name](tmp_path, ["a", "t", "w", "o"])
    certificate = verify(path, rows=200)
    assert certificate.ok and certificate.rows["made rows as frames"] > 150
    (tally,) = (tally for tally in certificate.tallies if tally.engine == "frames")
    assert tally.values == tally.values_agree == tally.scores > 150
    source = open_source(path)
    schema = source.forest.schema
    field = "in_order" if schema.in_order else "categories"
    lists = [known and (*known[:-2], known[-1], known[-2]) for known in getattr(schema, field)]
    if name == "CatBoost":  # there an integer and its string are one category
        lists = [known and known[::-1] for known in getattr(schema, field)]
    for at, known in enumerate(lists):
        if known is None:
            continue
        swapped = list(getattr(schema, field))
        swapped[at] = known
        check = Check(source, forest=replace(source.forest, schema=replace(schema, **{field: tuple(swapped)})))
        compare_made_rows(check, 200, 0, 1)
        assert not check.certificate.ok
        assert check.certificate.tallies[0].ok, "what arrays say of codes still agrees"
        assert check.certificate.frames[0].startswith("first disagreement about a frame: row ")
    # Swap the categories of two columns.
    swapped = [*getattr(schema, field)]
    first, second = [at for at, known in enumerate(swapped) if known is not None][1:3]
    swapped[first], swapped[second] = swapped[second], swapped[first]
    check = Check(source, forest=replace(source.forest, schema=replace(schema, **{field: tuple(swapped)})))
    compare_made_rows(check, 200, 0, 1)
    assert not check.certificate.ok


def test_the_command_fails_on_swapped_categories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = lightgbm_file(tmp_path, ["a", "t", "w", "o"])
    good = CliRunner().invoke(cli, ["verify", str(path), "--rows", "100"])
    assert good.exit_code == 0 and "made rows as frames" in good.output, good.output
    read = lightgbm_reader._category_lists
    monkeypatch.setattr(lightgbm_reader, "_category_lists", lambda text: tuple(known[::-1] for known in read(text)))
    bad = CliRunner().invoke(cli, ["verify", str(path), "--rows", "100"])
    assert bad.exit_code == 1 and "NOT verified" in bad.output
    assert "first disagreement about a frame" in bad.output and "'t' = " in bad.output


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_rows_of_a_file_with_categories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    frame, _ = frame_of()
    frame = frame[["a", "t"]]
    path = lightgbm_file(tmp_path, ["a", "t"])
    data = tmp_path / f"rows.{kind}"
    frame.to_parquet(data) if kind == "parquet" else frame.to_csv(data, index=False)
    good = CliRunner().invoke(cli, ["verify", str(path), str(data), "--rows", "0"])
    assert good.exit_code == 0 and "as frames" in good.output, good.output
    read = lightgbm_reader._category_lists
    monkeypatch.setattr(lightgbm_reader, "_category_lists", lambda text: tuple(known[::-1] for known in read(text)))
    bad = CliRunner().invoke(cli, ["verify", str(path), str(data), "--rows", "0"])
    assert bad.exit_code == 1 and "NOT verified" in bad.output


def test_a_frame_given_to_verify(tmp_path: Path) -> None:
    frame, _ = frame_of()
    path = lightgbm_file(tmp_path, ["a", "t", "w"])
    certificate = verify(path, frame[["w", "t", "a", "o"]], rows=0)
    assert certificate.ok and certificate.rows["rows of X as a frame"] == len(frame)


def catboost_file(folder: Path, columns: list[str]) -> Path:
    catboost = pytest.importorskip("catboost")
    frame, target = frame_of()
    named = [column for column in columns if column != "a"]
    model = catboost.CatBoostRegressor(iterations=5, verbose=0, allow_writing_files=False, thread_count=1)
    model.fit(frame[columns], target, cat_features=named).save_model(folder / "model.cbm")
    return folder / "model.cbm"


@pytest.mark.parametrize("make", [lightgbm_file, xgboost_file, catboost_file])
@pytest.mark.parametrize("header", [True, False])
def test_csv_without_names_and_with_numbers_as_categories(tmp_path: Path, header: bool, make: Any) -> None:
    """The library gets the model's column names, and categories of the type used in training."""
    model, (frame, _) = make(tmp_path, ["a", "t", "w"]), frame_of()
    frame[["a", "t", "w"]].to_csv(tmp_path / "rows.csv", index=False, header=header)
    named = () if make is catboost_file else ("--category", "t", "--category", "w")
    said = f"--{'' if header else 'no-'}header"
    done = CliRunner().invoke(cli, ["verify", str(model), str(tmp_path / "rows.csv"), said, *named, "--rows", "50"])
    assert done.exit_code == 0 and "300 rows of" in done.output, done.output
