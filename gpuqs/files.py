"""Files that are replaced as a whole or not at all; devices and pipes, which are written to and never replaced; the
cache folder."""

from __future__ import annotations

import errno
import io
import mmap
import os
import re
import shutil
import signal
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO, Final
from weakref import ref

import numpy as np

from gpuqs.streams import NamedOutput

_BUFFER: Final = 1 << 20
#: Paths that stand for a process's own open descriptors; opening or replacing such a path would not do the same.
_OWN: Final = re.compile(r"(?:/dev/fd|/proc/self/fd)/(\d+)|/dev/std(in|out|err)")
#: Errors of a rename that is impossible: the target is a mount point, lies on another filesystem, or is another user's
#: in a folder like /tmp, where users may remove only their own files.
_NO_RENAME: Final = (errno.EBUSY, errno.EXDEV, errno.EPERM, errno.EACCES)
#: Errors where no file can be created in a folder, though an existing one may be writable.
_NO_NEIGHBOUR: Final = (errno.EACCES, errno.EPERM, errno.EROFS)


#: The files that this process has mapped into memory, as device and inode, as long as the mappings live.
_MAPPED: Final[dict[ref[mmap.mmap], tuple[int, int]]] = {}


def cache_folder() -> Path | None:
    """``GPUQS_CACHE_DIR``, else gpuqs's folder in the platform's cache folder; None where there is no such folder."""
    if chosen := os.environ.get("GPUQS_CACHE_DIR"):
        return Path(chosen)
    if os.path.isabs(base := os.environ.get("XDG_CACHE_HOME", "")):
        return Path(base, "gpuqs")
    try:
        return Path.home() / ".cache" / "gpuqs"
    except RuntimeError:  # the user has no home
        return None


def names_own(path: str | os.PathLike[str]) -> bool:
    """Whether a path stands for one of this process's open descriptors, such as /dev/stdout."""
    return _OWN.fullmatch(os.fspath(path)) is not None


def mapped(file: BinaryIO) -> mmap.mmap:
    """Map a file's content for reading; while the mapping lives, `replacing` does not start to overwrite it in place.

    Raises
    ------
    OSError, ValueError
        The file cannot be mapped.
    """
    content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    _MAPPED[ref(content, _MAPPED.pop)] = _identity(file.fileno())
    return content


def is_mapped(array: np.ndarray) -> bool:
    """Whether an array lies in a file that is `mapped`."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    memory = getattr(base, "obj", base)  # of files that are read, it may be a mapping, too, but of no file
    return isinstance(memory, mmap.mmap) and ref(memory) in _MAPPED


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def _refuse_mapped(descriptor: int) -> None:
    """Refuse to write in place to what this process has mapped."""
    if _identity(descriptor) in list(_MAPPED.values()):
        problem = "a model in this process maps it (mmap=True), and it can only be overwritten in place, not replaced"
        raise OSError(errno.ETXTBSY, f"{problem}; save under another name, or load the model without mmap=True")


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Give a file to write, which replaces ``path`` when the block ends without an exception.

    The new file is written next to the old one under a temporary name, and renamed at the end. A symbolic link is kept,
    and what it points to is replaced; permissions and, where the process may, the owner are kept.
    Where no file can be created or renamed there (a folder without write permission, a file that is a mount point,
    another user's file in /tmp), the old file is overwritten at the end, once there is room for all of the new content,
    and its old content is restored after an error; signal handlers wait until that is done. A file that this process
    has `mapped` is not overwritten; mappings of other processes cannot be known. Character devices and FIFOs are
    written to directly; the file given is then not ``seekable()``.

    Raises
    ------
    OSError
        The file cannot be written; names ``path``.
    """
    path = os.fspath(path)
    if path.endswith(os.sep):  # realpath would drop it
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    with _naming(path):
        stream = _open_stream(path)
    if stream is not None:
        with _buffered(stream) as file:
            yield file
        return
    with _naming(path):
        os.stat(os.path.dirname(path) or os.curdir)  # `realpath` accepts a folder that does not exist
    target = os.path.realpath(path)
    if os.path.exists(target) and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
    # Named before it is created, so that it is removed whenever a signal raises an exception.
    temporary = os.path.join(os.path.dirname(target), f".gpuqs-{os.urandom(8).hex()}.part")
    try:
        with _naming(path):
            raw = _create(temporary, target, path)
        with _buffered(raw) as file:
            yield file
            with _naming(path):
                file.flush()
                _put_in_place(file, temporary, target)
            with suppress(OSError):  # it is on the disk and in its place: nothing can be lost now
                file.close()
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


