"""Files that are arguments of a command and also its standard output or error."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path


def same(called: str, written: int | Path, others: Mapping[str, int | str | Path]) -> str | None:
    """What to say if a file that is written is also one of ``others``; else None."""
    there = _file_of(written)
    for other, place in others.items():
        if there and (found := _file_of(place)) and os.path.samestat(there, found):
            return f"{called} is also {other}"
    return None


def spare_arguments() -> None:
    """Send messages elsewhere if standard error is a file that an argument names, whatever the argument is for."""
    arguments = sys.argv[1:]
    # An option may have its value attached, and a file of documents another that holds query sizes.
    values = [*arguments, *(a[2:] for a in arguments), *(a.partition("=")[2] for a in arguments)]
    files: dict[str, int | str] = {name: name for value in values for name in (value, f"{value}.query")}
    if "-" in arguments:
        files["-"] = 0
    if same("", 2, files):
        os.dup2(os.open(os.devnull, os.O_WRONLY) if same("", 1, files) else 1, 2)


def _file_of(path: int | str | Path) -> os.stat_result | None:
    """The status of a regular file, by path or descriptor; None for other files, and where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None
