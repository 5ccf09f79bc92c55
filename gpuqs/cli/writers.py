"""Where scores go: text, ``.npy`` or Parquet, written as they come."""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from gpuqs.cli.process import hold_signals, release_signals
from gpuqs.errors import InputError
from gpuqs.files import replacing

#: The path that means standard output.
STDOUT: Final = Path("-")


class ScoreWriter(ABC):
    """Takes scores chunk by chunk: [D], or [D, n_outputs]."""

    @abstractmethod
    def write(self, scores: np.ndarray) -> None: ...

    def finish(self) -> None:  # noqa: B027 - text needs none
        """Called once, after the last chunk."""

    def drop(self) -> None:  # noqa: B027 - as above
        """Called instead after an error: write nothing more."""


class TextWriter(ScoreWriter):
    """One line a document, several outputs between tabs; the shortest digits that read back exactly."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, scores: np.ndarray) -> None:
        lines = map(str, scores) if scores.ndim == 1 else ("\t".join(map(str, row)) for row in scores)
        self._file.write("".join(f"{line}\n" for line in lines).encode("ascii"))


class NpyWriter(ScoreWriter):
    """A ``.npy`` file; its header is written last, when the number of documents is known.

    If the file is not seekable, like a FIFO, everything is kept in an unnamed temporary file until then.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._out = file
        self._file: Any = file if file.seekable() else tempfile.TemporaryFile()  # noqa: SIM115
        self._rows = 0
        self._tail: tuple[int, ...] = ()
        self._dtype = np.dtype(np.float64)

    def write(self, scores: np.ndarray) -> None:
        if self._rows == 0:
            self._tail, self._dtype = scores.shape[1:], scores.dtype
            self._file.write(self._header(0))
        self._file.write(np.ascontiguousarray(scores).data)
        self._rows += len(scores)

    def finish(self) -> None:
        self._file.seek(0)
        self._file.write(self._header(self._rows))
        if self._file is not self._out:
            self._file.seek(0)
            shutil.copyfileobj(self._file, self._out, 1 << 20)

    def _header(self, rows: int) -> bytes:
        buffer = io.BytesIO()
        descr = np.lib.format.dtype_to_descr(self._dtype)
        header = {"descr": descr, "fortran_order": False, "shape": (rows, *self._tail)}
        np.lib.format.write_array_header_1_0(buffer, header)
        text = buffer.getvalue()
        if len(text) != 128:  # NumPy pads to multiples of 64; room for every count is within 128
            raise AssertionError(f"unexpected .npy header of {len(text)} bytes")
        return text


class ParquetWriter(ScoreWriter):
    """A Parquet file with a column ``name``, or ``name_0``, ``name_1``, ... for several outputs."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        try:
            import pyarrow  # noqa: F401
        except ModuleNotFoundError:
            raise InputError("writing Parquet needs pyarrow: pip install 'gpuqs[cli]'") from None
        self._file, self._name = file, name
        self._writer: Any = None

    def write(self, scores: np.ndarray) -> None:
        import pyarrow
        from pyarrow import parquet

        columns = [scores] if scores.ndim == 1 else list(np.ascontiguousarray(scores.T))
        names = [self._name] if scores.ndim == 1 else [f"{self._name}_{at}" for at in range(len(columns))]
        table = pyarrow.table(dict(zip(names, columns, strict=True)))
        if self._writer is None:
            self._writer = parquet.ParquetWriter(self._file, table.schema)
        self._writer.write_table(table)

    def finish(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def drop(self) -> None:
        if self._writer is not None:
            self._writer.is_open = False  # so that it writes no footer when it is collected


@contextmanager
def open_scores(path: Path | None, name: str = "score") -> Iterator[ScoreWriter]:
    """A writer for ``path`` by its extension (text to standard output for None and "-"); ``name``: of its columns.

    After an error a file is as it was: see `gpuqs.files.replacing`.
    """
    if path in (None, STDOUT):
        sys.stdout.flush()
        yield TextWriter(sys.stdout.buffer)
        sys.stdout.flush()
        return
    to_parquet = partial(ParquetWriter, name=name)
    kinds: dict[str, Callable[[BinaryIO], ScoreWriter]] = {".npy": NpyWriter, ".parquet": to_parquet}
    try:
        with replacing(path) as file:
            writer = kinds.get(path.suffix.lower(), TextWriter)(file)
            try:
                yield writer
                writer.finish()
                if file.seekable():
                    hold_signals()
            except BaseException:
                writer.drop()
                raise
    except BaseException:
        release_signals()
        raise
