"""Documents from files, in chunks: svmlight / LETOR text, CSV, ``.npy`` and Parquet."""

from __future__ import annotations

import os
import re
from dataclasses import replace

from gpuqs.errors import InputError
from gpuqs.forest import Forest
from gpuqs.readers.base import Chunk, DocumentReader
from gpuqs.readers.headers import check_text
from gpuqs.readers.npy import NpyReader
from gpuqs.readers.source import DocumentSource
from gpuqs.readers.svmlight import SvmlightReader
from gpuqs.readers.tables import ColumnError, CsvReader, ParquetReader
from gpuqs.text_hashes import name_of_hash

__all__ = ["FORMATS", "Chunk", "ColumnError", "DocumentReader", "OptionError", "find_format", "open_documents"]

#: Formats, and which options of `open_documents` each takes.
_OPTIONS = {"svmlight": {"first_id"}, "csv": {"header", "label", "query"}, "npy": set(), "parquet": {"label", "query"}}
FORMATS = tuple(_OPTIONS)

_SNIFFED_BYTES = 1 << 16
_PAIR = re.compile(rb"(^|\s)(\d+|qid):")


class OptionError(InputError):
    """An option of `open_documents` that does not apply to a format; it is refused, not ignored.

    Parameters
    ----------
    path : path-like
    format, option : str
    """

    def __init__(self, path: str | os.PathLike[str], format: str, option: str) -> None:
        super().__init__(f"{path}: read as {format}, which takes no option {option!r}; leave it out")
        self.path = path
        self.format = format
        self.option = option


def find_format(path: str | os.PathLike[str] | DocumentSource) -> str:
    """The format of a file of documents, one of `FORMATS`, by its content.

    Raises
    ------
    InputError
        The file is empty, or in no format that gpuqs reads.
    """
    source = path if isinstance(path, DocumentSource) else DocumentSource(path)
    path, start = source.path, source.start(_SNIFFED_BYTES)
    if not start:
        raise InputError(f"{path}: the file is empty")
    if start.startswith(b"\x93NUMPY"):
        return "npy"
    if start.startswith(b"PAR1"):
        return "parquet"
    if start.startswith((b"\x1f\x8b", b"BZh", b"PK", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")):
        raise InputError(
            f"{path}: neither svmlight, CSV, .npy nor Parquet; if it is compressed or an archive, unpack it"
        )
    check_text(start, path)
    lines = [line.partition(b"#")[0].strip() for line in start.splitlines()]
    lines = [line for line in lines if line]
    if not lines:
        raise InputError(f"{path}: the first {_SNIFFED_BYTES >> 10} KiB hold no document")
    for line in lines:
        if b"," in line or b";" in line:
            return "csv"
        if _PAIR.search(line):
            return "svmlight"
        if b"\t" in line:
            return "csv"
    return "csv"


def open_documents(
    path: str | os.PathLike[str],
    forest: Forest,
    *,
    format: str | None = None,
    first_id: int = 0,
    header: bool | None = None,
    label: str | None = None,
    query: str | None = None,
    n_threads: int = 1,
) -> DocumentReader:
    """Open a file of documents for a model.

    Parameters
    ----------
    path : path-like
        "-" is standard input; that and FIFOs are read once, from start to end (Parquet and .npy in Fortran order
        through an unnamed temporary file as large as they are).
        If ``path + ".query"`` exists (LightGBM's file of query sizes), it gives the queries of a
        file that has none.
    forest : Forest
        The model: how many features, and their names.
    format : str, optional
        One of `FORMATS`; by default found by content.
    first_id : {0, 1}
        svmlight only: the feature id of the model's first feature. LightGBM and XGBoost take the
        ids as column numbers: 0.
    header : bool, optional
        CSV only: whether the first line holds names. By default found by content; it is an error if the
        line could be either. Text with tabs is read as CSV if this is given.
    label, query : str, optional
        Columns of CSV (with a header) and Parquet that hold relevance labels and query ids; by default
        ``label`` and ``qid``, if there are such columns.
    n_threads : int
        Threads that parse.

    Raises
    ------
    InputError
        Not a file of documents, or not of documents for this model.
    OptionError
        An InputError: an option of another format was given.
    ColumnError
        An InputError: there is no column called ``label``, or ``query``.
    """
    source, forest = DocumentSource(path), _read_for(forest)
    if format is None:
        format = find_format(source)
        if format == "svmlight" and header is not None and b"\t" in source.start(_SNIFFED_BYTES):
            format = "csv"  # whose cells look like features, as times of day do
    given = {"first_id": first_id or None, "header": header, "label": label, "query": query}
    for option, value in given.items():
        if value is not None and option not in _OPTIONS.get(format, given):
            raise OptionError(source.path, format, option)
    if format == "svmlight":
        return SvmlightReader(source, forest, first_id=first_id, n_threads=n_threads)
    if format == "csv":
        return CsvReader(source, forest, header=header, label=label, query=query, n_threads=n_threads)
    if format == "npy":
        return NpyReader(source, forest)
    if format == "parquet":
        return ParquetReader(source, forest, label=label, query=query, n_threads=n_threads)
    raise ValueError(f"format must be one of {', '.join(FORMATS)}, not {format!r}")


def _read_for(forest: Forest) -> Forest:
    """The forest that documents are read for, with the categories found in its CTRs: reading text depends on them."""
    ctrs, given = forest.ctrs, forest.given
    if ctrs is None:
        return given
    known = enumerate(given.schema.categories)
    named = [None if names is None else tuple(map(name_of_hash, ctrs.met(column))) for column, names in known]
    return replace(given, schema=replace(given.schema, categories=tuple(named)))
