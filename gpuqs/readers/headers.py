"""Whether the first line of CSV text holds names or a document: guessed only where no document can be lost."""

from __future__ import annotations

import csv
from collections.abc import Collection
from typing import Final, NamedTuple

from gpuqs.errors import InputError
from gpuqs.readers.source import DocumentSource

_FIRST_READ: Final = 1 << 16
_LONGEST_FIRST_LINE: Final = 16 << 20
_SAY_WHICH: Final = "say --header or --no-header (header=True or False)"

#: Spellings of a missing value, LightGBM's and pandas's among them.
MISSING: Final = ["", "na", "NA", "N/A", "n/a", "nan", "NaN", "NAN", "null", "NULL", "None", "<NA>"]


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
    text = line.partition(b"\n")[0].rstrip(b"\r").decode(errors="replace")
    delimiter = max("\t,;", key=text.count)
    try:
        cells = next(csv.reader([text], delimiter=delimiter), [])
    except csv.Error as error:
        raise InputError(f"{source.path}: the first line cannot be read as CSV: {error}") from None
    return FirstLine([cell.strip() for cell in cells], delimiter, blank)


def is_header(cells: list[str], names: Collection[str], path: object) -> bool:
    """Whether cells are names of columns.

    They are if one that is no number is a name that the model (or the caller) knows, if all are the model's, or
    if none is a number (the first may be empty, as where pandas writes an index). They are a document if all are
    numbers or missing.

    Parameters
    ----------
    cells : list of str
    names : collection of str
        The model's feature names, and those of labels and query ids.
    path : object
        What messages call the file.

    Raises
    ------
    InputError
        It may be either.
    """
    known = {*names, *(name.replace("_", " ") for name in names)}  # LightGBM stores blanks as underscores
    texts = [cell for cell in cells if not is_number(cell)]
    if not texts:
        if len(cells) > 1 and known.issuperset(cells):
            return True
        if len(cells) > 1 and cells == [str(at) for at in range(len(cells))]:
            raise InputError(
                f"{path}: the first line, {start_of(cells)}, is a document, or the columns' numbers as pandas writes "
                f"them; {_SAY_WHICH}"
            )
        return False
    if not known.isdisjoint(texts) or len(texts) == len(cells) - (cells[0] == ""):
        return True
    raise InputError(
        f"{path}: the first line has {texts[0]!r} where a document has a number, and {len(cells) - len(texts)} "
        f"cells that are no names; mend the cell, or {_SAY_WHICH}"
    )


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
    """The first cells, for messages."""
    return ", ".join(cells[:4]) + (", ..." if len(cells) > 4 else "")
