"""Run the demo: score made-up documents with the bundled model on every engine, and compare."""

from __future__ import annotations

import gzip
import os
import shlex
import sys
import time
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from shutil import which
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

import gpuqs
from gpuqs import cpu_fallback
from gpuqs.demo.mslr import mslr_like
from gpuqs.engines import ENGINES
from gpuqs.errors import InputError
from gpuqs.files import replacing
from gpuqs.ranking import ndcg

if TYPE_CHECKING:
    from rich.console import Console

_YARDSTICK = "reference"
#: The speed-up's denominator.
_BASELINE = "walk"
_SECONDS_PER_ENGINE = 0.6
_MAX_RUNS = 15

N_QUERIES = 60
SEED = 0


@dataclass(frozen=True)
class EngineRun:
    """What one engine did with the demo's documents.

    Parameters
    ----------
    engine : str
    microseconds : float
        Per document, one thread, median of several runs.
    ndcg : float
        NDCG@10.
    difference : float
        Largest difference of any score from `reference`'s; any but zero is a defect.
    """

    engine: str
    microseconds: float
    ndcg: float
    difference: float


def bundled_model_bytes() -> bytes:
    """The bundled LambdaMART model, as a LightGBM text file."""
    packed = resources.files("gpuqs.demo").joinpath("model.txt.gz").read_bytes()
    return gzip.decompress(packed)


def bundled_model() -> gpuqs.Model:
    """The bundled LambdaMART model: 300 trees of 64 leaves, trained on `mslr_like` documents."""
    return gpuqs.load(bundled_model_bytes())


def time_engine(model: gpuqs.Model, X: np.ndarray, engine: str, seconds: float) -> tuple[np.ndarray, float]:
    """Scores, and microseconds per document: the median of runs on one thread for about ``seconds``."""
    scores = model.predict(X, engine=engine, n_threads=1)
    runs: list[float] = []
    while not runs or (sum(runs) < seconds and len(runs) < _MAX_RUNS):
        start = time.perf_counter()
        model.predict(X, engine=engine, n_threads=1)
        runs.append(time.perf_counter() - start)
    return scores, median(runs) / len(X) * 1e6


def run_engines(model: gpuqs.Model, X: np.ndarray, y: np.ndarray, qid: np.ndarray) -> list[EngineRun]:
    """Score with every engine of the CPU that can run the model here; the fastest first."""
    start = time.perf_counter()
    expected = model.predict(X, engine=_YARDSTICK, n_threads=1)
    yardstick = EngineRun(
        _YARDSTICK, (time.perf_counter() - start) / len(X) * 1e6, ndcg(y, expected, qid), 0.0
    )
    runs = [yardstick]
    for engine, reason in model.engines().items():
        if reason is None and engine != _YARDSTICK and ENGINES[engine].device == "cpu":
            scores, microseconds = time_engine(model, X, engine, _SECONDS_PER_ENGINE)
            difference = float(np.abs(scores - expected).max())
            runs.append(EngineRun(engine, microseconds, ndcg(y, scores, qid), difference))
    return sorted(runs, key=lambda run: run.microseconds)


def save_demo(folder: Path, n_queries: int = N_QUERIES, seed: int = SEED) -> tuple[Path, Path]:
    """Write the demo's model and documents as files, for trying the other commands.

    Returns
    -------
    model, documents : Path
        ``model.txt`` (LightGBM text) and ``documents.svm`` (svmlight with qid, ids from 0).

    Raises
    ------
    InputError
        One of them exists already.
    """
    folder.mkdir(parents=True, exist_ok=True)
    model, documents = folder / "model.txt", folder / "documents.svm"
    for path in (model, documents):
        if os.path.lexists(path):
            raise InputError(f"{path} exists already; give another folder, or remove it")
    X, y, qid = mslr_like(n_queries, seed)
    with replacing(model) as of_model, replacing(documents) as file:  # neither appears before both are complete
        of_model.write(bundled_model_bytes())
        for row, label, query in zip(X.tolist(), y.tolist(), qid.tolist(), strict=True):
            pairs = " ".join(f"{at}:{value!r}" for at, value in enumerate(row) if value)
            file.write(f"{label} qid:{query} {pairs}\n".encode("ascii"))
    return model, documents


def run_demo(console: Console, n_queries: int = N_QUERIES, seed: int = SEED) -> bool:
    """Score with every engine, print the table and what to try next.

    Returns
    -------
    bool
        Whether every engine gave exactly `reference`'s scores.
    """
    from rich.table import Table

    X, y, qid = mslr_like(n_queries, seed)
    model = bundled_model()
    console.print(
        f"{len(X):,} made-up documents of {n_queries} queries, {X.shape[1]} features as in MSLR-WEB; "
        f"LambdaMART model of {model.n_trees} trees, {model.n_leaves} leaves; "
        f"one thread, {cpu_fallback.isa()}.",
        highlight=False,
    )
    runs = run_engines(model, X, y, qid)
    baseline = next((run.microseconds for run in runs if run.engine == _BASELINE), None)
    table = Table("engine")
    for heading in (
        "µs/document",
        f"speed-up over {_BASELINE}",
        "NDCG@10",
        f"max difference from {_YARDSTICK}",
    ):
        table.add_column(heading, justify="right")
    for run in runs:
        speed_up = f"{baseline / run.microseconds:.3g}x" if baseline else "-"
        difference = f"{run.difference:g}" if run.difference == 0 else f"[bold red]{run.difference:.3g}[/]"
        table.add_row(run.engine, f"{run.microseconds:.3g}", speed_up, f"{run.ndcg:.4f}", difference)
    console.print(table)
    for engine, reason in model.engines().items():
        if reason is not None:
            console.print(f"{engine} did not run: {reason}", highlight=False, markup=False)
    wrong = [run.engine for run in runs if run.difference != 0]
    if wrong:
        console.print(
            f"Scores differ from {_YARDSTICK}: {', '.join(wrong)}. "
            "This is a defect of gpuqs; please report it with the table above.",
            style="bold red",
        )
        return False
    python, command = "python", "gpuqs"
    if Path(which(command) or "").parent != Path(sys.executable).parent:  # a virtual environment that is not activated
        python = shlex.quote(sys.executable)
        command = f"{python} -m gpuqs"
    console.print(
        "Every engine gave the same scores, bit for bit. Try next:\n"
        f"  {command} demo --save gpuqs-demo    # this model and its documents, as files\n"
        f"  {command} info gpuqs-demo/model.txt\n"
        f"  {command} score gpuqs-demo/model.txt gpuqs-demo/documents.svm -o scores.txt\n"
        f"  {command} score YOUR_MODEL YOUR_DATA -o scores.npy    # svmlight, CSV, .npy or Parquet\n"
        f'  {python} -c "import gpuqs; help(gpuqs.Model.predict)"',
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    return True
