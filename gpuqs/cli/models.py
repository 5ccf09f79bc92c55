"""The MODEL of a command: a file, or standard input."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import gpuqs
from gpuqs.errors import InputError, naming
from gpuqs.formats import content
from gpuqs.readers.source import STDIN
from gpuqs.streams import Input

T = TypeVar("T")


def load_model(path: Path, categories: Sequence[str] = ()) -> gpuqs.Model:
    """The model in a file, or in standard input; ``categories``: as for `gpuqs.load`, if there are any."""
    make = partial(gpuqs.load, categories=categories or None)
    return of_content(path, make) if str(path) == STDIN else make(path)


def of_content(path: Path, make: Callable[[bytes], T]) -> T:
    """What ``make`` makes from a model's bytes; its errors name the file, or standard input."""
    is_stdin = str(path) == STDIN
    if is_stdin and sys.stdin is None:
        raise InputError("standard input is closed; give a file")
    name = "standard input" if is_stdin else str(path)
    with io.BufferedReader(Input(0 if is_stdin else path)) as file:
        data = content(file, name)
    with naming(name):
        return make(data)
