"""Where documents come from: a file, or what can be read only once (a FIFO, a pipe, standard input)."""

from __future__ import annotations

import io
import os
import shutil
import stat
import sys
import tempfile
from pathlib import Path
from typing import Any, BinaryIO, Final

from gpuqs.errors import InputError
from gpuqs.streams import Input

#: The path that means standard input.
STDIN: Final = "-"

_STEP: Final = 1 << 20


class DocumentSource:
    """A file of documents, or a stream of them.

    Parameters
    ----------
    path : path-like
        "-" for standard input.

    Attributes
    ----------
    path : Path
        What messages call it.
    size : int or None
        Bytes; None for a stream, whose size is unknown.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._is_stdin = os.fspath(path) == STDIN
        self.path = Path("standard input" if self._is_stdin else path)
        self.size: int | None = None
        self._stream: Input | None = None
        self._start = bytearray()
        if self._is_stdin:
            if sys.stdin is None:
                raise InputError("standard input is closed; give a file")
            try:
                self._stream = Input(0)
            except OSError as error:  # a folder
                raise OSError(error.errno, error.strerror, str(self.path)) from None
            if stat.S_ISREG((status := os.fstat(0)).st_mode) and self._stream.tell() == 0:
                self.size = status.st_size
        elif stat.S_ISREG((status := self.path.stat()).st_mode):
            self.size = status.st_size
        else:
            self._stream = Input(self.path)

    @property
    def query_sizes(self) -> Path | None:
        """Where a file's query sizes are, if it has a file of them."""
        return None if self._is_stdin else self.path.with_name(self.path.name + ".query")

    def start(self, size: int) -> bytes:
        """The first ``size`` bytes; fewer if there are no more."""
        if self._stream is None:
            with open(self.path, "rb") as file:
                return file.read(size)
        while len(self._start) < size:
            read = self._stream.read(min(size - len(self._start), _STEP))
            if not read:
                break
            self._start += read
        return bytes(self._start[:size])

    def open(self) -> BinaryIO:
        """The documents from their first byte; a stream can be opened once."""
        if self._stream is None:
            return io.BufferedReader(_Whole(self.path, self.path), _STEP)
        stream: Any = self._stream
        if self.size is not None:
            stream.seek(0)
            stream = _Whole(0, self.path)
        else:
            stream = _Resumed(bytes(self._start), stream)
        return io.BufferedReader(stream, _STEP)

    def open_seekable(self) -> BinaryIO:
        """Like `open`, but seekable: a stream is copied to an unnamed temporary file first."""
        file = self.open()
        if self.size is not None:
            return file
        copy = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
        with file:
            shutil.copyfileobj(file, copy, _STEP)
        copy.seek(0)
        return copy


class _Whole(io.FileIO):
    """A file whose reading fails if it has become shorter since it was opened."""

    def __init__(self, file: Path | int, path: Path) -> None:
        super().__init__(file, closefd=not isinstance(file, int))
        self._path, self._size = path, os.fstat(self.fileno()).st_size

    def readinto(self, buffer: Any) -> int:
        n = super().readinto(buffer)
        if n == 0 and len(buffer) and self.tell() < self._size:
            raise InputError(f"{self._path}: it was cut short while it was read, to less than its {self._size:,} bytes")
        return n


class _Resumed(io.RawIOBase):
    """A stream whose start was read already."""

    def __init__(self, start: bytes, stream: Input) -> None:
        self._start = memoryview(start)
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._start:
            return self._stream.readinto(buffer)
        n = min(len(buffer), len(self._start))
        buffer[:n] = self._start[:n]
        self._start = self._start[n:]
        return n

    def close(self) -> None:
        self._stream.close()
        super().close()
