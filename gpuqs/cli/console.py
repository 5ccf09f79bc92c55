"""Tables and colours on standard output."""

from __future__ import annotations

from rich.console import Console


class Output(Console):
    """A console that leaves a reader who has gone to `gpuqs.cli.endings`, as what is written without it does."""

    def on_broken_pipe(self) -> None:
        raise  # the BrokenPipeError that rich has caught
