from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import gpuqs
import gpuqs.ranking
from gpuqs.cli.commands import cli
from gpuqs.cli.writers import open_scores
from gpuqs.demo import mslr_like

lightgbm = pytest.importorskip("lightgbm")


def gpuqs_command(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(a) for a in arguments])


def text_scores(result: Result) -> np.ndarray:
    assert result.exit_code == 0, result.output
    return np.loadtxt(result.stdout.splitlines(), delimiter="\t", ndmin=1)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, lightgbm.Booster]:
    X, y, qid = mslr_like(4, 1)
    data = lightgbm.Dataset(X, y, group=np.bincount(qid)[1:])
    booster = lightgbm.train({"objective": "lambdarank", "verbosity": -1, "num_leaves": 15}, data, 12)
    path = tmp_path_factory.mktemp("model") / "model.txt"
    booster.save_model(path)
    return path, booster


def write_svmlight(path: Path, X: np.ndarray, y: np.ndarray, qid: np.ndarray) -> Path:
    with open(path, "w") as file:
        for row, label, query in zip(X.tolist(), y, qid, strict=True):
            file.write(
                f"{label} qid:{query} " + " ".join(f"{j}:{x!r}" for j, x in enumerate(row) if x) + "\n"
            )
    return path


# -- score ----------------------------------------------------------------------------------


def test_lightgbms_own_example(lambdarank_data: Path, tmp_path: Path) -> None:
    data = lightgbm.Dataset(lambdarank_data / "rank.train")
    booster = lightgbm.train({"objective": "lambdarank", "verbosity": -1, "num_threads": 1}, data, 30)
    booster.save_model(tmp_path / "model.txt")
    rank_test = lambdarank_data / "rank.test"
    result = gpuqs_command("score", tmp_path / "model.txt", rank_test)
    np.testing.assert_array_equal(text_scores(result), booster.predict(rank_test))
    assert re.search(
        r"^768 documents, .* us/document, .* documents/s \(\w+, \w+, \d+ threads?\)$", result.stderr, re.M
    )
    assert re.search(r"^NDCG@10 0\.\d{6} \(50 queries", result.stderr, re.M)  # from rank.test.query


