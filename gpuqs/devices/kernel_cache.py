"""Compiled kernels kept on disk, one file each. A cache that is damaged or cannot be written is as good as none.

A file is the SHA-256 of what follows, the kernel's symbol, a zero byte, the machine code. Its time of
modification is that of its last use, to the day. Whoever writes a file deletes what is too old or too much.
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

#: Bytes that the cache may take: hundreds of models' kernels.
MAX_BYTES = 64 << 20
DAY = 24 * 60 * 60
#: Seconds after its last use that a file goes.
MAX_AGE = 180 * DAY


class MachineCode(NamedTuple):
    """A kernel as the driver loads it."""

    symbol: str
    cubin: bytes


def cached(key: tuple[object, ...], compile_kernel: Callable[[], MachineCode]) -> MachineCode:
    """The kernel that was kept under ``key``, else the one that ``compile_kernel`` gives, which is kept.

    ``key`` holds all that the machine code follows from, as values whose `repr` tells them apart.
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
        if time.time() - path.stat().st_mtime > DAY:  # not at each use: it is a write
            os.utime(path)
    symbol, _, cubin = data[32:].partition(b"\0")
    return MachineCode(symbol.decode(), cubin)


def _write(path: Path, code: MachineCode) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    content = code.symbol.encode() + b"\0" + code.cubin
    with replacing(path) as file:
        file.write(sha256(content).digest() + content)


def _evict(home: Path, keep: Path) -> None:
    """Delete the files that were not used for long, and the longest unused until the others are few enough bytes.

    Other processes may do the same, or write, or read: a file that goes is compiled again where it is needed.
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
