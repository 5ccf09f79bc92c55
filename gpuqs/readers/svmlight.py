"""svmlight / LETOR text: ``label qid:1 3:0.5 7:1e-3 # comment``, one document a line.

Feature ids are column numbers, as LightGBM and XGBoost read them; a feature that a line leaves out
is 0 for LightGBM and missing for XGBoost. Values are correctly rounded, once, to what the model
compares them in; LightGBM's own reader does so with ``precise_float_parser=true``, and may be off
in the last bit without it. A line without a label starts with ``id:value``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gpuqs.cpu_fallback import effective_threads, svmlight
from gpuqs.errors import InputError
from gpuqs.forest import Forest
from gpuqs.readers.base import Chunk, DocumentReader, parse_blocks
from gpuqs.readers.source import DocumentSource

_BLOCK_BYTES = 4 << 20
_LONGEST_LINE = 256 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class SvmlightReader(DocumentReader):
    """A file of svmlight / LETOR text.

    Parameters
    ----------
    source : DocumentSource
    forest : Forest
    first_id : {0, 1}
        The feature id of the model's first feature.
    n_threads : int
        Threads that parse.
    """

    format = "svmlight"

    def __init__(self, source: DocumentSource, forest: Forest, *, first_id: int = 0, n_threads: int = 1) -> None:
        super().__init__(source, forest)
        self.first_id = first_id
        self.n_threads = effective_threads(n_threads)
        self.dtype = np.dtype(forest.input_dtype)
        self.absent = forest.schema.absent
        self._line = 0
        self._lowest_id: int | None = None

    def _chunks(self) -> Iterator[Chunk]:
        for block, parsed in parse_blocks(self._blocks(), self._parse, self.n_threads):
            values, labels, queries, lines, n_labels, n_queries, lowest_id, problem = parsed
            self._line += lines
            if problem is not None:
                # Cells such as 12:30 look like features.
                csv = "; if this is CSV with tabs, say --format csv (format='csv')" if b"\t" in block else ""
                raise InputError(f"{self.path}, line {self._line}: {self._explain(*problem)}{csv}")
            if lowest_id is not None and (self._lowest_id is None or lowest_id < self._lowest_id):
                self._lowest_id = lowest_id
            self.done += len(block)
            if len(values):
                yield Chunk(values, labels if n_labels else None, queries if n_queries else None)
        if self.first_id == 0 and (self._lowest_id or 0) > 0 and (self.forest.feature == 0).any():
            self.warnings.append(
                f"the lowest feature id in {self.path} is {self._lowest_id}, but the model tests feature 0: "
                "if the ids count from 1 and the model's features from 0, use --one-based"
            )

    def _parse(self, block: bytes) -> Any:
        return svmlight.parse(block, self.forest.n_features, self.dtype, self.first_id, self.absent)

    def _blocks(self) -> Iterator[bytes]:
        """The file in pieces of whole lines, none with more lines than a chunk has rows."""
        rest = b""
        mark = self.source.start(len(_BYTE_ORDER_MARK)) == _BYTE_ORDER_MARK
        with self.source.open() as file:
            file.read(len(_BYTE_ORDER_MARK) if mark else 0)
            while read := file.read(_BLOCK_BYTES):
                text = rest + read
                start = 0
                while (stop := svmlight.cut(text, start, self.chunk_rows)) > start:
                    yield text[start:stop]
                    start = stop
                rest = text[start:]
                if len(rest) > _LONGEST_LINE:
                    raise InputError(
                        f"{self.path}: a line is longer than {_LONGEST_LINE >> 20} MiB; check that this is a text file"
                    )
        if rest:
            yield rest

    def _explain(self, problem: int, token: bytes, id: int) -> str:
        shown = repr(token.decode("utf-8", "replace"))
        last = self.first_id + self.forest.n_features - 1
        if problem == svmlight.LABEL:
            return f"{shown} is neither a label (a number) nor a feature (id:value)"
        if problem == svmlight.FEATURE:
            return f"{shown} is not a feature (id:value, id an integer)"
        if problem == svmlight.VALUE:
            return f"the value of {shown} is not a number"
        if problem == svmlight.TWICE:
            return f"feature {id} has a second value: {shown}"
        if problem == svmlight.QUERY:
            return f"{shown} is not a single query id (qid:N, N an integer)"
        ids = f"its {self.forest.n_features} have ids {self.first_id} to {last}"
        message = f"{shown}: the model has no feature {id} ({ids})"
        if self.first_id == 0 and id == last + 1:
            return f"{message}; if the file's ids count from 1, use --one-based"
        if self.first_id == 1 and id == 0:
            return f"{message}; the file's ids count from 0: leave --one-based out"
        return f"{message}; was the model trained on other features?"
