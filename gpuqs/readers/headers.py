"""Whether the first line of CSV text holds names or a document: guessed only where no document can be lost."""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from gpuqs.errors import InputError
from gpuqs.readers.source import DocumentSource
from gpuqs.schema import Schema
from gpuqs.text_hashes import holds

_FIRST_READ: Final = 1 << 16
_LONGEST_FIRST_LINE: Final = 16 << 20
_SAY_WHICH: Final = "say --header or --no-header (header=True or False)"

#: Spellings of a missing value, LightGBM's and pandas's among them.
MISSING: Final = ["", "na", "NA", "N/A", "n/a", "nan", "NaN", "NAN", "null", "NULL", "None", "<NA>"]

#: What is clearly a name, where a document has numbers.
_IDENTIFIER: Final = re.compile(r"[^\W\d][\w .-]*")

_QUOTED: Final = re.compile(r'"[^"]*"')
_DECIMAL_COMMA: Final = re.compile(r"[-+]?\d*,\d+([eE][-+]?\d+)?")


class FirstLine(NamedTuple):
    """The first line of a CSV file that is not blank.

    Parameters
    ----------
    cells : list of str
    delimiter : str
    blank : int
        Blank lines before it.
    """

    cells: list[str]
    delimiter: str
    blank: int


def first_line(source: DocumentSource) -> FirstLine:
    """Read the first line, and find out what is between its cells: tabs, commas or semicolons."""
    size = _FIRST_READ
    while True:
        read = source.start(size)
        data = read.removeprefix(b"\xef\xbb\xbf")
        line = data.lstrip(b"\r\n")
        if len(read) < size or size >= _LONGEST_FIRST_LINE or b"\n" in line:
            break
        size *= 4
    blank = data[: len(data) - len(line)].count(b"\n")
    check_text(read, source.path)
    text = line.partition(b"\n")[0].rstrip(b"\r").decode(errors="replace")
    if "\r" in _QUOTED.sub("", text):
        raise InputError(
            f"{source.path}: lines end with only a carriage return, as on old Macs; write line feeds "
            "(tr '\\r' '\\n')"
        )
    for delimiter in "\t;":
        with_commas = [cell.strip(' "') for cell in text.split(delimiter) if "," in cell]
        if with_commas and delimiter in text and all(map(_DECIMAL_COMMA.fullmatch, with_commas)):
            raise InputError(
                f"{source.path}: the first line holds {with_commas[0]!r} between {delimiter!r}, a decimal comma; "
                "write decimal points"
            )
    delimiter = max("\t,;", key=text.count)
    try:
        cells = next(csv.reader([text], delimiter=delimiter), [])
    except csv.Error as error:
        raise InputError(f"{source.path}: the first line cannot be read as CSV: {error}") from None
    return FirstLine([cell.strip() for cell in cells], delimiter, blank)


def check_text(start: bytes, path: object) -> None:
    """Refuse what does not start as text in UTF-8, and say what to do.

    Raises
    ------
    InputError
    """
    halves = start[0::2].count(0), start[1::2].count(0)
    if start.startswith((b"\xff\xfe", b"\xfe\xff")) or (min(halves) == 0 and 8 * max(halves) > len(start)):
        raise InputError(f"{path}: this seems to be text in UTF-16; write it as UTF-8 (iconv -f UTF-16 -t UTF-8)")
    if any(halves):
        raise InputError(
            f"{path}: holds NUL bytes, so it is neither svmlight, CSV, .npy nor Parquet; if it is compressed or an "
            "archive, unpack it, and if it is text, delete them"
        )


def check_columns(cells: list[str], n_features: int, path: object) -> None:
    """Refuse a first line with a single cell if the model has several features.

    Raises
    ------
    InputError
    """
    if len(cells) == 1 < n_features:
        what = start_of_cell(cells[0])
        comment = "; comments are not allowed in CSV; delete it" if what.startswith("#") else ""
        raise InputError(
            f"{path}: the first line, {what!r}, holds one column, but the model takes {n_features} features; separate "
            f"columns by commas, tabs or semicolons{comment}"
        )


class Guess(NamedTuple):
    """Whether the first line holds names.

    Parameters
    ----------
    header : bool
    doubt : str
        What the line was taken for, if a warning must say so; else empty.
    """

    header: bool
    doubt: str = ""


