"""How a command ends: one line for each failure, and the exit status.

- 0: done.
- 1: it failed, or `verify` found a difference.
- 2: wrong arguments, such as a MODEL, DATA or column that does not exist.
- 128 + n, as shells show it: stopped by signal n. If the reader of standard output has gone (``| head``), that is
  SIGPIPE, without a message.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
import traceback
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, Final, NoReturn

import click

from gpuqs.cli.clashes import spare_arguments
from gpuqs.cli.process import STDERR, STDOUT, end_by, stopped_within
from gpuqs.errors import GpuqsError

FAILED: Final = 1

EXIT_STATUS: Final = "Exit status: 0 done, 1 failed or not verified, 2 wrong arguments, 128 + n stopped by signal n."


#: How libraries say that they got no memory: C++, the linker, NumPy and Python's own modules (a call fails without a
#: reason), and threads whose stacks could not be allocated.
_NO_MEMORY: Final = re.compile(
    "std::bad_alloc|failed to map segment|[Cc]annot (allocate memory|create shared object descriptor)|"
    "error return without exception set|returned NULL without setting an exception|"
    "can't start new thread|Failed to launch worker thread"
)


class Failure(click.ClickException):
    """An exception on its way to the user."""

    exit_code = FAILED

    def __init__(self, error: Exception) -> None:
        super().__init__(describe(error))
        self.error = error


class Commands(click.Group):
    """The command line; it reports a command's failure in one line on standard error."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            raise stopped_within(error) or Failure(error) from error

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        try:
            return super().make_context(*args, **kwargs)
        except OSError as error:  # from --help; click would end the process in its own way
            raise Failure(error) from error

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        try:
            status = super().main(*args, **{**kwargs, "standalone_mode": False})
            if sys.stdout is not None:
                sys.stdout.flush()
        except click.Abort:
            status = _say("interrupted", 128 + signal.SIGINT)
        except click.UsageError as error:
            seen = f" (see {error.ctx.command_path} --help)" if error.ctx else ""
            problem = re.sub(r"(?<!\.)\.$", "", error.format_message())  # keep the dots of a shortened list
            status = _say(problem + seen, error.exit_code)
        except Failure as failure:
            status = _fail(failure.error)
        except Exception as error:
            if stopped := stopped_within(error):
                raise stopped from error
            status = _fail(error)
        sys.exit(status or 0)


def describe(error: Exception) -> str:
    """What a user must know about an exception."""
    if (lacking := _without_memory(error)) is not None:
        said = f"{str(lacking).strip()} ".splitlines()[0].strip()
        return f"there is not enough memory{f' ({said})' if said else ''}"
    if isinstance(error, GpuqsError):
        return str(error)
    if isinstance(error, OSError):
        said = error.strerror or str(error)
        return f"{os.fsdecode(error.filename)}: {said}" if error.filename else said
    kind = type(error).__name__
    if isinstance(error, ImportError):
        package = (error.name or "").partition(".")[0]
        if isinstance(error, ModuleNotFoundError) and package and _is_missing(package):
            return f"the module {package} is needed here, and not installed; pip install the package that has it"
        return f"{error.name or 'a package'} is installed, but cannot be imported: {error}"
    return f"{kind}: {error}; this is a fault of gpuqs: please report it, with what GPUQS_DEBUG=1 shows"


def _is_missing(package: str) -> bool:
    with suppress(ValueError):  # a module without a spec
        return find_spec(package) is None
    return False


def _without_memory(error: BaseException | None) -> BaseException | None:
    """The cause of an exception that reports missing memory, if any: libraries have many ways to say so."""
    while error is not None:
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
            return error
        is_quoting = isinstance(error, ValueError) and type(error).__module__.startswith(("gpuqs.", "pyarrow."))
        if not is_quoting and _NO_MEMORY.search(str(error)):  # messages about a file may quote it
            return error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return None


def one_line(text: str) -> str:
    """The text in one line, without characters that terminals would take for commands."""
    text = " ".join(line.strip() for line in text.splitlines())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _fail(error: Exception) -> int:
    if isinstance(error, BrokenPipeError) and error.filename in (None, STDOUT, STDERR):
        end_by(signal.SIGPIPE)
    spare_arguments()
    if os.environ.get("GPUQS_DEBUG", "0") not in ("", "0"):
        traceback.print_exception(error)
    return _say(describe(error), FAILED)


def _say(line: str, status: int) -> int:
    spare_arguments()
    with suppress(OSError):
        click.echo(f"Error: {one_line(line)}", err=True)
    return status
