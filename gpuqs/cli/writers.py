"""Where scores go: text, ``.npy`` or Parquet, written as they come."""

from __future__ import annotations

import io
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import numpy as np

from gpuqs.errors import InputError


class ScoreWriter(ABC):
    """Takes scores chunk by chunk: [D], or [D, n_outputs]."""

    @abstractmethod
    def write(self, scores: np.ndarray) -> None: ...

    def finish(self) -> None:  # noqa: B027 - text needs none
        """Called once, after the last chunk."""


class TextWriter(ScoreWriter):
    """One line a document, several outputs between tabs; the shortest digits that read back exactly."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, scores: np.ndarray) -> None:
        lines = map(str, scores) if scores.ndim == 1 else ("\t".join(map(str, row)) for row in scores)
        self._file.writelines(f"{line}\n" for line in lines)


class NpyWriter(ScoreWriter):
    """A ``.npy`` file; its header is written last, when the number of documents is known."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
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
    """A Parquet file with the column ``score``, or ``score_0``, ``score_1``, ... of several outputs."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: Any = None

    def write(self, scores: np.ndarray) -> None:
        import pyarrow
        from pyarrow import parquet

        columns = [scores] if scores.ndim == 1 else list(np.ascontiguousarray(scores.T))
        names = ["score"] if scores.ndim == 1 else [f"score_{at}" for at in range(len(columns))]
        table = pyarrow.table(dict(zip(names, columns, strict=True)))
        if self._writer is None:
            self._writer = parquet.ParquetWriter(self._path, table.schema)
        self._writer.write_table(table)

    def finish(self) -> None:
        if self._writer is not None:
            self._writer.close()


@contextmanager
def open_scores(path: Path | None) -> Iterator[ScoreWriter]:
    """A writer for ``path`` by its extension (standard output for None).

    The file appears under its name when all scores are in it; after an error it does not.
    """
    if path is None:
        writer: ScoreWriter = TextWriter(sys.stdout)
        yield writer
        writer.finish()
        sys.stdout.flush()
        return
    kind = path.suffix.lower()
    if kind == ".parquet":
        try:
            import pyarrow  # noqa: F401
        except ImportError:
            raise InputError("writing Parquet needs pyarrow: pip install 'gpuqs[cli]'") from None
    part = path.with_name(path.name + ".part")
    try:
        if kind == ".parquet":
            writer = ParquetWriter(part)
            try:
                yield writer
            finally:
                writer.finish()
        elif kind == ".npy":
            with open(part, "wb") as binary:
                writer = NpyWriter(binary)
                yield writer
                writer.finish()
        else:
            with open(part, "w", encoding="ascii", newline="\n") as text:
                yield TextWriter(text)
        if part.exists():
            os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