def is_header(
    cells: list[str], n_features: int, schema: Schema, special: Collection[str], path: object
) -> Guess:
    """Whether cells are names of columns.

    They are if one that is not a number is a name that the model (or the caller) knows, and not a category of the
    model; or if all are the model's names. Other strings are taken for names only if the model has no categories, and
    either a document of them would fail or each is clearly a name. Cells are a document if all are numbers or missing.

    Parameters
    ----------
    cells : list of str
    n_features : int
    schema : Schema
        The model's feature names and categories.
    special : collection of str
        The names of labels and query ids.
    path : object
        What messages call the file.

    Raises
    ------
    InputError
        It may be either.
    """
    names = set(schema.names)
    spelled = [cell if cell in names else schema.stored(cell) for cell in cells]
    texts = [cell for cell in cells if not is_number(cell)]
    if not texts:
        known = len(cells) > 1 and all(a in names or b in special for a, b in zip(spelled, cells, strict=True))
        if known and (tuple(cells) == schema.names or not _counted(schema.names)):
            return Guess(True, "the model's feature names")
        if len(cells) == n_features + 1 and cells[0] == "" and _counted(cells[1:]):
            raise InputError(
                f"{path}: the first line, {start_of(cells)}, may be a document without a label, or what pandas "
                "writes above an index and unnamed columns; write it by to_csv(index=False, header=False), or say "
                "--no-header (header=False) if it is a document"
            )
        if known or (len(cells) > 1 and _counted(cells)):
            raise InputError(
                f"{path}: the first line, {start_of(cells)}, may be a document, or the column numbers that pandas "
                f"writes as a header; {_SAY_WHICH}"
            )
        return Guess(False)
    has_all = bool(names) and names.issubset(spelled)
    if cells[0].startswith("#") and not has_all:
        raise InputError(
            f"{path}: the first line, {start_of(cells)}, starts with '#'; CSV has no comments here: delete the line, "
            f"or {_SAY_WHICH}"
        )
    named = {a for a, b in zip(cells, spelled, strict=True) if b in names or a in special}.intersection(texts)
    all_texts = len(texts) == len(cells) - (cells[0] == "")  # of an index
    if named - _categories_among(named, schema):
        if schema.has_names or not schema.has_categories or has_all:
            return Guess(True)
        if all_texts:
            return Guess(True, "a header")
    elif all_texts and not schema.has_categories:
        if schema.has_names:  # its names are not there: choosing the columns fails
            return Guess(True)
        if len(texts) > 1 and len(set(texts)) == len(texts) and all(map(_IDENTIFIER.fullmatch, texts)):
            return Guess(True, "a header")
    if schema.has_categories or all_texts:
        raise InputError(
            f"{path}: the first line, {start_of(cells)}, may be a document, or a header with names that the model does "
            f"not know; {_SAY_WHICH}"
        )
    raise InputError(
        f"{path}: the first line has {start_of_cell(texts[0])!r} where a document has a number, but also "
        f"{len(cells) - len(texts)} cells that cannot be names; correct the cell, or {_SAY_WHICH}"
    )


def _counted(names: Sequence[str]) -> bool:
    """Whether columns are called 0, 1, ..., as pandas calls those without names."""
    return list(names) == [str(at) for at in range(len(names))]


def _categories_among(texts: Collection[str], schema: Schema) -> set[str]:
    """Those strings that are also categories of the model."""
    known = {value for values in (*schema.categories, *schema.in_order) for value in values or ()}
    return {text for text in texts if holds(known, text)}


def is_number(cell: str) -> bool:
    """Whether a cell can be a document's: a number, or a missing one."""
    if cell in MISSING:
        return True
    try:
        float(cell)
    except ValueError:
        return False
    return True


def start_of(cells: list[str]) -> str:
    """The first cells, for messages; an empty one is shown as quotes."""
    return ", ".join(start_of_cell(cell) or "''" for cell in cells[:4]) + (", ..." if len(cells) > 4 else "")


def start_of_cell(cell: str) -> str:
    """A cell, for messages."""
    return cell[:40] + "..." * (len(cell) > 40)
