"""The arguments of each command; what it does is in the modules that it imports when it runs."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from gpuqs.cli.clashes import same
from gpuqs.cli.endings import EXIT_STATUS, FAILED, Commands
from gpuqs.files import names_own

_FILE = click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True, path_type=Path)
_STDIN = _STDOUT = Path("-")


def _takes_device(what: str) -> Callable[..., Any]:
    def known(ctx: click.Context, option: click.Parameter, value: str) -> str:
        if not re.fullmatch(r"cpu|cuda(:\d{1,4})?", value, re.ASCII):
            raise click.BadParameter(f"{value!r} is not cpu, cuda, or cuda:N")
        return value

    where = f"{what}: cpu, cuda, or cuda:1 for the second GPU."
    return click.option("--device", default="cpu", callback=known, show_default=True, help=where)


def _takes_threads(what: str, default: str = "all") -> Callable[..., Any]:
    def known(ctx: click.Context, option: click.Parameter, value: int | None) -> int | None:
        if value == 0:
            raise click.BadParameter("0 threads cannot score; give a number, or -1 for all")
        return value

    counted = "-1: all, -2: all but one, and so on"
    return click.option("--threads", type=int, callback=known, help=f"{what}; {counted}.  [default: {default}]")


def _reads_documents(command: Callable[..., None]) -> Callable[..., None]:
    """The options of commands that read DATA; they are those of `gpuqs.readers.open_documents`."""
    options = [
        click.option(
            "--format",
            type=click.Choice(["svmlight", "csv", "npy", "parquet"]),
            help="What DATA is.  [default: found by its content]",
        ),
        click.option(
            "--header/--no-header",
            default=None,
            help="CSV: whether the first line holds names.  [default: found by its content; an error if that is "
            "ambiguous]",
        ),
        click.option("--label", metavar="NAME", help="CSV, Parquet: column of relevance labels.  [default: label]"),
        click.option("--query", metavar="NAME", help="CSV, Parquet: column of query ids.  [default: qid]"),
        click.option(
            "--one-based/--zero-based",
            "first_id",
            default=False,
            callback=lambda ctx, option, value: int(value),
            help="svmlight: the id of the model's first feature. LightGBM and XGBoost take the ids in files for "
            "column numbers from 0, even where the ids start at 1.  [default: zero-based]",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _takes_categories(command: Callable[..., None]) -> Callable[..., None]:
    """The option of commands that read tables for models whose files do not say which columns hold categories."""
    return click.option(
        "--category",
        "categories",
        metavar="NAME",
        multiple=True,
        help="A column whose values are categories, where neither MODEL nor DATA says so, such as numbers in CSV; "
        "may be given several times.",
    )(command)


def _one_input(model: Path, data: Path | None) -> None:
    if model == data == _STDIN:
        raise click.UsageError("MODEL and DATA cannot both be standard input")


def _not_input(out: Path, model: Path, data: Path | None = None) -> None:
    """Refuse to write to a file that the command reads, by whatever path, and to write scores over messages."""
    inputs = [model] if data is None else [model, data, Path(f"{data}.query")]  # the last holds query sizes
    read: dict[str, int | Path] = {f"the input {path}": 0 if path == _STDIN else path for path in inputs}
    replaced: dict[str, int | Path] = {} if out == _STDOUT or names_own(out) else {f"--out {out}": out}
    scores: tuple[str, int | Path] = ("standard output", 1) if out == _STDOUT else (f"--out {out}", out)
    if problem := same("standard error", 2, read | replaced) or same(*scores, read):
        raise click.UsageError(problem)


def _folder(ctx: click.Context, option: click.Parameter, value: str | None) -> Path | None:
    if value == "":
        raise click.BadParameter("is empty; name a folder, or . for this one")
    return None if value is None else Path(value)


def _named(ctx: click.Context, option: click.Parameter, value: str | None) -> Path | None:
    if value == "":
        raise click.BadParameter("is empty; name a file, or - for standard output")
    if value is not None and value.endswith(os.sep):  # which a Path forgets
        raise click.BadParameter(f"{value!r} names a folder; name a file")
    return None if value is None else Path(value)


def _sizes(ctx: click.Context, option: click.Parameter, value: tuple[int, ...]) -> tuple[int, ...]:
    from gpuqs.tuning.plan import MAX_SIZES

    if len(set(value)) > MAX_SIZES:
        raise click.BadParameter(f"{len(set(value))} sizes are too many; a plan holds {MAX_SIZES}")
    return value


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=f"{EXIT_STATUS} GPUQS_DEBUG=1 shows where an error comes from.",
)
@click.version_option(package_name="gpuqs")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Score documents with large ensembles of decision trees, exactly as the training library does."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@cli.command(epilog=EXIT_STATUS)
@click.argument("model", type=_FILE)
@click.argument("data", type=_FILE)
@click.option(
    "-o",
    "--out",
    type=click.Path(dir_okay=False, writable=True, allow_dash=True, path_type=str),
    callback=_named,
    help="Where scores go: .npy, .parquet, or text, one line per document.  [default: -, standard output, as text]",
)
@click.option("--engine", default="auto", show_default=True, help="An engine that `gpuqs info MODEL` lists.")
@_takes_device("Where documents are scored")
@_takes_threads("Threads to read and score with", default="all, or what a tuned model's plan says")
@click.option(
    "--precision",
    type=click.Choice(["exact", "fast"]),
    default="exact",
    show_default=True,
    help="exact: the training library's scores, bit for bit. fast: sums in 24-bit fixed point.",
)
@click.option(
    "--output",
    type=click.Choice(["value", "raw", "leaf"]),
    default="value",
    show_default=True,
    help="value: what the library's predict gives. raw: before the link (sigmoid, ...). leaf: each tree's exit leaf.",
)
@click.option(
    "--num-iteration",
    type=click.IntRange(1, 10**9),
    help="Score with the first iterations only, as LightGBM's num_iteration_predict.  [default: all]",
)
@_takes_categories
@_reads_documents
def score(model: Path, data: Path, threads: int | None, **options: Any) -> None:
    """Score the documents of DATA with MODEL.

    DATA is svmlight/LETOR text, CSV or TSV, .npy or Parquet. It may be of any size, as it is read in chunks (Parquet
    from a pipe goes through a temporary file). MODEL or DATA may be -, standard input. NDCG@10 is printed where DATA
    has labels and query ids, or where DATA.query holds the sizes of the queries.

    Standard output gets only the scores, and standard error everything else. An output file is replaced once all
    scores are written, and stays as it was after a failure. Devices and FIFOs are written to directly.
    """
    from gpuqs.cli.score import score_file

    _one_input(model, data)
    _not_input(options["out"] or _STDOUT, model, data)
    score_file(model, data, n_threads=threads, **options)


@cli.command()
@click.argument("model", type=_FILE)
def info(model: Path) -> None:
    """Show what MODEL contains, and which engines can run it.

    MODEL may be -, standard input.
    """
    from gpuqs.cli.info import print_info

    _not_input(_STDOUT, model)
    print_info(model)


@cli.command()
def formats() -> None:
    """List the model formats that gpuqs reads."""
    from gpuqs.cli.formats import print_formats

    print_formats()


@cli.command()
@click.argument("model", type=_FILE)
@click.argument("data", type=_FILE, required=False)
@click.option(
    "--engine",
    "engines",
    multiple=True,
    default=("auto",),
    show_default=True,
    help="An engine that `gpuqs info MODEL` lists, or all; may be given several times. auto: the engines "
    "that gpuqs chooses for one document and for many.",
)
@click.option("--rows", type=click.IntRange(0, 10**12), help="Rows to make.  [default: enough for a few seconds]")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the made rows.")
@_takes_threads("Threads to score with")
@_takes_categories
@_reads_documents
@click.pass_context
def verify(ctx: click.Context, /, model: Path, data: Path | None, threads: int | None, **options: Any) -> None:
    """Compare gpuqs with the library that MODEL came from.

    That library must be installed. It scores made-up rows and, if given, those of DATA. Made-up rows have values on the
    model's thresholds and one unit in the last place next to them, missing, infinite and other special values, and
    categories that training has not seen. Exit leaves and raw scores must be the same in both, bit for bit; if they are
    not, the exit status is 1.
    """
    from gpuqs.cli.verify import verify_file

    _one_input(model, data)
    _not_input(_STDOUT, model, data)
    if not verify_file(model, data, n_threads=threads, **options):
        ctx.exit(FAILED)


@cli.command(epilog=EXIT_STATUS)
@click.argument("model", type=_FILE)
@click.argument("data", type=_FILE)
@click.option(
    "-o",
    "--out",
    type=click.Path(dir_okay=False, writable=True, path_type=str),
    callback=_named,
    help="Where the tuned model goes.  [default: next to MODEL, with the suffix .tuned.gpuqs, unless that file exists]",
)
@click.option(
    "--budget", type=click.FloatRange(0, 1e6), default=10.0, show_default=True, help="Seconds that measuring may take."
)
@click.option(
    "--batch",
    "batches",
    type=click.IntRange(1, 10**7),
    multiple=True,
    callback=_sizes,
    help="Documents that a call will have; may be given several times.  [default: 1, 10, 100, 1000, 10000; on a GPU "
    "also 100000 and 1048576; none above the number of documents]",
)
@_takes_device("Where documents will be scored")
@_takes_threads("Upper limit of threads to score with")
@_takes_categories
@_reads_documents
def tune(
    model: Path,
    data: Path,
    out: Path | None,
    budget: float,
    batches: tuple[int, ...],
    categories: tuple[str, ...],
    threads: int | None,
    **options: Any,
) -> None:
    """Find the fastest way to score documents like DATA's with MODEL on this machine, and save it with MODEL.

    Engines, their block sizes and numbers of threads are measured on DATA's first documents, in the order of their
    predicted costs. A plan changes no score. It is used whenever the saved file is scored on this machine, with
    gpuqs.load and with gpuqs score. MODEL or DATA may be -, standard input.

    A table of what was predicted and measured goes to standard output. The file is replaced as a whole or not at all.
    """
    from gpuqs.cli.tune import output_of, tune_file

    _one_input(model, data)
    _not_input(_STDOUT, model, data)
    out = output_of(model) if out is None else out
    if out == _STDOUT or names_own(out) or same("", 1, {"": out}):
        raise click.BadParameter("the plan is printed to standard output; name a file", param_hint="--out")
    if not out.parent.is_dir():
        raise click.BadParameter(f"{out.parent} is not a folder", param_hint="--out")
    _not_input(out, model, data)
    if math.isnan(budget):
        raise click.BadParameter("nan is not a number of seconds", param_hint="--budget")
    tune_file(model, data, out=out, budget=budget, batches=batches, categories=categories, n_threads=threads, **options)


@cli.command()
def calibrate() -> None:
    """Measure how fast the engines are on this machine, so that gpuqs chooses well among them.

    Model.warm_up, Model.tune and gpuqs tune do this once by themselves. The result is kept in GPUQS_CACHE_DIR or in the
    user's cache folder.
    """
    from gpuqs.cli.calibrate import print_factors

    print_factors()


@cli.command()
@click.option(
    "--save",
    type=click.Path(file_okay=False, path_type=str),
    callback=_folder,
    metavar="FOLDER",
    help="Only write the demo's model and documents to this folder.",
)
@click.pass_context
def demo(ctx: click.Context, save: Path | None) -> None:
    """Score made-up documents with every engine, and compare the results."""
    from gpuqs.cli.console import Output
    from gpuqs.demo import run_demo, save_demo

    if save is not None:
        for path in save_demo(save):
            click.echo(path)
    elif not run_demo(Output()):
        ctx.exit(FAILED)
