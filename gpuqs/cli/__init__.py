"""The command line: ``gpuqs score``, ``info``, ``formats``, ``verify``, ``tune``, ``calibrate`` and ``demo``."""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Run the command line. It needs packages that gpuqs itself does not: if one is missing, the message names it."""
    # Until `as_process` handles it, Ctrl-C ends the process the default way: without a traceback from an import.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from gpuqs.cli.process import as_process

    as_process(_commands)


def _commands() -> None:
    try:
        import click  # noqa: F401
        import rich  # noqa: F401
    except ModuleNotFoundError as error:
        sys.exit(f"Error: the command line needs {error.name}: pip install 'gpuqs[cli]'")
    from gpuqs.cli.commands import cli

    cli(prog_name="gpuqs")
