"""The command line: ``gpuqs score``, ``gpuqs info``, ``gpuqs verify``, ``gpuqs demo``."""

from __future__ import annotations

import sys

from gpuqs.cli.process import as_process


def main() -> None:
    """Run the command line; its packages are an extra, so a missing one is named."""
    with as_process():
        try:
            import click  # noqa: F401
            import rich  # noqa: F401
        except ModuleNotFoundError as error:
            sys.exit(f"Error: the command line needs {error.name}: pip install 'gpuqs[cli]'")
        from gpuqs.cli.commands import cli

        cli(prog_name="gpuqs")