@contextmanager
def _buffered(raw: NamedOutput) -> Iterator[BinaryIO]:
    file = io.BufferedWriter(raw, _BUFFER)
    try:
        yield file
    except BaseException:
        raw.close()  # what is in the buffer has nowhere to go, and must not wait for a slow reader
        raise
    file.close()


def _open_stream(path: str) -> NamedOutput | None:
    """Open what is written to directly; None for a regular file, or one that does not exist yet."""
    if own := _OWN.fullmatch(path):
        try:
            descriptor = int(own[1][:20]) if own[1] else ("in", "out", "err").index(own[2])
            _refuse_mapped(descriptor)
            return NamedOutput.opened(path, os.dup, descriptor, stream=True)
        except OverflowError:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from None
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISREG(mode):
        return None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if stat.S_ISBLK(mode):
        raise OSError(errno.EINVAL, "a disk; give a file on it", path)
    if stat.S_ISSOCK(mode):
        raise OSError(errno.EINVAL, "a socket, which cannot be written to as a file", path)
    return NamedOutput.opened(path, os.open, path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY, stream=True)


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Errors name the file that the user gave, not the temporary one."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, path) from error


def _create(temporary: str, target: str, path: str) -> NamedOutput:
    """Create the file ``temporary``; or an unnamed file elsewhere, if none may be created next to an old target."""
    exists = os.path.exists(target)
    try:
        # What replaces a private file is private from the start.
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return NamedOutput.opened(path, os.open, temporary, flags, 0o600 if exists else 0o666)
    except OSError as error:
        if not exists or error.errno not in _NO_NEIGHBOUR:
            raise
    with tempfile.TemporaryFile() as unnamed:
        return NamedOutput.opened(path, os.dup, unnamed.fileno())


def _put_in_place(file: BinaryIO, temporary: str, target: str) -> None:
    os.fsync(file.fileno())
    if os.path.exists(temporary):
        _take_after(target, file.fileno())
        try:
            os.replace(temporary, target)
            return
        except OSError as error:
            if error.errno not in _NO_RENAME:
                raise
    _overwrite(file, target)
    with suppress(FileNotFoundError):
        os.unlink(temporary)


def _take_after(target: str, descriptor: int) -> None:
    """Give a file the permissions of ``target``, and its owner where the process may."""
    try:
        old = os.stat(target)
    except FileNotFoundError:
        return
    with suppress(PermissionError):
        os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))


def _overwrite(file: BinaryIO, target: str) -> None:
    """Copy the file over an old one once there is room for all of it; restore the old content after an error."""
    size = os.fstat(file.fileno()).st_size
    with (
        _signals_held_back(),
        open(target, "r+b", buffering=0) as old,
        open(file.fileno(), "rb", closefd=False) as new,
        tempfile.TemporaryFile(buffering=0) as kept,
    ):
        _refuse_mapped(old.fileno())
        with suppress(OSError):  # without room for this copy, the new content may still be written
            shutil.copyfileobj(old, kept, _BUFFER)
        before = os.fstat(old.fileno()).st_size
        if size and hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(old.fileno(), 0, size)
            except BaseException:
                old.truncate(before)
                raise
        try:
            _copy(new, old, size)
        except OSError as error:
            try:
                if kept.tell() != before:
                    raise
                _copy(kept, old, before)
            except OSError:
                damaged = f"{error.strerror}; the file is damaged and holds parts of the old and of the new content"
                raise OSError(error.errno, damaged) from error
            raise


def _copy(source: IO[bytes], target: IO[bytes], size: int) -> None:
    source.seek(0)
    target.seek(0)
    shutil.copyfileobj(source, target, _BUFFER)
    target.truncate(size)
    os.fsync(target.fileno())


@contextmanager
def _signals_held_back() -> Iterator[None]:
    """Delay handlers written in Python, which may raise, until after the block; only the main thread runs them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    came: list[int] = []
    try:
        with ExitStack() as restored:
            for number, handler in handlers.items():
                if callable(handler):
                    restored.callback(signal.signal, number, handler)
                    signal.signal(number, lambda number, frame: came.append(number))
            yield
    finally:
        for late in dict.fromkeys(came):
            signal.raise_signal(late)
