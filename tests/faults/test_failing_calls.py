"""Calls for memory, machine code, threads and files fail at each place in turn: clear error or success, nothing lost.

scenarios.py holds what is tried, sweep.py what must hold, failing_calls.cpp how calls are made to fail.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from agreement import ON_CPU_ANY_SHAPE
from faults.preload import run_preloaded
from fuzz.seeds import MODELS, seeds_of
from interpreter_lock import HAS_LOCK

import gpuqs
from gpuqs import cpu_fallback

pytestmark = pytest.mark.skipif(
    not HAS_LOCK, reason="free-threaded Python takes memory by calls that are not made to fail"
)

COMPILED = [name for name in ON_CPU_ANY_SHAPE if name != "reference"]
#: Calls that touch files.
FILES = ("open", "read", "close")


@pytest.fixture
def sweep(library: Callable[[str], Path]) -> Callable[..., dict[str, int]]:
    """``sweep(scenario, kinds, *arguments)``: how many calls of each kind failed, singly or from one call on."""

    def run(scenario: str, kinds: tuple[str, ...], *arguments: object, **environment: str) -> dict[str, int]:
        words = (scenario, ",".join(kinds), *map(str, arguments))
        told = json.loads(run_preloaded(library("failing_calls.cpp"), "sweep.py", *words, **environment))
        print("failed:", json.dumps(told))  # pytest -rP shows it
        return {kind: sum(outcomes.values()) for kind, outcomes in told.items()}

    return run


@pytest.mark.parametrize("format", MODELS)
def test_loading(format: str, sweep: Callable[..., dict[str, int]], tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_bytes(seeds_of(format)[-1])
    failed = sweep("load", (*FILES, "map", "large_memory"), path)
    assert all(failed[kind] > 1 for kind in (*FILES, "large_memory"))


# With few documents, threads share out the trees.
@pytest.mark.parametrize(("n_threads", "n"), [(1, 700), (2, 700), (2, 5)])
@pytest.mark.parametrize("engine", COMPILED)
def test_first_use_of_an_engine(engine: str, n_threads: int, n: int, sweep: Callable[..., dict[str, int]]) -> None:
    failed = sweep("predict", ("own_memory", "large_memory", "map", "protect"), engine, n_threads, n)
    # Small scratch is reused from earlier runs, and compiled loops build layouts without NumPy allocations.
    shared = not (engine == "walk" and n == 5)  # its trees form one block if the registers can gather
    assert failed["own_memory"] > 5 and failed["large_memory"] > shared
    machine_code = engine == "bitslice" and cpu_fallback.compiles_programs()
    assert machine_code == (failed["protect"] > 0)


def test_programs_that_are_interpreted(sweep: Callable[..., dict[str, int]]) -> None:
    failed = sweep("predict", ("own_memory", "large_memory"), "bitslice", 2, 700, GPUQS_MACHINE_CODE="0")
    assert failed["own_memory"] > 10 and failed["large_memory"] > 3


def test_the_first_calls_of_a_thread(sweep: Callable[..., dict[str, int]]) -> None:
    assert sweep("new thread", ("own_memory",))["own_memory"] > 2


@pytest.mark.parametrize("n_threads", [1, 2])
def test_encoding(n_threads: int, sweep: Callable[..., dict[str, int]]) -> None:
    failed = sweep("encode", ("own_memory", "large_memory", "map", "protect"), n_threads)
    assert failed["own_memory"] > 20 and failed["large_memory"] > 3


@pytest.mark.parametrize("engine", COMPILED)
def test_threads_that_do_not_start(engine: str, sweep: Callable[..., dict[str, int]]) -> None:
    assert sweep("predict", ("thread",), engine, 4, 3000)["thread"] >= 3


def test_saving_over_a_file(sweep: Callable[..., dict[str, int]], tmp_path: Path) -> None:
    failed = sweep("save", ("open", "write", "fsync", "close", "rename", "large_memory"), tmp_path)
    assert all(failed.values())


@pytest.fixture(scope="session")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model and 300 documents in every format that the command reads."""
    import pyarrow
    from pyarrow import parquet

    folder = tmp_path_factory.mktemp("documents")
    model = folder / "model.txt"
    model.write_bytes(seeds_of("LightGBM text")[0])
    n_features = gpuqs.load(model).n_features
    X = np.random.default_rng(1).normal(size=(300, n_features))
    np.save(folder / "data.npy", X)
    names = [f"Column_{at}" for at in range(n_features)]
    parquet.write_table(pyarrow.table(dict(zip(names, X.T, strict=True))), folder / "data.parquet")
    lines = [",".join(map(str, row)) for row in (names, *X.tolist())]
    (folder / "data.csv").write_text("\n".join(lines))
    rows = [" ".join(f"{id}:{x!r}" for id, x in enumerate(row)) for row in X.tolist()]
    (folder / "data.svm").write_text("".join(f"{at % 3} qid:{at // 10} {row}\n" for at, row in enumerate(rows)))
    return folder


@pytest.mark.parametrize(
    ("data", "out"),
    [
        ("data.npy", "scores.npy"),
        ("data.svm", "scores.txt"),
        ("data.svm", "scores.npy"),
        ("data.csv", "scores.txt"),
        ("data.parquet", "scores.parquet"),
    ],
)
def test_the_command(
    data: str, out: str, documents: Path, sweep: Callable[..., dict[str, int]], tmp_path: Path
) -> None:
    # Arrow's own code need not survive failing allocations.
    arrow = data.endswith(("csv", "parquet")) or out.endswith("parquet")
    kinds = (*FILES, "write", "rename", "own_memory", *(() if arrow else ("map", "large_memory")))
    failed = sweep("score", kinds, documents / "model.txt", documents / data, tmp_path / out, 1)
    assert all(failed[kind] for kind in (*FILES, "write", "rename", "own_memory"))


def test_the_command_where_threads_do_not_start(
    documents: Path, sweep: Callable[..., dict[str, int]], tmp_path: Path
) -> None:
    paths = documents / "model.txt", documents / "data.svm", tmp_path / "scores.npy"
    assert sweep("score", ("thread",), *paths, 4)["thread"] > 0
