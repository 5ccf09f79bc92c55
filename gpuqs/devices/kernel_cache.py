"""Compiled kernels kept on disk, one file each. A cache that is damaged or cannot be written is as good as none.

A file is the SHA-256 of what follows, the kernel's symbol, a zero byte, the machine code.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from gpuqs.files import replacing


class MachineCode(NamedTuple):
    """A kernel as the driver loads it."""

    symbol: str
    cubin: bytes


def folder() -> Path | None:
    """``GPUQS_CACHE_DIR``, else gpuqs's own in the platform's cache folder; None where there is no such folder."""
    if chosen := os.environ.get("GPUQS_CACHE_DIR"):
        return Path(chosen)
    variable = "LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME"
    if os.path.isabs(base := os.environ.get(variable, "")):
        return Path(base, "gpuqs")
    try:
        return Path.home() / ".cache" / "gpuqs"
    except RuntimeError:  # the user has no home
        return None


def cached(key: tuple[object, ...], compile_kernel: Callable[[], MachineCode]) -> MachineCode:
    """The kernel that was kept under ``key``, else the one that ``compile_kernel`` gives, which is kept.

    ``key`` holds all that the machine code follows from, as values whose `repr` tells them apart.
    """
    home = folder()
    if home is None:
        return compile_kernel()
    path = home / "kernels" / sha256(repr(key).encode()).hexdigest()
    found = _read(path)
    if found is None:
        found = compile_kernel()
        with suppress(OSError):
            _write(path, found)
    return found


def _read(path: Path) -> MachineCode | None:
    try:
        data = path.read_bytes()
    except OSError:
        return None
    if data[:32] != sha256(data[32:]).digest():
        return None
    symbol, _, cubin = data[32:].partition(b"\0")
    return MachineCode(symbol.decode(), cubin)


def _write(path: Path, code: MachineCode) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    content = code.symbol.encode() + b"\0" + code.cubin
    with replacing(path) as file:
        file.write(sha256(content).digest() + content)
