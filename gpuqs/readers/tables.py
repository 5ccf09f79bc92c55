"""CSV and Parquet, parsed by pyarrow; columns by the model's feature names, or by position."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from gpuqs.arrays.arrow_tables import TableCoding, fill_numbers, kind_of_arrow
from gpuqs.arrays.coding import NUMBERS, Kind
from gpuqs.arrays.columns import columns_of
from gpuqs.cpu_fallback import effective_threads
from gpuqs.errors import InputError
from gpuqs.forest import Forest
from gpuqs.readers.base import Chunk, DocumentReader, parse_blocks
from gpuqs.readers.csv_text import Block, blocks, line_of_row, parse
from gpuqs.readers.headers import MISSING, check_columns, first_line, is_header, start_of
from gpuqs.readers.source import DocumentSource
from gpuqs.schema import Rules
from gpuqs.text_hashes import hash_names

#: What pandas calls a frame's index when it writes it into a Parquet file.
_PANDAS_INDEX = "__index_level_"

_PARQUET = b"PAR1"

#: How Arrow names what it refuses: a cell, by the column it is in, or a whole row.
_REFUSED = re.compile(
    r"(?:In CSV column #(?P<column>\d+)|CSV parse error): Row #(?P<row>\d+): (?:CSV conversion error to \w+: )?"
    r"(?P<what>.*)",
    re.DOTALL,
)

#: How Arrow names a number with a decimal comma.
_DECIMAL_COMMA = re.compile(r"invalid value '\s*[-+]?\d*,\d")


def _need_pyarrow() -> Any:
    try:
        import pyarrow
    except ModuleNotFoundError:
        raise InputError("CSV and Parquet files need pyarrow: pip install 'gpuqs[cli]'") from None
    return pyarrow


@dataclass(frozen=True)
class _Columns:
    """Positions of what is wanted among a table's columns."""

    features: list[int]
    label: int | None
    query: int | None

    @property
    def wanted(self) -> list[int]:
        return [*self.features, *(at for at in (self.label, self.query) if at is not None)]


class ColumnError(InputError):
    """A column of labels or query ids was asked for that a file has not."""


class _TableReader(DocumentReader):
    """What CSV and Parquet have in common."""

    def __init__(
        self,
        source: DocumentSource,
        forest: Forest,
        *,
        label: str | None = None,
        query: str | None = None,
        n_threads: int = 1,
    ) -> None:
        super().__init__(source, forest)
        self.label = label
        self.query = query
        self.n_threads = effective_threads(n_threads)
        self._coding: TableCoding | None = None

    def _choose(self, names: list[str]) -> _Columns:
        """Find the features, the label and the query id among named columns."""
        twice = [name for name, times in Counter(names).items() if times > 1]
        if twice:
            raise InputError(f"{self.path}: several columns are named {_shorten(sorted(twice))}; rename them")
        label = self._special(names, self.label, "label")
        query = self._special(names, self.query, "qid")
        rest = [
            at
            for at, name in enumerate(names)
            if at not in (label, query) and not name.startswith(_PANDAS_INDEX)
        ]
        take = columns_of([names[at] for at in rest], True, self.forest, str(self.path))
        return _Columns(rest if take is None else [rest[at] for at in take], label, query)

    def _special(self, names: list[str], asked: str | None, default: str) -> int | None:
        if asked is None and (default not in names or default in self.forest.feature_names):
            return None
        name = default if asked is None else asked
        if name not in names:
            raise ColumnError(f"{self.path}: no column {name!r}; it has {_shorten(names)}")
        return names.index(name)

    def _chunk(self, batch: Any, columns: _Columns) -> Chunk:
        """A chunk from an Arrow batch that holds ``columns.wanted``, in that order."""
        n = len(columns.features)
        try:
            if self._coding is None:
                self._coding = TableCoding(batch.schema.names[:n], batch.schema.types[:n], self.forest)
            values = self._coding.rows([batch.column(at) for at in range(n)])
        except InputError as error:
            raise InputError(f"{self.path}: {error}") from None
        labels = queries = None
        if columns.label is not None:
            labels = self._labels(batch.column(n), batch.schema.names[n])
        if columns.query is not None:
            queries = batch.column(batch.num_columns - 1).to_numpy(zero_copy_only=False)
        return Chunk(values, labels, queries, batch.select(batch.schema.names[:n]))

    def _labels(self, column: Any, name: str) -> np.ndarray:
        if kind_of_arrow(column.type) not in NUMBERS:
            raise InputError(f"{self.path}: column {name!r} has type {column.type}, not a number")
        labels = np.empty(len(column), np.float64)
        fill_numbers(labels, column)
        return labels


