"""`gpuqs formats`: what gpuqs reads of each model format."""

from __future__ import annotations

import sys

import click
from rich.markup import escape
from rich.table import Table

from gpuqs.cli.console import Output
from gpuqs.formats import FEATURES, readers, table


def print_formats() -> None:
    """Print the formats: a table for people, Markdown for everything else."""
    if not sys.stdout.isatty():
        click.echo(table())
        return
    shown = Table(show_lines=True)
    for name in ("format", *FEATURES):
        shown.add_column(name, overflow="fold")
    for reader in readers():
        cells = (reader.NAME, *(reader.FEATURES[feature] for feature in FEATURES))
        shown.add_row(*(escape(cell.replace("`", "")) for cell in cells))
    Output().print(shown)
