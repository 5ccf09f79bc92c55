"""`gpuqs verify`: a certificate that gpuqs and the training library agree on a model, or where they do not."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

import gpuqs
from gpuqs import cpu_fallback
from gpuqs.arrays import coded_rows
from gpuqs.cli.console import Output
from gpuqs.cli.documents import open_data
from gpuqs.cli.models import of_content
from gpuqs.cli.progress import progress
from gpuqs.engines import LEFT_OUT, engines_on
from gpuqs.told_categories import told
from gpuqs.verify import Certificate, Check, Disagreement, compare_made_rows, open_source, pandas_for
from gpuqs.verify.frames import given_frame

#: Rows of DATA that are compared at a time.
_STEP = 1024


def verify_file(
    model: Path,
    data: Path | None,
    *,
    engines: list[str],
    rows: int | None,
    seed: int,
    categories: tuple[str, ...],
    n_threads: int | None,
    console: Console | None = None,
    **reading: Any,
) -> bool:
    """Print the certificate of a model; return whether everything agrees.

    Parameters are those of the command; ``reading`` goes to `gpuqs.readers.open_documents`.
    """
    console = console or Output(soft_wrap=True, highlight=False)
    threads = cpu_fallback.effective_threads(n_threads)
    source = of_content(model, partial(open_source, n_threads=threads))
    known = ["auto", "all", *engines_on("cpu")]
    if unknown := [name for name in engines if name not in known]:
        why = LEFT_OUT.get(unknown[0], "")
        raise click.BadParameter(f"{unknown[0]!r} is not one of {', '.join(known)}{why}", param_hint="--engine")
    check = Check(source, engines, told(source.forest, categories) if categories else None)
    with progress("made rows") as advance:
        compare_made_rows(check, rows, seed, threads, advance)
    if data is not None:
        reader = open_data(data, check.model.forest, categories, n_threads=threads, **reading)
        pandas = pandas_for(check)
        with progress(reader.path.name) as advance:
            for chunk in reader:
                for start in range(0, len(chunk.values), _STEP):
                    part = chunk.values[start : start + _STEP]
                    if chunk.table is None or check.model.forest.ctrs is None:  # with CTRs, it needs categories
                        check.add(part if chunk.table is None else coded_rows(part), f"rows of {reader.path}", threads)
                if chunk.table is not None and pandas is not None:
                    frame = given_frame(chunk.table, check.model.forest, pandas)
                    check.add_frame(frame, f"rows of {reader.path} as frames", threads, ours=chunk.values)
                advance(reader.done, reader.size)
        check.certificate.notes += reader.warnings
    print_certificate(check.certificate, model, console)
    return check.certificate.ok


def print_certificate(outcome: Certificate, model: Path, console: Console) -> None:
    """Print what was compared, what agrees, and the first disagreement in full."""
    console.print(f"[bold]{escape(str(model))}[/]: gpuqs {gpuqs.__version__} against {escape(outcome.source)}")
    origins = "; ".join(f"{count:,} {origin}" for origin, count in outcome.rows.items())
    console.print(f"rows compared: {escape(origins) or 'none'}")
    if outcome.left_out:
        console.print(f"{outcome.left_out:,} rows with infinite values left out, as {outcome.source} refuses them")
    width = max(len(tally.engine) for tally in outcome.tallies)
    for tally in outcome.tallies:
        if not tally.scores:
            console.print(f"{tally.engine:{width}}  not compared: no rows of numbers")
            continue
        within = f" ({tally.scores_within:,} more within {outcome.bound:.3g})" if tally.scores_within else ""
        largest = f"{tally.largest:.3g} ({tally.largest_ulps:,} ulp)" if tally.largest_ulps else "0"
        values = f"; values: {tally.values_agree:,} of {tally.values:,} equal bit for bit" if tally.values else ""
        console.print(
            f"{tally.engine:{width}}  exit leaves: {tally.leaves_agree:,} of {tally.leaves:,} agree; raw scores: "
            f"{tally.scores_agree:,} of {tally.scores:,} equal bit for bit{within}; largest difference {largest}"
            f"{values}"
        )
    for note in outcome.notes:
        console.print(f"note: {escape(note)}")
    if outcome.first is not None:
        console.print(escape("\n".join(lines_of(outcome.first, outcome.source))))
    for line in (*outcome.frames, *outcome.values):
        console.print(escape(line))
    if outcome.ok:
        console.print("[bold green]verified[/]: everything agrees")
    else:
        console.print("[bold red]NOT verified[/]" + ("" if outcome.rows else ": there were no rows to compare"))


def lines_of(first: Disagreement, source: str) -> list[str]:
    """The first disagreement, line by line."""
    engine = f"gpuqs ({first.engine})"
    lines = [f"first disagreement: row {first.row:,} of {first.origin.removeprefix('rows of ')} ({first.dtype})"]
    if first.tree is not None:
        lines.append(f"  tree {first.tree}")
        width = max((len(name) for name in first.values), default=0)
        lines.append("  values that the tree tests:")
        lines += [f"    {name:{width}}  {value!r}" for name, value in first.values.items()]
        lines.append("  the row's path through the tests that gpuqs read:")
        for step in first.path:
            way = "left" if step.left else "right"
            mark = f"   <- {source} goes the other way" if step.parts else ""
            lines.append(f"    node {step.node}: {step.feature} = {step.value!r}: {step.test}: {way}{mark}")
        lines.append(f"  exit leaf: {engine} {first.leaf}, {source} {first.their_leaf}")
        if first.path_leaf != first.leaf:
            lines.append(f"  the path ends at leaf {first.path_leaf}: the engine, not the reader, is at fault")
        if first.leaf == first.their_leaf:
            others = f" or one of the {first.among - 1} after it" if first.among > 1 else ""
            lines.append(f"  leaf value in gpuqs: {first.leaf_value!r}; sums differ starting with this tree{others}")
    lines.append(f"  raw score {first.output}: {engine} {first.score!r}, {source} {first.their_score!r}")
    return lines