class CsvReader(_TableReader):
    """CSV or TSV text, with or without a header.

    Without a header columns go by position; if there is one more than the model has features,
    the first is the label, as in LightGBM. Empty cells and ``NA`` are missing.

    Parameters
    ----------
    header : bool, optional
        Whether the first line holds names; by default found by `gpuqs.readers.headers.is_header`.
    """

    format = "csv"

    def __init__(self, *args: Any, header: bool | None = None, **kwargs: Any) -> None:
        _need_pyarrow()
        super().__init__(*args, **kwargs)
        names, self._delimiter, self._skip = first_line(self.source)
        check_columns(names, self.forest.n_features, self.path)
        if header is None:
            special = {self.label or "label", self.query or "qid"}
            header, doubt = is_header(names, self.forest.schema, special, self.path)
            if doubt:
                self.warnings.append(
                    f"the first line of {self.path}, {start_of(names)}, was taken for {doubt}; if it is a document, "
                    "use --no-header"
                )
        self._skip += header
        self._n_columns = len(names)
        self.columns = self._choose(names) if header else self._by_position(names)
        self._names = names if header else [str(at + 1) for at in range(len(names))]

    def _by_position(self, first: list[str]) -> _Columns:
        asked = self.query if self.label is None else self.label
        if asked is not None:
            raise ColumnError(
                f"{self.path}: no header, hence no column {asked!r}; write the names in its first line"
            )
        n, n_features = len(first), self.forest.n_features
        if n not in (n_features, n_features + 1):
            raise InputError(
                f"{self.path}: {n} columns and no header; the model takes {n_features} features, "
                "or a label and the features"
            )
        if n > n_features and not first[-1]:  # as from a delimiter after each line's last feature
            raise InputError(
                f"{self.path}: the first line ends with a {self._delimiter!r}: {n_features} features and a trailing "
                "delimiter, or a label and a missing last feature; delete trailing delimiters, or write NA for what is "
                "missing"
            )
        return _Columns(list(range(n - n_features, n)), 0 if n > n_features else None, None)

    def _feature_types(self, pyarrow: Any, first: Block) -> list[Any]:
        """What to read the features' columns as: texts where the model has categories that are texts."""
        schema = self.forest.schema
        if not (schema.in_order or schema.categories):
            return [pyarrow.float64()] * self.forest.n_features
        inferred = [kind_of_arrow(kind) for kind in self._inferred_types(first)]
        if schema.in_order:
            names = {Kind.TRUTH: "bool_", Kind.WHOLE: "float64", Kind.FRACTION: "float64"}
            types = [names.get(kind, "string") for kind in inferred]
            texts = [at for at, name in enumerate(types) if name == "string"]
            if len(texts) == len(schema.in_order):
                self._refuse_missing_spellings(dict(zip(texts, schema.in_order, strict=True)))
            return [getattr(pyarrow, name)() for name in types]
        self._refuse_missing_spellings(dict(enumerate(schema.categories)))
        types = [_type_of(*column, schema.rules) for column in zip(schema.categories, inferred, strict=True)]
        return [getattr(pyarrow, name)() for name in types]

    def _refuse_missing_spellings(self, known: dict[int, tuple[Any, ...] | None]) -> None:
        """Refuse features among whose categories is a text that stands for a missing value in CSV."""
        for feature, values in known.items():
            held = {value for value in values or () if isinstance(value, str)}
            spelling = next((text for text in MISSING if not held.isdisjoint({text, *hash_names([text])})), None)
            if spelling is not None:
                name = self._names[self.columns.features[feature]]
                raise InputError(
                    f"{self.path}: the model has the category {spelling!r} in column {name!r}, which CSV does not tell "
                    "from missing: write the documents as Parquet"
                )

    def _inferred_types(self, first: Block) -> list[Any]:
        """What the features' columns seem to hold by the file's first block."""
        table = self._table(first, null_values=MISSING, strings_can_be_null=True)
        return [table.schema.types[at] for at in self.columns.features]

    def _chunks(self) -> Iterator[Chunk]:
        import pyarrow

        with self.source.open() as file:
            for _ in range(self._skip):
                self.done += len(file.readline())
            found = blocks(file, self._delimiter, self._skip, self.path)
            first = next(found, None)
            if first is None:
                return
            ids = [f"c{at}" for at in self.columns.wanted]
            kinds = self._feature_types(pyarrow, first)
            types = dict.fromkeys(ids, pyarrow.float64())
            types |= zip(ids, kinds, strict=False)
            if self.columns.query is not None:
                types[ids[-1]] = pyarrow.string()
            converting: dict[str, Any] = {
                "column_types": types,
                "include_columns": ids,
                "null_values": MISSING,
                "strings_can_be_null": pyarrow.string() in kinds,
            }
            names = [self._names[at] for at in self.columns.wanted]
            parse_block = partial(self._table, **converting)
            for block, table in parse_blocks(chain([first], found), parse_block, self.n_threads):
                self.done += block.size
                for batch in table.rename_columns(names).to_batches():
                    if batch.num_rows:
                        yield self._chunk(batch, self.columns)

    def _table(self, block: Block, **converting: Any) -> Any:
        import pyarrow

        try:
            return parse(block, [f"c{at}" for at in range(self._n_columns)], self._delimiter, **converting)
        except MemoryError:
            raise
        except pyarrow.ArrowException as error:
            raise InputError(self._explain(str(error), block)) from error

    def _explain(self, problem: str, block: Block) -> str:
        """What pyarrow refuses in a block: where it is in the file, and what is wrong there."""
        comma = "; write decimal points" if _DECIMAL_COMMA.search(problem) else ""
        found = _REFUSED.fullmatch(problem)
        if found is None:
            return f"{self.path}: {problem}{comma}"
        line = block.line + line_of_row(block.text, int(found["row"]), self._delimiter)
        column = "" if found["column"] is None else f", column {self._names[int(found['column'])]!r}"
        return f"{self.path}, line {line}{column}: {found['what']}{comma}"


