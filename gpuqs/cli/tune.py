"""`gpuqs tune`: plan how a model is scored fastest on this machine, and save it with the plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

from gpuqs.arrays import Documents, coded_rows
from gpuqs.cli.documents import open_data
from gpuqs.cli.models import load_model
from gpuqs.cli.progress import progress
from gpuqs.errors import InputError
from gpuqs.forest import Forest
from gpuqs.formats.native import check_target
from gpuqs.readers.source import STDIN
from gpuqs.tune import MAX_ROWS

#: Suffix of a tuned model's file, after the model's name.
_SUFFIX = ".tuned.gpuqs"


def output_of(model: Path) -> Path:
    """Where the tuned model goes by default: a new file next to the model.

    Raises
    ------
    UsageError
        That file exists, or the model is standard input.
    """
    if str(model) == STDIN:
        raise click.UsageError("MODEL is standard input; give the tuned model's file with -o")
    out = model.with_name(model.name.removesuffix(model.suffix).removesuffix(".tuned") + _SUFFIX)
    if out.exists():
        raise click.UsageError(f"{out} already exists; give the tuned model's file with -o")
    return out


def tune_file(
    model_path: Path,
    data: Path,
    *,
    out: Path,
    budget: float,
    batches: tuple[int, ...],
    categories: tuple[str, ...],
    device: str,
    n_threads: int | None,
    **reading: Any,
) -> None:
    """Tune the model on ``data``, print the plan, and write the model with it.

    Parameters are those of the command; ``reading`` goes to `gpuqs.readers.open_documents`.
    """
    check_target(out)  # before the time is spent
    model = load_model(model_path, categories).to(device)
    rows = _rows(data, model.forest, max((MAX_ROWS[model.device.kind], *batches)), categories, **reading)
    with progress("tuning") as advance:
        plan = model.tune(rows, budget, batch_sizes=batches or None, n_threads=n_threads, progress=advance)
    try:
        model.save(out)
    finally:  # the plan is not lost where the file cannot be written
        click.echo(str(plan))
    click.echo(f"{out}: the model with its plan", err=True)


def _rows(data: Path, forest: Forest, most: int, categories: tuple[str, ...], **reading: Any) -> np.ndarray | Documents:
    """The first documents of a file."""
    reader, values, n, coded = open_data(data, forest, categories, n_threads=1, **reading), [], 0, False
    for chunk in reader:
        values.append(chunk.values[: most - n])
        n, coded = n + len(values[-1]), chunk.table is not None
        if n >= most:
            break
    if not values:
        raise InputError(f"{reader.path}: holds no documents")
    rows = np.concatenate(values)
    return coded_rows(rows) if coded else rows
