"""Tables and colours on standard output."""

from __future__ import annotations

from rich.console import Console


class Output(Console):
    """A console that leaves a closed pipe to `gpuqs.cli.endings`, as output without rich does."""

    def on_broken_pipe(self) -> None:
        raise  # the BrokenPipeError that rich has caught