class ParquetReader(_TableReader):
    """A Parquet file; columns by the model's feature names if it has real ones, else by position."""

    format = "parquet"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pyarrow = _need_pyarrow()
        from pyarrow import parquet

        super().__init__(*args, **kwargs)
        if self.source.start(len(_PARQUET)) != _PARQUET:  # before a stream is copied, which may never end
            raise InputError(f"{self.path}: not a readable Parquet file: it does not begin with {_PARQUET.decode()}")
        try:
            self._file = parquet.ParquetFile(self.source.open_seekable(), pre_buffer=False)
        except (pyarrow.ArrowException, OSError) as error:
            raise InputError(f"{self.path}: not a readable Parquet file: {error}") from error
        self._names = self._file.schema_arrow.names
        self.columns = self._choose(self._names)
        self.size = self._file.metadata.num_rows

    def _chunks(self) -> Iterator[Chunk]:
        import pyarrow

        names = [self._names[at] for at in self.columns.wanted]
        try:
            batches = self._file.iter_batches(self.chunk_rows, columns=names, use_threads=self.n_threads > 1)
            for batch in batches:
                self.done += batch.num_rows
                if batch.num_rows:
                    yield self._chunk(batch.select(names), self.columns)
        except MemoryError:
            raise
        except (pyarrow.ArrowException, OSError) as error:
            raise InputError(f"{self.path}: {error}") from error


def _type_of(known: tuple[Any, ...] | None, inferred: Kind, rules: Rules) -> str:
    """What to read a column of CSV as, whose categories these are, and which seems to hold ``inferred``."""
    if known is None:
        return "bool_" if inferred is Kind.TRUTH else "float64"
    if known and all(isinstance(value, bool) for value in known):
        return "bool_"
    if rules.as_texts and inferred is Kind.TRUTH and not {"true", "false"} & {str(value).lower() for value in known}:
        return "bool_"
    texts = rules.as_texts or all(isinstance(value, str) for value in known)
    if not texts and any(isinstance(value, str) for value in known):
        raise InputError(
            f"the model has categories that are texts and numbers, such as {known[:3]}, which CSV does not tell apart: "
            "write the documents as Parquet"
        )
    return "string" if texts else "float64"


def _shorten(names: list[str]) -> str:
    return ", ".join(map(repr, names[:8])) + (", ..." if len(names) > 8 else "")
