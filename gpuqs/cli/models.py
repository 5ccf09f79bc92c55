"""The MODEL of a command: a file, or standard input."""

from __future__ import annotations

import sys
from pathlib import Path

import gpuqs
from gpuqs.errors import InputError, ModelFormatError
from gpuqs.readers.source import STDIN


def load_model(path: Path) -> gpuqs.Model:
    """The model in a file, or in standard input."""
    data = read_stdin(path)
    if data is None:
        return gpuqs.load(path)
    try:
        return gpuqs.load(data)
    except ModelFormatError as error:
        raise error.at("standard input") from error


def read_stdin(path: Path) -> bytes | None:
    """All of standard input where ``path`` means that; else None."""
    if str(path) != STDIN:
        return None
    if sys.stdin is None:
        raise InputError("standard input is closed; give a file")
    with open(0, "rb", closefd=False) as file:
        return file.read()
