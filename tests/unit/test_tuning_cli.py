"""`gpuqs tune` and `gpuqs calibrate`: what they write, print and refuse."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from forests import probing_documents, random_forest

import gpuqs
from gpuqs.cli.commands import cli
from gpuqs.cpu_fallback import machine
from gpuqs.formats import native
from gpuqs.model import Model
from gpuqs.tuning import calibration

FOREST = random_forest(np.random.default_rng(0), n_trees=20)
X = probing_documents(np.random.default_rng(1), FOREST, 120)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    native.write(FOREST, "model.gpuqs")
    np.save("rows.npy", X)
    return tmp_path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(a) for a in arguments])


def test_the_model_is_written_with_its_plan(folder: Path) -> None:
    got = run("tune", "model.gpuqs", "rows.npy", "--budget", 0.1)
    assert got.exit_code == 0, got.output
    model = gpuqs.load("model.tuned.gpuqs")
    assert model.plan is not None and str(model.plan) in got.stdout
    assert [tuned.n_documents for tuned in model.plan.sizes] == [1, 10, 100, 120]
    assert "model.tuned.gpuqs: the model with its plan" in got.stderr
    assert gpuqs.load("model.gpuqs").plan is None
    np.testing.assert_array_equal(model.predict(X), Model(FOREST).predict(X))


def test_options_reach_the_tuner(folder: Path) -> None:
    arguments = ("--batch", 7, "--batch", 100, "--threads", 1, "--budget", 0.1, "-o", "here.gpuqs")
    assert run("tune", "model.gpuqs", "rows.npy", *arguments).exit_code == 0
    plan = gpuqs.load("here.gpuqs").plan
    assert plan is not None and [tuned.n_documents for tuned in plan.sizes] == [7, 100]
    assert {c.n_threads for tuned in plan.sizes for c in tuned.candidates} == {1}


def test_standard_input(folder: Path) -> None:
    rows, model = Path("rows.npy").read_bytes(), Path("model.gpuqs").read_bytes()
    quick = ("--budget", "0", "--batch", "3")
    command = [sys.executable, "-c", "from gpuqs.cli import main; main()", "tune"]
    for inputs, given in ((["model.gpuqs", "-", "-o", "a.gpuqs"], rows), (["-", "rows.npy", "-o", "b.gpuqs"], model)):
        subprocess.run([*command, *inputs, *quick], input=given, check=True, capture_output=True)
    assert gpuqs.load("a.gpuqs").plan == gpuqs.load("b.gpuqs").plan is not None
    got = run("tune", "-", "rows.npy")
    assert got.exit_code == 2 and "give the tuned model's file with -o" in got.output


def test_nothing_is_overwritten_silently(folder: Path) -> None:
    before = Path("model.gpuqs").read_bytes()
    got = run("tune", "model.gpuqs", "rows.npy", "-o", "model.gpuqs")
    assert got.exit_code == 2 and "is also the input" in got.output
    Path("model.tuned.gpuqs").write_text("precious")
    got = run("tune", "model.gpuqs", "rows.npy")
    assert got.exit_code == 2 and "model.tuned.gpuqs already exists" in got.output
    got = run("tune", "model.gpuqs", "rows.npy", "-o", "model.tuned.gpuqs")
    assert got.exit_code == 1 and "save under another name" in got.output and "Plan" not in got.output
    native.write(FOREST, "again.tuned.gpuqs")
    got = run("tune", "again.tuned.gpuqs", "rows.npy")  # the default name would be the input's own
    assert got.exit_code == 2 and "again.tuned.gpuqs already exists" in got.output
    assert Path("model.gpuqs").read_bytes() == before and Path("model.tuned.gpuqs").read_text() == "precious"


def test_the_plan_is_printed_though_the_file_cannot_be_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "t.gpuqs")

    monkeypatch.setattr(Model, "save", full)
    got = run("tune", "model.gpuqs", "rows.npy", "-o", "t.gpuqs", "--budget", "0")
    assert got.exit_code == 1 and "Plan for" in got.stdout and "No space left" in got.stderr


def test_a_model_does_not_replace_the_printed_plan(folder: Path) -> None:
    command = [sys.executable, "-c", "from gpuqs.cli import main; main()", "tune", "model.gpuqs", "rows.npy"]
    with open("both", "w") as out:
        got = subprocess.run([*command, "-o", "both"], stdout=out, stderr=subprocess.PIPE, text=True)
    assert got.returncode == 2 and "name a file" in got.stderr and Path("both").read_text() == ""


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("--budget", "nan"), 2, "nan is not a number of seconds"),
        (("--budget", "-1"), 2, "--budget"),
        (("--batch", "0"), 2, "--batch"),
        (("--threads", "0"), 2, "0 threads cannot score"),
        (("-o", "-"), 2, "name a file"),
        (("-o", ""), 2, "is empty"),
        (("--batch", "121", "-o", "t.gpuqs"), 1, "X holds 120 documents; batches of 121 need at least that many"),
        (("-o", "nowhere/t.gpuqs"), 2, "nowhere is not a folder"),
        (("-o", "/dev/stdout"), 2, "name a file"),
        (tuple(word for n in range(1, 66) for word in ("--batch", str(n))), 2, "65 sizes are too many"),
        (("--query", "q"), 2, "takes no --query"),
    ],
    ids=str,
)
def test_wrong_arguments(arguments: tuple[str, ...], status: int, said: str, folder: Path) -> None:
    got = run("tune", "model.gpuqs", "rows.npy", *arguments)
    assert got.exit_code == status and said in " ".join(got.output.split()), got.output
    assert sorted(path.name for path in folder.iterdir()) == ["model.gpuqs", "rows.npy"]


def test_no_documents(folder: Path) -> None:
    np.save("none.npy", X[:0])
    got = run("tune", "model.gpuqs", "none.npy")
    assert got.exit_code == 1 and "holds no documents" in got.output


def test_score_and_info_use_the_plan(folder: Path) -> None:
    run("tune", "model.gpuqs", "rows.npy", "--budget", 0.1, "--batch", 100)
    want = run("score", "model.gpuqs", "rows.npy").stdout
    assert run("score", "model.tuned.gpuqs", "rows.npy").stdout == want != ""
    plan = gpuqs.load("model.tuned.gpuqs").plan
    assert plan is not None
    got = run("score", "model.tuned.gpuqs", "rows.npy", "-o", "scores.npy")
    assert f"({plan.sizes[0].best.engine}, " in got.stderr
    assert "tuned for 100 documents a call" in " ".join(run("info", "model.tuned.gpuqs").output.split())
    assert "plan" not in run("info", "model.gpuqs").output


def test_calibrate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUQS_CALIBRATE", "1")
    monkeypatch.setenv("GPUQS_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(calibration, "_known", {})
    monkeypatch.setattr(calibration, "calibrate", lambda: {"walk": 1.5})
    got = run("calibrate")
    assert got.exit_code == 0 and got.stdout == "walk       1.50\n" and str(tmp_path) in got.stderr
    assert calibration.factor("walk", machine()) == 1.5
    monkeypatch.setattr(calibration, "calibrate", lambda: {})
    got = run("calibrate")
    assert got.exit_code == 1 and f"cannot be saved as {tmp_path}" in got.output
    monkeypatch.setenv("GPUQS_CALIBRATE", "0")
    got = run("calibrate")
    assert got.exit_code == 1 and "is turned off by GPUQS_CALIBRATE=0" in got.output
    monkeypatch.setenv("GPUQS_CALIBRATE", "1")
    monkeypatch.setattr(calibration, "cache_folder", lambda: None)
    got = run("calibrate")
    assert got.exit_code == 1 and "set GPUQS_CACHE_DIR to one" in got.output


def test_rows_of_a_table_are_coded_once(folder: Path) -> None:
    """For a CSV with a header, as for an array, tuning uses the first rows."""
    pytest.importorskip("lightgbm")
    text = io.StringIO()
    np.savetxt(text, np.nan_to_num(X[:30]), delimiter=",")
    Path("rows.csv").write_text(text.getvalue())
    got = run("tune", "model.gpuqs", "rows.csv", "--no-header", "--budget", 0)
    assert got.exit_code == 0, got.output
    plan = gpuqs.load("model.tuned.gpuqs").plan
    assert plan is not None and plan.sizes[-1].n_documents == 30
