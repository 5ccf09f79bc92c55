"""``.npy`` files: one array of documents."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np

from gpuqs.errors import InputError
from gpuqs.forest import Forest
from gpuqs.readers.base import Chunk, DocumentReader


class NpyReader(DocumentReader):
    """A ``.npy`` file, [documents, n_features], of floating-point or integer numbers, C or F order."""

    format = "npy"

    def __init__(self, path: str | os.PathLike[str], forest: Forest) -> None:
        super().__init__(path, forest)
        try:
            self._array = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError, OSError) as error:
            raise InputError(f"{path}: not a readable .npy file of numbers: {error}") from error
        shape, dtype = self._array.shape, self._array.dtype
        if len(shape) != 2 or shape[1] != forest.n_features:
            raise InputError(f"{path}: shape {shape}; the model takes [documents, {forest.n_features}]")
        if dtype.kind not in "fiub":
            raise InputError(f"{path}: dtype {dtype}; documents are floating-point or integer numbers")
        self.size = len(self._array)

    def _chunks(self) -> Iterator[Chunk]:
        array = self._array
        row_bytes = array.dtype.itemsize * array.shape[1]
        for start in range(0, len(array), self.chunk_rows):
            rows = min(self.chunk_rows, len(array) - start)
            if array.flags.c_contiguous and row_bytes:
                # Read, not mapped: mapped pages would count as this process's memory.
                offset = array.offset + start * row_bytes
                values = np.fromfile(self.path, array.dtype, rows * array.shape[1], offset=offset)
                values = values.reshape(rows, array.shape[1])
            else:
                values = np.array(array[start : start + rows])
            self.done = start + rows
            yield Chunk(values)
