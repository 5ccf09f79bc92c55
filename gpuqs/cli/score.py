"""`gpuqs score`: a file of documents to a file of scores, in bounded memory."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from gpuqs import cpu_fallback
from gpuqs.cli.documents import open_data
from gpuqs.cli.models import load_model
from gpuqs.cli.process import stop_no_more
from gpuqs.cli.progress import progress
from gpuqs.cli.writers import STDOUT, open_scores
from gpuqs.devices import HOST
from gpuqs.engines import ENGINES, LEFT_OUT
from gpuqs.errors import InputError
from gpuqs.ranking import NdcgMean
from gpuqs.readers import Chunk

if TYPE_CHECKING:
    from gpuqs.model import Model
    from gpuqs.outputs import Output, Precision

_NDCG_AT = 10


class _Ndcg:
    """NDCG as long as it can be computed; after the first obstacle, only the reason why not."""

    def __init__(self) -> None:
        self._mean = NdcgMean(_NDCG_AT)
        self._obstacle: str | None = None
        self._any = False

    def add(self, chunk: Chunk, scores: np.ndarray) -> None:
        if self._obstacle is not None or (chunk.queries is None and not self._any):
            return
        self._any = True
        if chunk.labels is None or chunk.queries is None:
            self._obstacle = "not every document has a label and a query id"
        elif scores.ndim > 1:
            self._obstacle = "the model gives several scores a document"
        else:
            try:
                self._mean.add(chunk.labels, scores, chunk.queries)
            except InputError as error:
                self._obstacle = str(error)

    def line(self) -> str | None:
        """What to print; None where the file has no queries."""
        if not self._any:
            return None
        if self._obstacle is None:
            try:
                mean = self._mean.result()
            except InputError as error:
                self._obstacle = str(error)
        if self._obstacle is not None:
            return f"NDCG@{_NDCG_AT}: none, as {self._obstacle}"
        empty = self._mean.n_empty
        note = f"; {empty:,} without relevant documents count 1, as in LightGBM" if empty else ""
        return f"NDCG@{_NDCG_AT} {mean:.6f} ({self._mean.n_queries:,} queries{note})"


def score_file(
    model_path: Path,
    data: Path,
    *,
    out: Path | None,
    categories: tuple[str, ...],
    engine: str,
    device: str,
    n_threads: int | None,
    precision: Precision,
    output: Output,
    num_iteration: int | None,
    **reading: Any,
) -> None:
    """Score ``data`` with the model; scores to ``out`` or standard output, the rest to standard error.

    Parameters are those of the command; ``reading`` goes to `gpuqs.readers.open_documents`.
    """
    began = time.perf_counter()
    model = load_model(model_path, categories).to(device)
    if engine != "auto" and engine not in model.engines():
        known, why = ", ".join(model.engines()), LEFT_OUT.get(engine, "")
        raise click.BadParameter(f"{engine!r} is not one of auto, {known}{why}", param_hint="--engine")
    threads = cpu_fallback.effective_threads(n_threads)
    asked = n_threads if model.plan else threads
    to_read = min(threads, cpu_fallback.default_threads())
    reader = open_data(data, model.forest, categories, n_threads=to_read, **reading)
    n_documents, scoring, ran = 0, 0.0, engine
    planned = None
    ndcg = _Ndcg()
    loading = time.perf_counter() - began
    reading_began = time.perf_counter()
    other = 0.0
    # A progress bar would mix with lines of scores.
    shown = out not in (None, STDOUT) or not sys.stdout.isatty()
    options: dict[str, Any] = {"precision": precision, "num_iteration": num_iteration}
    columns = "leaf" if output == "leaf" else "score"
    with open_scores(out, columns) as scores_out, progress(reader.path.name, shown) as advance:
        for chunk in reader:
            arrived = time.perf_counter()
            if n_documents == 0:
                # One engine for the whole file, prepared before the clock starts.
                if engine == "auto":
                    explained = model.explain(len(chunk.values))
                    ran, planned = explained.engine, explained.planned if n_threads is None else None
                if engine == "auto" and model.plan is None:
                    engine = ran
                model.warm_up(len(chunk.values), engine=engine, **options)
                loading += time.perf_counter() - arrived
            start = time.perf_counter()
            scores = model.predict(chunk.documents, output, engine=engine, n_threads=asked, **options)
            scoring += time.perf_counter() - start
            n_documents += len(scores)
            scores_out.write(scores)
            if output != "leaf":
                ndcg.add(chunk, scores)
            advance(reader.done, reader.size)
            other += time.perf_counter() - arrived
        reading_took = time.perf_counter() - reading_began - other
        if n_documents == 0:
            raise InputError(f"{reader.path}: holds no documents")
        quality = ndcg.line()  # whatever may fail does so before the scores are put in place
    stop_no_more()
    _say(f"{_count(n_documents, 'document')}, {_speed(n_documents, scoring)} ({_how(model, ran, threads, planned)})")
    _say(f"loading {loading:.3f} s, reading {reading_took:.3f} s, scoring {scoring:.3f} s")
    if quality:
        _say(quality)
    for warning in reader.warnings:
        _say(f"warning: {warning}")


def _say(line: str) -> None:
    click.echo(line, err=True)


def _speed(n_documents: int, seconds: float) -> str:
    seconds = max(seconds, 1e-9)
    return f"{seconds / n_documents * 1e6:.3g} us/document, {n_documents / seconds:,.0f} documents/s"


def _how(model: Model, engine: str, threads: int, planned: str | None) -> str:
    """``planned``: what the model's plan chose, its threads included, where calls went by it."""
    if engine == "reference":
        return f"{engine}, NumPy, 1 thread"
    if ENGINES[engine].device != "cpu":
        return f"{planned or engine}, {'cuda' if model.device is HOST else repr(model.device).strip('<>')}"
    isa = cpu_fallback.isa()
    return f"{planned}, {isa}" if planned else f"{engine}, {isa}, {_count(threads, 'thread')}"


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}" + ("" if n == 1 else "s")
