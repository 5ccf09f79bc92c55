"""What each command takes; what it does is in the modules that it imports when it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import click

from gpuqs.errors import GpuqsError

_FILE = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)


@contextmanager
def _one_line_errors() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # click ends quietly where nobody reads on
        raise
    except (GpuqsError, OSError) as error:
        raise click.ClickException(str(error)) from error
    except MemoryError as error:
        raise click.ClickException(f"out of memory: {error}" if str(error) else "out of memory") from error


def _errors_in_one_line(command: Callable[..., None]) -> Callable[..., None]:
    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        with _one_line_errors():
            command(*args, **kwargs)

    return wrapped


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="gpuqs")
def cli() -> None:
    """Score documents with large ensembles of decision trees, exactly as the training library does."""


@cli.command()
@click.argument("model", type=_FILE)
@click.argument("data", type=_FILE)
@click.option(
    "-o",
    "--out",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Where scores go: .npy, .parquet, or text, one line a document. Default: standard output.",
)
@click.option("--engine", default="auto", show_default=True, help="An engine that `gpuqs info MODEL` lists.")
@click.option("--threads", type=click.IntRange(min=1), help="Threads to read and score with.  [default: all]")
@click.option(
    "--precision",
    type=click.Choice(["exact", "fast"]),
    default="exact",
    show_default=True,
    help="exact: the training library's scores, bit for bit. fast: sums in 24-bit fixed point.",
)
@click.option(
    "--output",
    type=click.Choice(["value", "raw"]),
    default="value",
    show_default=True,
    help="value: what the library's predict gives. raw: before the link (sigmoid, ...).",
)
@click.option(
    "--format",
    type=click.Choice(["svmlight", "csv", "npy", "parquet"]),
    help="What DATA is.  [default: found by its content]",
)
@click.option(
    "--one-based/--zero-based",
    default=False,
    help="svmlight: the id of the model's first feature. LightGBM and XGBoost take ids in files as column "
    "numbers from 0, even if they start at 1.  [default: zero-based]",
)
@click.option("--label", metavar="NAME", help="CSV, Parquet: column of relevance labels.  [default: label]")
@click.option("--query", metavar="NAME", help="CSV, Parquet: column of query ids.  [default: qid]")
@_errors_in_one_line
def score(
    model: Path,
    data: Path,
    out: Path | None,
    engine: str,
    threads: int | None,
    precision: str,
    output: str,
    format: str | None,
    one_based: bool,
    label: str | None,
    query: str | None,
) -> None:
    """Score the documents of DATA with MODEL.

    DATA is svmlight/LETOR text, CSV or TSV, .npy or Parquet, of any size: it is read in chunks.
    NDCG@10 is printed where DATA has labels and query ids (or DATA.query holds query sizes).
    """
    from gpuqs.cli.score import score_file

    score_file(
        model,
        data,
        out=out,
        engine=engine,
        n_threads=threads,
        precision=precision,
        output=output,
        format=format,
        first_id=int(one_based),
        label=label,
        query=query,
    )


@cli.command()
@click.argument("model", type=_FILE)
@_errors_in_one_line
def info(model: Path) -> None:
    """Say what is in MODEL, and which engines can run it here."""
    from gpuqs.cli.info import print_info

    print_info(model)


@cli.command()
def formats() -> None:
    """List the formats of models that are read, and what of them."""
    from gpuqs.formats import table

    click.echo(table())


@cli.command()
@click.argument("model", type=_FILE)
@click.argument("data", type=_FILE, required=False)
@click.option(
    "--engine",
    "engines",
    multiple=True,
    default=("auto",),
    show_default=True,
    help="An engine that `gpuqs info MODEL` lists, or all; may be given several times. auto: those that are "
    "chosen for one document and for many.",
)
@click.option("--rows", type=click.IntRange(min=0), help="Rows to make.  [default: as many as take seconds]")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the rows that are made.")
@click.option("--threads", type=click.IntRange(min=1), help="Threads to score with.  [default: all]")
@click.option(
    "--format",
    type=click.Choice(["svmlight", "csv", "npy", "parquet"]),
    help="What DATA is.  [default: found by its content]",
)
@click.option("--one-based/--zero-based", default=False, help="svmlight: the id of the model's first feature.")
@click.option("--label", metavar="NAME", help="CSV, Parquet: column of relevance labels.  [default: label]")
@click.option("--query", metavar="NAME", help="CSV, Parquet: column of query ids.  [default: qid]")
@_errors_in_one_line
def verify(
    model: Path,
    data: Path | None,
    engines: tuple[str, ...],
    rows: int | None,
    seed: int,
    threads: int | None,
    format: str | None,
    one_based: bool,
    label: str | None,
    query: str | None,
) -> None:
    """Compare gpuqs with the library that MODEL came from, which must be installed.

    Rows are made on the thresholds of the model, one unit in the last place beside them, with missing,
    infinite and special values and unseen categories; DATA's rows are compared, too. Exit leaves and raw
    scores of both must be the same, bit for bit; the exit status is 1 where they are not.
    """
    from gpuqs.cli.verify import verify_file

    agrees = verify_file(
        model,
        data,
        engines=list(engines),
        rows=rows,
        seed=seed,
        n_threads=threads,
        format=format,
        first_id=int(one_based),
        label=label,
        query=query,
    )
    if not agrees:
        raise SystemExit(1)


@cli.command()
@click.option(
    "--save",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Only write the demo's model and documents there.",
)
@_errors_in_one_line
def demo(save: Path | None) -> None:
    """Score made-up documents on every engine, and compare."""
    from rich.console import Console

    from gpuqs.demo import run_demo, save_demo

    if save is not None:
        for path in save_demo(save):
            click.echo(path)
    elif not run_demo(Console()):
        raise SystemExit(1)
