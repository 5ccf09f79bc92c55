"""Builds without QuickScorer, or no build at all: which engines are listed, and the errors for missing ones."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from forests import random_forest

import gpuqs
from gpuqs.cli.commands import cli
from gpuqs.cpu_fallback import QUICKSCORER
from gpuqs.demo.run import bundled_model_bytes
from gpuqs.devices.sources import source_folder
from gpuqs.engines import ENGINES, LEFT_OUT

OF_QUICKSCORER = {"qs", "vqs", "bwqs", "qs_oblivious", "qs_gpu"}

#: Run by a process that creates the lists of such a build, whatever this build is.
WITHOUT = """
from gpuqs import cpu_fallback
cpu_fallback.QUICKSCORER = False
from gpuqs.engines import ENGINES, LEFT_OUT
print(*ENGINES)
print(*LEFT_OUT)
import numpy as np, gpuqs
model = gpuqs.from_model(bytes.fromhex(input()))
X = np.zeros((1, model.n_features))
print(set(model.engines()) == {choice.engine for choice in model.explain().choices} == set(ENGINES))
print(np.array_equal(model.predict(X), model.predict(X, engine="reference")))
for options in ({"engine": "qs"}, {"engine": "qs_gpu"}):
    try:
        model.predict(X, **options)
    except Exception as error:
        print(type(error).__name__, error)
"""


@pytest.fixture(scope="module")
def model_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("model") / "model"
    gpuqs.from_model(random_forest(np.random.default_rng(0), n_trees=3)).save(path)
    return path.read_bytes()


def test_the_engines_of_quickscorer_are_all_there_or_none() -> None:
    assert ENGINES.keys() & OF_QUICKSCORER == (OF_QUICKSCORER if QUICKSCORER else set())
    assert LEFT_OUT.keys() == (set() if QUICKSCORER else OF_QUICKSCORER)


def test_without_quickscorer(model_bytes: bytes) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], input=model_bytes.hex(), capture_output=True, text=True, check=True
    )
    engines, left_out, listed, agrees, *errors = done.stdout.splitlines()
    assert set(engines.split()) == {"bitslice", "rankwalk", "walk", "reference", "bitslice_gpu", "walk_gpu"}
    assert set(left_out.split()) == OF_QUICKSCORER
    assert (listed, agrees) == ("True", "True")
    assert [error.split()[0] for error in errors] == ["ValueError", "ValueError"]
    assert all("GPUQS_QUICKSCORER=OFF" in error and "-Ccmake.define.GPUQS_QUICKSCORER=ON" in error for error in errors)


@pytest.mark.skipif(QUICKSCORER, reason="needs a build without QuickScorer: make without-quickscorer")
@pytest.mark.parametrize("command", ["score", "verify"])
def test_commands_name_the_option(command: str, tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(bundled_model_bytes())
    np.save(tmp_path / "X.npy", np.zeros((1, 136)))
    said = CliRunner().invoke(cli, [command, f"{tmp_path}/model", f"{tmp_path}/X.npy", "--engine", "qs"])
    assert said.exit_code == 2 and "GPUQS_QUICKSCORER=OFF" in said.output


@pytest.mark.skipif(QUICKSCORER, reason="needs a build without QuickScorer: make without-quickscorer")
def test_no_kernel_of_quickscorer_is_installed() -> None:
    installed = {file.name for file in source_folder().iterdir()}
    of_quickscorer = {f"{name}.cu" for name in ("exit_leaves", "find_false_nodes", "update_outputs", "update_scores")}
    assert "slots.cu" in installed and not installed & (of_quickscorer | {"leaf_indexes.cuh"})


def test_sources_without_what_is_compiled_say_so(tmp_path: Path) -> None:
    (tmp_path / "gpuqs").mkdir()
    for name in ("__init__.py", "errors.py", "version.py"):
        shutil.copy(Path(gpuqs.__file__).with_name(name), tmp_path / "gpuqs")
    told = subprocess.run(
        [sys.executable, "-S", "-c", "from gpuqs import cpu_fallback"],
        cwd=tmp_path,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        capture_output=True,
        text=True,
    )
    assert told.returncode == 1
    assert "holds gpuqs's sources without the compiled modules" in told.stderr.splitlines()[-1]


@pytest.mark.parametrize("first", ["gpuqs.load('model.txt')", "gpuqs.from_model('model.txt')", "gpuqs.Model"])
def test_the_sources_first_use_says_so(tmp_path: Path, first: str) -> None:
    package = Path(gpuqs.__file__).parent
    shutil.copytree(package, tmp_path / "gpuqs", ignore=shutil.ignore_patterns("cpu_fallback", "__pycache__"))
    told = subprocess.run(
        [sys.executable, "-c", f"import gpuqs; {first}"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert told.returncode == 1
    assert "holds gpuqs's sources without the compiled modules" in told.stderr.splitlines()[-1]
