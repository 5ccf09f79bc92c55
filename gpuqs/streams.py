"""Files and descriptors to read and to write; those that a process was started with may be non-blocking."""

from __future__ import annotations

import io
import mmap
import os
import select
from collections.abc import Callable
from typing import Any, Final

#: Bytes that are read at a time from what has no size.
_STEP: Final = 1 << 20


class Input(io.FileIO):
    """A file open for reading that waits for data even where its descriptor would not (``O_NONBLOCK``).

    Whoever started the process may have left its pipe or socket that way, and a lack of data would look like the end.

    Parameters
    ----------
    file : path-like or int
        A descriptor stays open when this object is closed.
    """

    def __init__(self, file: str | os.PathLike[str] | int) -> None:
        super().__init__(file, "rb", closefd=not isinstance(file, int))
        self._ended = False  # unseekable files end once: a terminal would ask for the end at every read

    def readinto(self, buffer: Any) -> int:
        if self._ended:
            return 0
        while (n := super().readinto(buffer)) is None:
            _wait(self.fileno(), select.POLLIN)
        self._ended = n == 0 and len(buffer) > 0 and not self.seekable()
        return n

    def readall(self) -> bytes:
        if self.seekable():
            return super().readall()
        return b"".join(iter(lambda: self.read(_STEP), b""))

    def read_pages(self) -> memoryview:
        """The rest of a seekable file, read by several threads into private memory."""
        from gpuqs.cpu_fallback.file_bytes import read_file  # imported here so that commands start sooner

        start = self.tell()
        left = os.fstat(self.fileno()).st_size - start
        if left < _STEP:
            return memoryview(self.readall())
        try:
            pages = memoryview(mmap.mmap(-1, left, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        except OSError:  # not enough memory: this raises the error that says so
            return memoryview(self.readall())
        pages = pages[: read_file(self.fileno(), start, pages)]
        self.seek(start + len(pages))
        grown = self.readall()  # someone may still be writing it
        return memoryview(bytes(pages) + grown) if grown else pages.toreadonly()

    def read(self, size: int | None = -1) -> bytes:
        return io.RawIOBase.read(self, -1 if size is None else size)  # calls the two above; `FileIO.read` does not


class NamedOutput(io.FileIO):
    """A file open for writing whose errors give a name, which the system's do not; it waits as `Input` does."""

    _shown, _stream = "", False

    @classmethod
    def opened(cls, name: str, opener: Callable[..., int], *args: Any, stream: bool = False) -> NamedOutput:
        """Open with ``opener(*args)``, which gives a descriptor.

        ``stream``: writing goes on at the current position, as others may write to it, too; it is not seekable.
        """
        # No Python step comes between the two calls, where a signal's exception would leak the descriptor.
        file = next(map(cls, map(opener, *([arg] for arg in args)), ["wb"]))
        file._shown, file._stream = name, stream
        return file

    @classmethod
    def of(cls, name: str, descriptor: int) -> NamedOutput:
        """A stream on a descriptor that stays open when this object is closed."""
        file = cls(descriptor, "wb", closefd=False)
        file._shown, file._stream = name, True
        return file

    def write(self, data: Any) -> int:
        try:
            while (n := super().write(data)) is None:
                _wait(self.fileno(), select.POLLOUT)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._shown) from None
        return n

    def seekable(self) -> bool:
        return not self._stream and super().seekable()


def _wait(descriptor: int, event: int) -> None:
    """Wait until a descriptor is ready, or has an error, which the next call reports; signal handlers run meanwhile."""
    poll = select.poll()
    poll.register(descriptor, event)
    poll.poll()
