"""A progress bar on standard error, where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gpuqs.cli.process import raise_if_stopped


@contextmanager
def progress(what: str, shown: bool = True) -> Iterator[Callable[[int, int | None], None]]:
    """Give a function to call with the work done and the total (None if unknown); a signal may stop the work there."""
    if not shown or sys.stderr is None or not sys.stderr.isatty():
        yield lambda done, total: raise_if_stopped()
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(escape(what), total=None)

        def advance(done: int, total: int | None) -> None:
            raise_if_stopped()
            bar.update(task, completed=done, total=total)

        yield advance
