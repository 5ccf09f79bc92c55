"""Compiled kernels kept on disk, one file each. A cache that is damaged or cannot be written is ignored.

A file holds the SHA-256 of the rest, the kernel's symbol, a zero byte and the machine code. Its modification
time is that of its last use, to the day. Each write also deletes files that are too old or exceed the cache's size.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from gpuqs.files import cache_folder, replacing

#: Upper limit of the cache's bytes: enough for hundreds of models' kernels.
MAX_BYTES = 64 << 20
DAY = 24 * 60 * 60
#: Seconds after its last use when a file is deleted.
MAX_AGE = 180 * DAY


class MachineCode(NamedTuple):
    """A kernel as the driver loads it."""

    symbol: str
    cubin: bytes


def cached(key: tuple[object, ...], compile_kernel: Callable[[], MachineCode]) -> MachineCode:
    """The kernel cached under ``key``; if there is none, the one that ``compile_kernel`` returns, which is then cached.

    ``key`` holds everything that determines the machine code, as values with a distinct `repr`.
    """
    home = cache_folder()
    if home is None:
        return compile_kernel()
    path = home / "kernels" / sha256(repr(key).encode()).hexdigest()
    found = _read(path)
    if found is None:
        found = compile_kernel()
        with suppress(OSError):
            _write(path, found)
            _evict(path.parent, keep=path)
    return found


def _read(path: Path) -> MachineCode | None:
    try:
        data = path.read_bytes()
    except OSError:
        return None
    if data[:32] != sha256(data[32:]).digest():
        return None
    with suppress(OSError):
        if time.time() - path.stat().st_mtime > DAY:  # not at every use, as it is a write
            os.utime(path)
    symbol, _, cubin = data[32:].partition(b"\0")
    return MachineCode(symbol.decode(), cubin)


def _write(path: Path, code: MachineCode) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    content = code.symbol.encode() + b"\0" + code.cubin
    with replacing(path) as file:
        file.write(sha256(content).digest() + content)


def _evict(home: Path, keep: Path) -> None:
    """Delete files unused for MAX_AGE, then the least recently used ones until the rest fits into MAX_BYTES.

    Other processes may evict, write or read at the same time: a kernel whose file is gone is compiled again.
    """
    now, found = time.time(), []
    for path in home.iterdir():
        with suppress(OSError):  # it is gone
            known = path.lstat()
            written_now = path.name.startswith(".") and now - known.st_mtime < DAY  # by another process
            if stat.S_ISREG(known.st_mode) and path != keep and not written_now:
                found.append((known.st_mtime, known.st_size, path))
    room = MAX_BYTES - keep.stat().st_size
    for used, n_bytes, path in sorted(found, reverse=True):
        room -= n_bytes
        if room < 0 or now - used > MAX_AGE:
            with suppress(OSError):
                path.unlink()
