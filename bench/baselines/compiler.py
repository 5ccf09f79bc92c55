"""Compiles C++ for the bench with the system's compiler, once, and keeps the results under bench/.cache."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

CACHE = Path(__file__).parents[1] / ".cache" / "baselines"
#: The optimization level that the papers use.
FLAGS = ("-std=c++17", "-O3", "-fPIC", "-shared")


class NoCompiler(RuntimeError):
    """This system has no C++ compiler."""


@cache
def compiler() -> tuple[str, str]:
    """The compiler (from ``CXX`` if set) and its version string."""
    found = [os.environ.get("CXX"), *map(shutil.which, ("c++", "g++", "clang++"))]
    path = next(filter(None, found), None)
    if path is None:
        raise NoCompiler("no C++ compiler is here: neither CXX is set, nor is there c++, g++ or clang++")
    told = subprocess.run([*path.split(), "--version"], capture_output=True, text=True, check=True)
    return path, told.stdout.partition("\n")[0]


def compiled(source: Path, depends_on: Sequence[Path] = (), flags: tuple[str, ...] = ()) -> ctypes.CDLL:
    """The shared library of a source file; compiled unless this or another process has done so before."""
    path, version = compiler()
    texts = [file.read_text() for file in (source, *depends_on)]
    key = hashlib.sha256("\0".join([version, *FLAGS, *flags, *texts]).encode()).hexdigest()[:16]
    library = CACHE / f"{source.stem}-{key}.so"
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(library.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one process compiles, others that need the same library wait
        if not library.exists():
            made = library.with_suffix(".part")  # renamed when complete
            command = [*path.split(), *FLAGS, *flags, str(source), "-o", str(made)]
            run = subprocess.run(command, capture_output=True, text=True)
            if run.returncode:
                raise RuntimeError(f"{' '.join(command)} failed:\n{run.stderr[-2000:]}")
            made.replace(library)
    return ctypes.CDLL(str(library))
