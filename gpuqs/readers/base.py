"""What every reader of documents gives: chunks of rows, with labels and query ids if the file has them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from gpuqs.arrays.dense import Documents, coded_rows
from gpuqs.errors import InputError
from gpuqs.forest import Forest
from gpuqs.readers.source import DocumentSource

#: Bytes of values that one chunk holds, about.
CHUNK_BYTES = 16 << 20

_Block = TypeVar("_Block")
_Parsed = TypeVar("_Parsed")


@dataclass(frozen=True)
class Chunk:
    """Some of a file's documents, in the file's order.

    Parameters
    ----------
    values : float32, float64 or integer [D, n_features]
    labels : float64 [D], optional
    queries : int64 or object [D], optional
        Query ids; documents of a query follow each other.
    table : pyarrow.Table, optional
        The features' columns as the file holds them, in order, where it has types and names.
    """

    values: np.ndarray
    labels: npt.NDArray[np.float64] | None = None
    queries: np.ndarray | None = None
    table: Any = None

    @property
    def documents(self) -> np.ndarray | Documents:
        """The documents for `Model.predict`: values that were coded from a table are not coded again."""
        return self.values if self.table is None else coded_rows(self.values)

    def __repr__(self) -> str:
        beside = "".join(f", {name}" for name in ("labels", "queries") if getattr(self, name) is not None)
        return f"<gpuqs.readers.Chunk: {' x '.join(map(str, self.values.shape))} {self.values.dtype}{beside}>"


class DocumentReader(ABC):
    """A file of documents, read once from start to end in bounded memory.

    Attributes
    ----------
    format : str
    path : Path
        What messages call the file.
    size : int or None
        Units of work in the file (bytes or rows), for a progress bar; None if unknown.
    done : int
        Units read so far.
    warnings : list of str
        What looked wrong without being an error; complete when all chunks are read.
    """

    format: str

    def __init__(self, source: DocumentSource, forest: Forest) -> None:
        self.source = source
        self.path = source.path
        self.forest = forest
        self.size = source.size
        self.done = 0
        self.warnings: list[str] = []
        self.chunk_rows = max(64, CHUNK_BYTES // (8 * max(forest.n_features, 1)))

    def __repr__(self) -> str:
        return f"<gpuqs.readers.{type(self).__name__}: {self.path}, {self.done:,} of {self.size:,}>"

    def __iter__(self) -> Iterator[Chunk]:
        """The file's chunks; none is empty."""
        sizes = self.source.query_sizes
        if sizes is None or not sizes.is_file():
            yield from self._chunks()
            return
        ends = _query_ends(sizes)
        start = 0
        for chunk in self._chunks():
            stop = start + len(chunk.values)
            if chunk.queries is None and stop <= ends[-1]:
                chunk = replace(chunk, queries=np.searchsorted(ends, np.arange(start, stop), side="right"))
            start = stop
            yield chunk
        if start != ends[-1]:
            self.warnings.append(f"{sizes} gives query sizes for {ends[-1]:,} documents, but {self.path} has {start:,}")

    @abstractmethod
    def _chunks(self) -> Iterator[Chunk]: ...


def parse_blocks(
    blocks: Iterable[_Block], parse: Callable[[_Block], _Parsed], n_threads: int
) -> Iterator[tuple[_Block, _Parsed]]:
    """Each block with the result of ``parse``, in order; ``n_threads`` blocks are parsed at a time."""
    with ThreadPoolExecutor(n_threads) as pool:

        def begin(block: _Block) -> Callable[[], _Parsed]:
            # With one thread, the caller parses on demand, so that nothing runs in parallel with scoring.
            if n_threads > 1:
                try:
                    begun: Future[_Parsed] = pool.submit(parse, block)
                    return begun.result
                except RuntimeError:  # no thread could be started
                    pass
            return partial(parse, block)

        blocks = iter(blocks)
        while wave := list(islice(blocks, n_threads)):
            for block, parsed in [(block, begin(block)) for block in wave]:
                yield block, parsed()


def _query_ends(path: Path) -> npt.NDArray[np.int64]:
    """Where each query ends, from a file that holds the queries' sizes, one a line."""
    try:
        sizes = [int(line) for line in path.read_text(encoding="utf-8").split()]
    except ValueError as error:
        raise InputError(f"{path}: query sizes must be integers, one per line: {error}") from None
    if not sizes or min(sizes) < 0 or sum(sizes) > np.iinfo(np.int64).max:
        raise InputError(f"{path}: query sizes must be integers of at least 0, one per line")
    return np.cumsum(np.array(sizes, np.int64))
