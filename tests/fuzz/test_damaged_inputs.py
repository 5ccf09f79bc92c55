"""Inputs that once broke a reader, and newly damaged ones: refused by name, or scored equally on every engine.

`python -m fuzz.campaign` tries more of the latter, limits their time and memory, and keeps inputs that reach new lines.
"""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz.beside_libraries import LIBRARIES
from fuzz.checks import check_documents, check_model
from fuzz.seeds import FORMATS, format_of

CORPUS = sorted((Path(__file__).parents[1] / "data" / "fuzz").iterdir())
#: Inputs that are valid, however odd; all others must be refused.
SOUND = {"catboost_null_hashes.json", "gpuqs_huge_leaf_ids.gpuqs"}
#: Damaged inputs of each format, and how many are also given to its own library.
N_DAMAGED, N_BESIDE = 250, 150


@pytest.fixture(autouse=True)
def _without_what_others_left() -> None:
    """Collect garbage now: warnings about files that other tests left open must not be blamed on a reader here."""
    gc.collect()


def test_there_is_a_corpus() -> None:
    assert CORPUS


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_what_once_broke(path: Path, tmp_path: Path) -> None:
    data = path.read_bytes()
    path = tmp_path / path.name
    path.write_bytes(data)
    assert check_model(path, random.Random(3), every_engine=True) == (path.name in SOUND)


@pytest.mark.parametrize("name", FORMATS)
def test_seeds_and_what_becomes_of_them(name: str, tmp_path: Path) -> None:
    form, rng = format_of(name), random.Random(23)
    inputs = list(form.seeds)
    inputs += [form.damaged(rng) for _ in range(N_DAMAGED)]
    accepted = []
    for at, data in enumerate(inputs):
        path = tmp_path / str(at)
        path.write_bytes(data)
        try:
            accepted.append(check_documents(path) if form.documents else check_model(path, rng, every_engine=True))
        except Exception as error:
            pytest.fail(f"input {at}, kept at {path}: {type(error).__name__}: {error}")
        path.unlink()
    seeds, damaged = accepted[: len(form.seeds)], accepted[len(form.seeds) :]
    assert all(seeds) and any(damaged) and not all(damaged)


@pytest.mark.parametrize("name", LIBRARIES)
def test_what_its_library_takes_scores_as_there(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fuzz.beside_libraries", name, "--inputs", str(N_BESIDE)]
    tests = str(Path(__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((tests, *sys.path))}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stderr} in {tmp_path}"
    assert " same" in done.stdout and " refused" in done.stdout