def test_numbers_as_categories_are_named(tmp_path: Path) -> None:
    """Neither a CSV file nor LightGBM's file says that the numbers are categories."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = pandas.DataFrame({
        "a": rng.normal(size=300),
        "b": pandas.Categorical(rng.choice(["x", "y"], 300)),
        "c": pandas.Categorical(rng.choice([3, 5, 9], 300)),
    })  # fmt: skip
    booster = lightgbm.train({"verbosity": -1}, lightgbm.Dataset(X, X.a + X.b.cat.codes - X.c.cat.codes), 5)
    model, data, out = tmp_path / "model.txt", tmp_path / "data.csv", tmp_path / "scores.npy"
    booster.save_model(model)
    X.to_csv(data, index=False)
    assert gpuqs_command("score", model, data, "-o", out).exit_code == 1
    named = ("--category", "b", "--category", "c")
    assert gpuqs_command("score", model, data, "-o", out, *named).exit_code == 0
    np.testing.assert_array_equal(np.load(out), booster.predict(X))
    verified = gpuqs_command("verify", model, data, *named, "--rows", 100)
    assert verified.exit_code == 0 and f"300 rows of {data}" in verified.stdout, verified.output
    assert gpuqs_command("tune", model, data, *named, "--budget", 0, "-o", tmp_path / "tuned.gpuqs").exit_code == 0
    assert gpuqs_command("score", tmp_path / "tuned.gpuqs", data, "-o", out).exit_code == 0
    np.testing.assert_array_equal(np.load(out), booster.predict(X))
    np.save(tmp_path / "codes.npy", np.column_stack([X.a, X.b.cat.codes, X.c.cat.codes]))
    codes = gpuqs_command("score", model, tmp_path / "codes.npy", *named)
    assert codes.exit_code == 2 and "holds codes of categories; leave out --category" in codes.stderr
    unknown = gpuqs_command("score", model, data, "--category", "d")
    assert unknown.exit_code == 1 and "'d'" in unknown.stderr


@pytest.mark.parametrize("suffix", ["npy", "parquet", "txt"])
@pytest.mark.parametrize("kind", ["svmlight", "csv", "npy", "parquet"])
def test_every_format_in_and_out(
    trained: tuple[Path, lightgbm.Booster], tmp_path: Path, kind: str, suffix: str
) -> None:
    import pandas
    import pyarrow.parquet

    model, booster = trained
    X, y, qid = mslr_like(2, 9)
    frame = pandas.DataFrame(X.astype(np.float64)).add_prefix("x").assign(qid=qid, label=y)
    data = tmp_path / f"documents.{kind}"
    if kind == "svmlight":
        write_svmlight(data, X, y, qid)
    elif kind == "csv":
        frame.to_csv(data, index=False)
    elif kind == "parquet":
        frame.to_parquet(data)
    else:
        with open(data, "wb") as file:
            np.save(file, X)
    out = tmp_path / f"scores.{suffix}"
    result = gpuqs_command("score", model, data, "-o", out, "--threads", 2)
    assert result.exit_code == 0 and result.stdout == "", result.output
    if suffix == "npy":
        scores = np.load(out)
    elif suffix == "parquet":
        scores = pyarrow.parquet.read_table(out)["score"].to_numpy()
    else:
        scores = np.array([float(line) for line in out.read_text().splitlines()])
    np.testing.assert_array_equal(scores, booster.predict(X))
    assert ("NDCG@10 " in result.stderr) == (kind != "npy")
    assert [path.name for path in tmp_path.glob("scores*")] == [out.name]


def test_xgboost_reads_svmlight_files_the_same_way(tmp_path: Path) -> None:
    xgboost = pytest.importorskip("xgboost")
    X, y, qid = mslr_like(2, 4)
    sparse = np.where(X == 0, np.nan, X)  # values that a file leaves out are missing
    booster = xgboost.train({"max_depth": 4}, xgboost.DMatrix(sparse, y), 8)
    booster.save_model(tmp_path / "model.json")
    data = write_svmlight(tmp_path / "documents.svm", X, y, qid)
    scores = text_scores(gpuqs_command("score", tmp_path / "model.json", data))
    np.testing.assert_array_equal(scores.astype(np.float32), booster.predict(xgboost.DMatrix(sparse)))
    assert (scores != text_scores(gpuqs_command("score", tmp_path / "model.json", _npy(tmp_path, X)))).any()


def _npy(folder: Path, X: np.ndarray) -> Path:
    np.save(folder / "x.npy", X)
    return folder / "x.npy"


def test_output_engine_and_precision_reach_the_model(tmp_path: Path) -> None:
    import pyarrow.parquet

    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    booster = lightgbm.train(
        {"objective": "binary", "verbosity": -1}, lightgbm.Dataset(X, rng.integers(0, 2, 200)), 5
    )
    booster.save_model(tmp_path / "model.txt")
    model, data = gpuqs.load(tmp_path / "model.txt"), _npy(tmp_path, X)

    def scores(*options: str) -> np.ndarray:
        return text_scores(gpuqs_command("score", tmp_path / "model.txt", data, *options))

    np.testing.assert_array_equal(scores(), booster.predict(X))
    np.testing.assert_array_equal(scores("--output", "raw"), booster.predict(X, raw_score=True))
    np.testing.assert_array_equal(scores("--num-iteration", "2"), booster.predict(X, num_iteration=2))
    np.testing.assert_array_equal(scores("--output", "leaf"), booster.predict(X, pred_leaf=True))
    few = scores("--output", "leaf", "--num-iteration", "2")
    np.testing.assert_array_equal(few, booster.predict(X, pred_leaf=True, num_iteration=2))
    gpuqs_command("score", tmp_path / "model.txt", data, "--output", "leaf", "-o", tmp_path / "leaves.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "leaves.parquet")
    assert list(table.column_names) == [f"leaf_{tree}" for tree in range(5)]
    np.testing.assert_array_equal(np.stack(table.columns, axis=1), booster.predict(X, pred_leaf=True))
    fast = scores("--output", "raw", "--precision", "fast", "--engine", "rankwalk", "--threads", "1")
    np.testing.assert_array_equal(fast, model.predict(X, "raw", precision="fast"))
    result = gpuqs_command("score", tmp_path / "model.txt", data, "--engine", "rankwalk", "--threads", "1")
    assert "(rankwalk, " in result.stderr and ", 1 thread)" in result.stderr
    result = gpuqs_command("score", tmp_path / "model.txt", data, "--engine", "reference", "--threads", "2")
    assert "(reference, NumPy, 1 thread)" in result.stderr
    model.tune(X, 0.0)
    model.save(tmp_path / "tuned")
    score = ("score", tmp_path / "tuned", data)
    planned = model.explain(len(X)).planned
    assert f"({planned}, " in gpuqs_command(*score).stderr if planned else "thread" in gpuqs_command(*score).stderr
    assert "(walk, " in gpuqs_command(*score, "--engine", "walk").stderr
    assert "-1 thread" not in gpuqs_command(*score, "--threads", -1).stderr


def test_chunks_change_nothing(
    trained: tuple[Path, lightgbm.Booster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, booster = trained
    monkeypatch.setattr("gpuqs.readers.base.CHUNK_BYTES", 1)
    X, y, qid = mslr_like(3, 10)
    data = write_svmlight(tmp_path / "documents.svm", X, y, qid)
    whole = gpuqs_command("score", model, data)
    np.testing.assert_array_equal(text_scores(whole), booster.predict(X))
    expected = gpuqs.ranking.ndcg(y, booster.predict(X), qid)
    assert f"NDCG@10 {expected:.6f} (3 queries" in whole.stderr


def test_ids_from_one(trained: tuple[Path, lightgbm.Booster], tmp_path: Path) -> None:
    model, booster = trained
    data = tmp_path / "documents.svm"
    data.write_text("1 qid:1 1:3 136:7\n")
    result = gpuqs_command("score", model, data)
    assert result.exit_code == 1
    assert "no feature 136" in result.stderr and "--one-based" in result.stderr
    X = np.zeros((1, 136))
    X[0, [0, 135]] = 3, 7
    assert text_scores(gpuqs_command("score", model, data, "--one-based")) == booster.predict(X)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("1 qid:2 0:1\n0 qid:1 0:1\n0 qid:2 0:1\n", "query 2: its documents are not together"),
        ("0.5 qid:2 0:1\n", r"label 0\.5 is not a relevance grade"),
        ("qid:2 0:1\n", "not every document has a label and a query id"),
    ],
)
def test_ndcg_that_cannot_be_had_is_explained(
    trained: tuple[Path, lightgbm.Booster], tmp_path: Path, lines: str, reason: str
) -> None:
    data = tmp_path / "documents.svm"
    data.write_text(lines)
    result = gpuqs_command("score", trained[0], data)
    assert len(text_scores(result)) == lines.count("\n")
    assert re.search(f"^NDCG@10: none, as .*{reason}", result.stderr, re.M)


def test_queries_without_relevant_documents_are_mentioned(
    trained: tuple[Path, lightgbm.Booster], tmp_path: Path
) -> None:
    data = tmp_path / "documents.svm"
    data.write_text("1 qid:1 0:1\n0 qid:2 0:1\n")
    result = gpuqs_command("score", trained[0], data)
    assert (
        "NDCG@10 1.000000 (2 queries; 1 without relevant documents count 1, as in LightGBM)" in result.stderr
    )


def test_an_error_leaves_no_file(trained: tuple[Path, lightgbm.Booster], tmp_path: Path) -> None:
    data = tmp_path / "documents.svm"
    data.write_text("1 0:1\n1 0:x\n")
    for suffix in ("txt", "npy", "parquet"):
        out = tmp_path / f"scores.{suffix}"
        out.write_text("older scores")
        result = gpuqs_command("score", trained[0], data, "-o", out)
        assert result.exit_code == 1
        assert result.stderr == f"Error: {data}, line 2: the value of '0:x' is not a number\n"
        assert out.read_text() == "older scores"
    assert not list(tmp_path.glob("*.part"))


def test_no_documents(trained: tuple[Path, lightgbm.Booster], tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((0, 136)))
    result = gpuqs_command("score", trained[0], tmp_path / "x.npy", "-o", tmp_path / "scores.npy")
    assert (result.exit_code, result.stderr) == (1, f"Error: {tmp_path / 'x.npy'}: holds no documents\n")
    assert not (tmp_path / "scores.npy").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--engine", "warp"], "'warp' is not one of auto, "),
        (["--threads", "0"], "0 threads cannot score"),
        (["--precision", "exakt"], "'exakt' is not one of 'exact', 'fast'"),
        (["--format", "npy"], "not a readable .npy file"),
        (["-o", "no/such/folder/x.npy"], "No such file or directory"),
    ],
)
def test_bad_options(
    trained: tuple[Path, lightgbm.Booster], tmp_path: Path, options: list[str], message: str
) -> None:
    data = tmp_path / "documents.svm"
    data.write_text("1 0:1\n")
    result = gpuqs_command("score", trained[0], data, *options)
    assert result.exit_code != 0 and message in result.stderr
    assert "Traceback" not in result.output


def test_a_number_of_rows_that_nobody_makes(trained: tuple[Path, lightgbm.Booster]) -> None:
    result = gpuqs_command("verify", trained[0], "--rows", "9" * 20)
    assert result.exit_code == 2 and f"{'9' * 20} is not in the range 0<=x<=10" in result.stderr


def test_a_list_that_goes_on_keeps_its_dots(trained: tuple[Path, lightgbm.Booster], tmp_path: Path) -> None:
    data = tmp_path / "documents.csv"
    data.write_text(f"{','.join(f'Column_{at}' for at in range(136))}\n{','.join('1' * 136)}\n")
    result = gpuqs_command("score", trained[0], data, "--label", "nothing")
    assert result.exit_code == 2 and "'Column_7', ... (see cli score --help)" in result.stderr, result.stderr
    result = gpuqs_command("score", trained[0], data, "--threads", "x")
    assert "'x' is not a valid integer (see cli score --help)" in result.stderr


def test_missing_and_wrong_files(tmp_path: Path) -> None:
    (tmp_path / "model.txt").write_text("not a model")
    assert "does not exist" in gpuqs_command("score", tmp_path / "nothing", tmp_path / "nothing").stderr
    result = gpuqs_command("info", tmp_path / "model.txt")
    assert result.exit_code == 1 and result.stderr.startswith(f"Error: {tmp_path / 'model.txt'}")


# -- writers --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_read_back_exactly(tmp_path: Path, dtype: type) -> None:
    rng = np.random.default_rng(0)
    scores = np.concatenate([rng.normal(size=50), 10.0 ** rng.uniform(-37, 37, 50), [0.0, -0.0]]).astype(
        dtype
    )
    for name in ("s.txt", "s.npy"):
        with open_scores(tmp_path / name) as writer:
            writer.write(scores[:40])
            writer.write(scores[40:])
    lines = (tmp_path / "s.txt").read_text().splitlines()
    for back in (np.array(lines).astype(dtype), np.load(tmp_path / "s.npy")):
        assert back.dtype == scores.dtype and back.tobytes() == scores.tobytes()


def test_several_scores_a_document(tmp_path: Path) -> None:
    import pyarrow.parquet

    scores = np.arange(12.0).reshape(4, 3)
    for name in ("s.txt", "s.npy", "s.parquet"):
        with open_scores(tmp_path / name) as writer:
            writer.write(scores[:1])
            writer.write(scores[1:])
    np.testing.assert_array_equal(np.loadtxt(tmp_path / "s.txt", delimiter="\t"), scores)
    np.testing.assert_array_equal(np.load(tmp_path / "s.npy"), scores)
    table = pyarrow.parquet.read_table(tmp_path / "s.parquet")
    assert table.column_names == ["score_0", "score_1", "score_2"]
    np.testing.assert_array_equal(np.stack([c.to_numpy() for c in table.columns], axis=1), scores)


# -- info, demo, the rest -------------------------------------------------------------------


def test_info(trained: tuple[Path, lightgbm.Booster]) -> None:
    path, booster = trained
    result = gpuqs_command("info", path)
    assert result.exit_code == 0
    text = result.stdout
    assert re.search(r"trained by +│ LightGBM", text)
    assert re.search(r"objective +│ lambdarank", text)
    assert re.search(r"trees +│ 12 ", text)
    assert re.search(r"leaves +│ 180; 15 a tree", text)
    used = int((booster.feature_importance() > 0).sum())
    assert re.search(rf"features +│ {used} used of 136", text)
    for engine, reason in gpuqs.load(path).engines().items():
        assert re.search(rf"{engine} +│ {'yes' if reason is None else 'no: '}", text)


def test_info_says_why_an_engine_cannot(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 3))
    parameters = {"num_leaves": 150, "min_data_in_leaf": 1, "verbosity": -1}
    lightgbm.train(parameters, lightgbm.Dataset(X, rng.normal(size=2000)), 2).save_model(tmp_path / "m.txt")
    text = gpuqs_command("info", tmp_path / "m.txt").stdout
    assert re.search(r"rankwalk +│ no: .*128", text)
    assert re.search(r"walk +│ yes", text)


def test_demo_exits_with_one_where_engines_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuqs.demo.run_demo", lambda console: False)
    assert gpuqs_command("demo").exit_code == 1
    monkeypatch.setattr("gpuqs.demo.run_demo", lambda console: True)
    assert gpuqs_command("demo").exit_code == 0


def test_demo_saves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "gpuqs.demo.save_demo", lambda folder: (folder / "model.txt", folder / "documents.svm")
    )
    result = gpuqs_command("demo", "--save", tmp_path / "demo")
    assert result.stdout.split() == [str(tmp_path / "demo" / name) for name in ("model.txt", "documents.svm")]


def test_help_names_the_commands() -> None:
    assert {"score", "info", "demo"} <= set(gpuqs_command("--help").stdout.split())


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "gpuqs", "formats"], capture_output=True, text=True, check=True)
    assert done.stdout == gpuqs_command("formats").stdout


@pytest.mark.parametrize("package", ["click", "rich"])
def test_a_missing_extra_is_named(package: str) -> None:
    # In a separate process: `main` takes over signals and standard output until the process ends.
    code = f"import sys; sys.modules[{package!r}] = None; from gpuqs.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == f"Error: the command line needs {package}: pip install 'gpuqs[cli]'\n"


def test_help_imports_nothing_heavy() -> None:
    code = "import sys, gpuqs.cli.commands; print(*{'pyarrow', 'pandas', 'gpuqs.demo'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
