"""CSV and Parquet, parsed by pyarrow; columns by the model's feature names, or by position."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np

from gpuqs.arrays.arrow_tables import TableCoding, fill_numbers, kind_of_arrow
from gpuqs.arrays.coding import NUMBERS
from gpuqs.arrays.columns import columns_of
from gpuqs.cpu_fallback import effective_threads, in_default_float_mode
from gpuqs.errors import InputError
from gpuqs.forest import Forest
from gpuqs.readers.base import Chunk, DocumentReader, parse_blocks
from gpuqs.readers.csv_blocks import Block, blocks, line_of_row, parse
from gpuqs.readers.csv_spellings import WholeNumbers
from gpuqs.readers.csv_types import TELL, ColumnTypes
from gpuqs.readers.headers import MISSING, check_columns, first_line, is_header, start_of, start_of_cell
from gpuqs.readers.source import DocumentSource

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


#: The first release of pyarrow that reads files as we ask it to.
_PYARROW = 14


def _need_pyarrow() -> Any:
    try:
        import pyarrow
    except ModuleNotFoundError:
        raise InputError("CSV and Parquet files need pyarrow: pip install 'gpuqs[cli]'") from None
    if int(pyarrow.__version__.partition(".")[0]) < _PYARROW:
        raise InputError(
            f"CSV and Parquet files need pyarrow {_PYARROW} or later, not {pyarrow.__version__}: "
            "pip install --upgrade 'gpuqs[cli]'"
        )
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
    """A column of labels or query ids was asked for that the file does not have."""


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

    @in_default_float_mode
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
    Where the model does not say what a column holds, its first values decide (`gpuqs.readers.csv_types`).

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
            header, doubt = is_header(names, self.forest.n_features, self.forest.schema, special, self.path)
            if doubt:
                self.warnings.append(
                    f"the first line of {self.path}, {start_of(names)}, was read as {doubt}; if it is a document, "
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
                f"{self.path}: the file has no header, so no column {asked!r}; write the names in its first line"
            )
        n, n_features = len(first), self.forest.n_features
        if n not in (n_features, n_features + 1):
            raise InputError(
                f"{self.path}: {n} columns and no header; the model takes {n_features} features, "
                "or a label and the features"
            )
        if n > n_features and not first[-1]:  # as from a delimiter after each line's last feature
            raise InputError(
                f"{self.path}: the first line ends with a {self._delimiter!r}, which may be a trailing delimiter "
                f"after {n_features} features, or a missing last feature after a label; delete trailing delimiters, or "
                "write NA for missing values"
            )
        if n > n_features:
            self.warnings.append(
                f"{self.path} has no header, and {n} columns where the model takes {n_features} features: the first, "
                f"which begins with {start_of_cell(first[0])!r}, was read as the label, as LightGBM does; "
                "if another column is the label, write the columns' names in the first line; if none is, leave that "
                "column out"
            )
        return _Columns(list(range(n - n_features, n)), 0 if n > n_features else None, None)

    def _chunks(self) -> Iterator[Chunk]:
        features = self.columns.features
        types = ColumnTypes(self.forest, [self._names[at] for at in features], self.path)
        schema = self.forest.schema
        as_texts = enumerate(schema.categories if schema.rules.as_texts else ())
        spelled = {at: WholeNumbers(known) for at, known in as_texts if known is not None}
        with self.source.open() as file:
            for _ in range(self._skip):
                self.done += len(file.readline())
            found = blocks(file, self._delimiter, self._skip, self.path)
            begin = list(islice(found, 1))
            if not begin:
                return
            types.see(self._inferred(begin[0], types.blank))
            if types.awaitable() and (more := list(islice(found, 1))):  # else the file has ended
                types.await_texts()
                begin += more
            self._reading = self._options(types)
            names = [self._names[at] for at in self.columns.wanted]
            for block, (reading, table) in parse_blocks(chain(begin, found), self._read, self.n_threads):
                self.done += block.size
                if shown := [at for at in types.blank if table.column(at).null_count < len(table)]:
                    self._see_late(types, shown, block, table)
                if reading is not self._reading:
                    table = self._table(block, **self._reading)
                for at in types.blank:
                    table = table.set_column(at, f"c{features[at]}", table.column(at).cast(types.types[at]))
                for at, numbers in spelled.items():
                    if types.types[at] != "string":  # bools
                        continue
                    column = numbers.respelled(table.column(at), partial(self._misspelled, block, features[at]))
                    table = table.set_column(at, f"c{features[at]}", column)
                for batch in table.rename_columns(names).to_batches():
                    if batch.num_rows:
                        yield self._chunk(batch, self.columns)
            types.finish()

    def _inferred(self, block: Block, features: Iterable[int]) -> dict[int, Any]:
        """Arrow's types for what feature columns seem to hold in a block."""
        at = sorted(features)
        if not at:
            return {}
        ids = [f"c{self.columns.features[feature]}" for feature in at]
        table = self._table(block, include_columns=ids, null_values=MISSING, strings_can_be_null=True)
        return dict(zip(at, table.schema.types, strict=True))

    def _see_late(self, types: ColumnTypes, shown: list[int], block: Block, table: Any) -> None:
        """Decide again how to read columns, by their first values, which are in this block."""
        types.see(self._inferred(block, shown))
        for at in shown:
            row = int(np.argmax(np.asarray(table.column(at).is_valid())))
            line = block.line + line_of_row(block.text, row + 1, self._delimiter)
            types.check(at, table.column(at)[row].as_py(), line)
        self._reading = self._options(types)
        self._coding = None

    def _options(self, types: ColumnTypes) -> dict[str, Any]:
        """How Arrow is to read blocks; still blank columns are read as strings, so that it accepts any value."""
        ids = [f"c{at}" for at in self.columns.wanted]
        kinds = ["string" if at in types.blank else name for at, name in enumerate(types.types)]
        others = ["float64"] * (self.columns.label is not None) + ["string"] * (self.columns.query is not None)
        return {
            "column_types": dict(zip(ids, [*kinds, *others], strict=True)),
            "include_columns": ids,
            "null_values": MISSING,
            "strings_can_be_null": "string" in kinds,
        }

    def _read(self, block: Block) -> tuple[dict[str, Any], Any]:
        reading = self._reading
        return reading, self._table(block, **reading)

    def _table(self, block: Block, **converting: Any) -> Any:
        import pyarrow

        try:
            return parse(block, [f"c{at}" for at in range(self._n_columns)], self._delimiter, **converting)
        except MemoryError:
            raise
        except pyarrow.ArrowException as error:
            raise InputError(self._explain(str(error), block)) from error

    def _misspelled(self, block: Block, column: int, row: int, problem: str) -> InputError:
        line = block.line + line_of_row(block.text, row + 1, self._delimiter)
        return InputError(f"{self.path}, line {line}, column {self._names[column]!r}: {problem}")

    def _explain(self, problem: str, block: Block) -> str:
        """What pyarrow refuses in a block: where it is in the file, and what is wrong there."""
        comma = "; write decimal points" if _DECIMAL_COMMA.search(problem) else ""
        found = _REFUSED.fullmatch(problem)
        if found is None:
            return f"{self.path}: {problem}{comma}"
        line = block.line + line_of_row(block.text, int(found["row"]), self._delimiter)
        if found["column"] is None:
            return f"{self.path}, line {line}: {found['what']}{comma}"
        at = int(found["column"])
        tell = f"; {TELL}" if self.forest.schema.in_order and at in self.columns.features else ""
        return f"{self.path}, line {line}, column {self._names[at]!r}: {found['what']}{comma}{tell}"


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
            self._names = self._file.schema_arrow.names
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise InputError(f"{self.path}: not a readable Parquet file: {error}") from error
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


def _shorten(names: list[str]) -> str:
    return ", ".join(map(repr, names[:8])) + (", ..." if len(names) > 8 else "")
