"""CSV text in blocks of whole rows, which pyarrow parses from memory.

Python reads the text, so that signal handlers run while a pipe stalls; and the thread with which pyarrow reads a
block holds no Python object, for which it would wait, or die, when the interpreter ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np

from gpuqs.errors import InputError

_BLOCK_BYTES: Final = 4 << 20
_LONGEST_ROW: Final = 16 << 20


class Block(NamedTuple):
    """Some whole rows of a file.

    Parameters
    ----------
    text : bytes
    size : int
        How many bytes of ``text`` are whole rows; the beginning of another row may follow.
    line : int
        How many lines of the file come before them.
    """

    text: bytes
    size: int
    line: int


def blocks(file: BinaryIO, delimiter: str, line: int, path: object) -> Iterator[Block]:
    """The rest of a file; ``line`` is how many of its lines were read before.

    Raises
    ------
    InputError
        A row is too long; the message names ``path``.
    """
    rest = b""
    while read := file.read(_BLOCK_BYTES):
        text = rest + read
        end = end_of_rows(text, delimiter)
        if end:
            yield Block(text, end, line)
        line += text.count(b"\n", 0, end)
        rest = text[end:]
        if len(rest) > _LONGEST_ROW:
            raise InputError(
                f"{path}, line {line + 1}: a row is longer than {_LONGEST_ROW >> 20} MiB; check that every quote is "
                "closed, and that this is a text file"
            )
    if rest:
        yield Block(rest, len(rest), line)


def end_of_rows(text: bytes, delimiter: str) -> int:
    """End of the last complete row in ``text``, which begins with a row; 0 if there is none."""
    end = text.rfind(b"\n") + 1
    if b'"' not in text:
        return end
    quotes = np.flatnonzero(np.frombuffer(text, np.uint8) == ord('"'))
    before = np.frombuffer(b"\n" + text, np.uint8)[quotes[::2]]
    if np.isin(before, list(f'{delimiter}\r\n"'.encode())).all():  # they open and close in turn, doubled ones too
        while np.searchsorted(quotes, end) % 2:
            end = text.rfind(b"\n", 0, int(quotes[np.searchsorted(quotes, end) - 1])) + 1
        return end
    return max((newline.end() for newline in _line_ends(text, delimiter)), default=0)


def line_of_row(text: bytes, row: int, delimiter: str) -> int:
    """The line, from 1, on which a row begins; blank lines are no rows, and rows count from 1."""
    begin = 0
    for newline in _line_ends(text, delimiter):
        if text[begin : newline.start()].strip(b"\r"):
            row -= 1
        if row == 0:
            break
        begin = newline.end()
    return text.count(b"\n", 0, begin) + 1


def _line_ends(text: bytes, delimiter: str) -> Iterator[re.Match[bytes]]:
    """The line feeds outside quoted cells; a quote that does not begin a cell is an ordinary character."""
    quoted = rb'(?<![^%s\r\n])"[^"]*(?:""[^"]*)*"?' % re.escape(delimiter).encode()
    return (found for found in re.finditer(rb"%s|\n" % quoted, text) if found[0] == b"\n")


def parse(block: Block, names: list[str], delimiter: str, **converting: Any) -> Any:
    """Parse a block into a pyarrow table; ``converting`` goes to pyarrow's ``ConvertOptions``."""
    import pyarrow
    from pyarrow import csv

    memory = pyarrow.allocate_buffer(block.size)
    memoryview(memory).cast("B")[:] = memoryview(block.text)[: block.size]
    return csv.read_csv(
        pyarrow.BufferReader(memory),
        csv.ReadOptions(use_threads=False, block_size=block.size, column_names=names),
        csv.ParseOptions(delimiter=delimiter),
        csv.ConvertOptions(**converting),
    )
