"""``.npy`` files: one array of documents."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Iterator
from math import prod
from typing import BinaryIO

import numpy as np
from numpy.lib import format as npy

from gpuqs.errors import InputError
from gpuqs.forest import Forest
from gpuqs.readers.base import Chunk, DocumentReader
from gpuqs.readers.source import DocumentSource

_LONGEST_HEADER = 1 << 16


class NpyReader(DocumentReader):
    """A ``.npy`` file, [documents, n_features], of floating-point or integer numbers, C or F order."""

    format = "npy"

    def __init__(self, source: DocumentSource, forest: Forest) -> None:
        super().__init__(source, forest)
        if source.start(4) == b"PK\x03\x04":
            raise InputError(f"{self.path}: an archive (.npz); save only the documents, with numpy.save")
        self._file = source.open()
        self._shape, self._fortran, self._dtype = self._header(self._file)
        if len(self._shape) != 2 or self._shape[1] != forest.n_features:
            raise InputError(f"{self.path}: shape {self._shape}; the model takes [documents, {forest.n_features}]")
        if self._dtype.hasobject:
            raise InputError(f"{self.path}: not a readable .npy file of numbers: it holds pickled objects")
        if self._dtype.kind not in "fiub":
            raise InputError(f"{self.path}: dtype {self._dtype}; documents are floating-point or integer numbers")
        if min(self._shape) < 0:
            raise InputError(f"{self.path}: not a readable .npy file: shape {self._shape}")
        self._bytes = prod(self._shape) * self._dtype.itemsize
        if source.size is not None:
            self._check_length(source.size - self._file.tell())
        self.size = self._shape[0]

    def _header(self, file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype]:
        try:
            with warnings.catch_warnings():  # what NumPy thinks of a header is told once
                warnings.simplefilter("ignore")
                version = npy.read_magic(file)
                if version == (1, 0):
                    return npy.read_array_header_1_0(file)
                # Version 3 is version 2 with more letters in the names of fields, and documents have no fields.
                if version not in ((2, 0), (3, 0)):
                    raise ValueError(f"its version, {version}, is not known")
                if int.from_bytes(self.source.start(12)[8:], "little") > _LONGEST_HEADER:
                    raise ValueError("its header is too long")
                return npy.read_array_header_2_0(file)
        # A header is a Python literal, which can be wrong in many ways; a deeply nested one raises MemoryError.
        except Exception as error:
            raise InputError(f"{self.path}: not a readable .npy file of numbers: {error}") from None

    def _check_length(self, there: int) -> None:
        if there < self._bytes:
            raise InputError(
                f"{self.path}: not a readable .npy file: it is cut short, at {there:,} of {self._bytes:,} bytes"
            )

    def _chunks(self) -> Iterator[Chunk]:
        by_columns = self._fortran and self._shape[1] > 1
        with self._whole() if by_columns else self._file as file:
            begin = file.tell() if by_columns else 0
            for start in range(0, self._shape[0], self.chunk_rows):
                rows = min(self.chunk_rows, self._shape[0] - start)
                # Read, not mapped: mapped pages would count as this process's memory.
                if by_columns:
                    values = self._columns(file, begin, start, rows)
                else:
                    values = np.empty((rows, self._shape[1]), self._dtype)
                    self._fill(file, values, start * self._shape[1])
                self.done = start + rows
                yield Chunk(values)

    def _whole(self) -> BinaryIO:
        """The values in a seekable file: a stream's are copied to an unnamed temporary one."""
        if self._file.seekable():
            return self._file
        copy = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
        with self._file:
            shutil.copyfileobj(self._file, copy, 1 << 20)
        copy.seek(0)
        return copy

    def _columns(self, file: BinaryIO, begin: int, start: int, rows: int) -> np.ndarray:
        """Some rows of an array that is stored column by column."""
        values = np.empty((rows, self._shape[1]), self._dtype, order="F")
        for column in range(self._shape[1]):
            before = column * self._shape[0] + start
            file.seek(begin + before * self._dtype.itemsize)
            self._fill(file, values[:, column], before)
        return values

    def _fill(self, file: BinaryIO, values: np.ndarray, before: int) -> None:
        """Read contiguous values; ``before`` is how many come before them."""
        if not values.size:
            return
        left = values.reshape(-1).view(np.uint8).data.cast("B")
        while left and (read := file.readinto(left)):  # type: ignore[attr-defined]
            left = left[read:]
        if left:
            self._check_length(before * self._dtype.itemsize + values.nbytes - len(left))
