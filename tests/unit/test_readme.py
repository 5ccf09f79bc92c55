"""README stays correct: its code lines run, and its tables agree with the code."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import gpuqs
from gpuqs.cli.commands import cli
from gpuqs.engines import ENGINES, LEFT_OUT
from gpuqs.errors import DeviceError
from gpuqs.formats import table

ROOT = Path(__file__).parents[2]
README = ROOT.joinpath("README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.M | re.S)
PYTHON = [text for language, text in BLOCKS if language == "python"]
ON_CPU, ON_GPU = [[text for text in PYTHON if ("import cupy" in text) is gpu] for gpu in (False, True)]
SHELL = [line for language, text in BLOCKS if language == "sh" for line in text.splitlines()]


def test_every_block_is_python_or_shell() -> None:
    assert {language for language, _ in BLOCKS} == {"python", "sh"}
    assert len(ON_CPU) == 4 and len(ON_GPU) == 1 and len(SHELL) >= 6


# -- code --------------------------------------------------------------------------------------


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What README's lines presuppose: a model and rows in the working folder, and a training set."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 5))
    grade = np.digitize(X[:, 0] + X[:, 1] ** 2, [0, 1, 2])
    small = {"min_data_in_leaf": 2, "min_data_in_bin": 1, "verbose": -1, "num_threads": 1}
    data = lgb.Dataset(X, grade, group=[20] * 6)  # few rows, since README trains 1,000 trees
    booster = lgb.train({"objective": "lambdarank", **small}, lgb.Dataset(X, grade, group=[20] * 6), 5)
    booster.save_model("model.txt")
    lines = [
        f"{g} qid:{i // 20} " + " ".join(f"{j}:{v:.6g}" for j, v in enumerate(x))
        for i, (g, x) in enumerate(zip(grade, X, strict=True))
    ]
    Path("test.svm").write_text("\n".join(lines) + "\n")
    classifier = lgb.LGBMClassifier(n_estimators=5, **small).fit(X, np.array(list("abcd"))[grade])
    given = {"X": X, "y": grade, "np": np, "data": data, "classifier": classifier, "gpuqs": gpuqs}
    pipeline = make_pipeline(StandardScaler(), lgb.LGBMClassifier(n_estimators=5, **small)).fit(X, grade)
    return given | {"rows": X.astype(np.float32), "pipeline": pipeline}


def statements(block: str) -> Iterator[tuple[ast.stmt, str]]:
    """Each statement of a block, with its source lines."""
    for statement in ast.parse(block).body:
        yield statement, "\n".join(block.splitlines()[statement.lineno - 1 : statement.end_lineno])


def run(block: str, names: dict[str, Any]) -> None:
    """Run a block, a statement at a time; an expression whose comment is a value must have that value."""
    for statement, lines in statements(block):
        print(lines)  # shows which statement failed
        if not isinstance(statement, ast.Expr):
            exec(compile(ast.Module([statement], []), "README.md", "exec"), names)
            continue
        value = eval(compile(ast.Expression(statement.value), "README.md", "eval"), names)
        if lines.endswith("# True"):
            assert value is True, lines


@pytest.mark.parametrize("number", range(len(ON_CPU)))
def test_python_runs(number: int, names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    run(ON_CPU[number], names)
    X = names["X"]
    if "scores" in names:
        assert names["scores"].shape == (len(X),)
    if "booster" in names:
        booster = names["booster"]
        np.testing.assert_array_equal(names["scores"], booster.predict(X))
        np.testing.assert_array_equal(names["leaves"], booster.predict(X, pred_leaf=True))
        np.testing.assert_array_equal(names["first"], booster.predict(X, num_iteration=100))
        assert set(names["labels"]) <= set("abcd")
        assert names["model"].engine_for(10_000) in capsys.readouterr().out


TINY = (
    b"tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\nmax_feature_idx=0\nobjective=regression\n\n"
    b"Tree=0\nnum_leaves=1\nnum_cat=0\nleaf_value=1\n\nend of trees\n\nparameters:\nend of parameters\n"
)


def gpu_missing() -> str:
    """Why README's lines for GPUs cannot run here; empty if they can."""
    try:
        gpuqs.from_model(TINY).to("cuda:1")
    except DeviceError as error:
        return str(error)
    return ""


MISSING = gpu_missing()


def test_gpu_lines_compile_and_ask_for_a_device(names: dict[str, Any]) -> None:
    """Without a GPU, everything that a line calls must exist, and report that the device is missing."""
    (block,) = ON_GPU
    asks = [(statement, lines) for statement, lines in statements(block) if "cuda" in lines]
    assert len(list(statements(block))) == 5 and len(asks) == 2
    if not MISSING:
        return  # the lines run in the next test
    names["model"] = gpuqs.load("model.txt")
    for statement, _ in asks:
        with pytest.raises(DeviceError):
            exec(compile(ast.Module([statement], []), "README.md", "exec"), names)


@pytest.mark.skipif(bool(MISSING), reason=f"README's lines for GPUs cannot run here: {MISSING}")
def test_gpu_lines_run(names: dict[str, Any]) -> None:
    names["model"] = gpuqs.load("model.txt")
    run(ON_GPU[0], names)


@pytest.mark.parametrize("line", SHELL)
def test_shell_lines(line: str, names: dict[str, Any]) -> None:
    words = shlex.split(line, comments=True)
    if words[:2] == ["pip", "install"]:
        extras = re.findall(r"^(\w+) = \[", ROOT.joinpath("pyproject.toml").read_text(), re.M)
        wanted = re.fullmatch(r"\.(?:\[(\w+)\])?", words[2])
        assert wanted is not None and (wanted[1] is None or wanted[1] in extras)
        return
    assert words[0] == "gpuqs"
    outcome = CliRunner().invoke(cli, words[1:])
    assert outcome.exit_code == 0, outcome.output
    if "-o" in words:
        scores = np.load(words[words.index("-o") + 1])
        # The text file holds rounded values.
        assert scores.shape == (120,) and np.isfinite(scores).all()


# -- tables --------------------------------------------------------------------------------------


def test_the_table_of_formats_is_what_the_command_prints() -> None:
    assert CliRunner().invoke(cli, ["formats"]).output.strip() == table()
    assert table() in README, "replace README's table by what `gpuqs formats` prints"


def test_the_table_of_engines_lists_each_once() -> None:
    section = README.partition("## Engines")[2].partition("### ")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \|", section, re.M)) == sorted((*ENGINES, *LEFT_OUT))
