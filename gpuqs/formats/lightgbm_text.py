"""The text in which LightGBM writes models: lines ``key=value``, numbers separated by spaces."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from gpuqs.errors import ModelFormatError
from gpuqs.formats.growing import GrowingArray, offsets

#: More lines than any header or tree has; a file may not make us hold millions of them.
_MAX_LINES: Final = 1000
_TO_SPACES: Final = bytes.maketrans(b"\t\v\f\r", b"    ")
#: Lines that LightGBM reads of a tree after the first.
_TREE_LINES: Final = 22
#: Bytes of a field's text that are collected before it is parsed, so that many small trees are parsed together.
_BLOCK_BYTES: Final = 1 << 16


def fields_of(text: bytes) -> dict[bytes, bytes]:
    """A header's lines ``key=value`` (or only ``key``) by key; the last line of a repeated key counts."""
    return _by_key(_lines(text, _MAX_LINES))


def tree_fields(text: bytes, tree: int, sized: bool) -> dict[bytes, bytes]:
    """A tree's lines ``key=value`` by key, as LightGBM reads them: it ignores what follows a blank line.

    Parameters
    ----------
    sized : bool
        The file says where trees lie. If it does not, LightGBM also ends a tree that has too many lines.
    """
    lines = _lines(text.rstrip(b"\r\n"), _MAX_LINES if sized else _TREE_LINES, tree)
    fields = _by_key(lines)
    if (alone := next((line for line in lines if b"=" not in line), None)) is not None:
        shown = f"line {alone[:20].decode(errors='replace')!r} has no '='" if alone else "holds a blank line"
        raise ModelFormatError(f"{shown}, where LightGBM stops reading; save or copy the model again", tree=tree)
    if len(fields) < len(lines):
        raise ModelFormatError("a field appears twice; save or copy the model again", tree=tree)
    return fields


def _lines(text: bytes, most: int, tree: int | None = None) -> list[bytes]:
    if text.count(b"\n") > most:
        raise ModelFormatError(f"more than {most} lines; save or copy the model again", tree=tree)
    return text.split(b"\n")


def _by_key(lines: list[bytes]) -> dict[bytes, bytes]:
    return dict(line.partition(b"=")[::2] for line in lines)


def needed(fields: dict[bytes, bytes], name: str, tree: int | None) -> bytes:
    """A header's or tree's field; a missing one is a `ModelFormatError`."""
    text = fields.get(name.encode())
    if text is None:
        raise ModelFormatError("is missing; save or copy the model again", tree=tree, field=name)
    return text


def count(fields: dict[bytes, bytes], name: str, lowest: int, highest: int, tree: int | None) -> int:
    """A header's or tree's field that is an integer in [lowest, highest]; anything else is a `ModelFormatError`."""
    text = needed(fields, name, tree).strip()
    # The length keeps int() fast, whatever the file says.
    if not (text.isdigit() and len(text) < 20 and lowest <= int(text) <= highest):
        shown = text[:20].decode(errors="replace")
        raise ModelFormatError(
            f"is {shown!r}, not an integer in [{lowest}, {highest}]", tree=tree, field=name
        )
    return int(text)


def numbers(text: bytes, count: int, dtype: npt.DTypeLike, name: str, tree: int | None) -> np.ndarray:
    """Exactly ``count`` numbers, separated by spaces; every float64 as it was written."""
    return _parsed(_words(text, count, name, tree), count, dtype, name, tree)


class FieldNumbers:
    """The numbers that one field holds in all trees, parsed many trees at a time.

    Parameters
    ----------
    name : str
    dtype : dtype-like
        What is kept; the text is read as float64 or int64.
    low, high : int
        Bounds of integers.
    problem : str
        The error message for integers outside.
    """

    def __init__(self, name: str, dtype: npt.DTypeLike, low: int = 0, high: int = 0, problem: str = "") -> None:
        self.name = name
        self._values = GrowingArray(dtype)
        self._read_as = np.dtype(np.float64 if self._values.dtype.kind == "f" else np.int64)
        self._bounds = low, high, problem
        self._texts: list[bytes] = []
        self._counts: list[int] = []
        self._first_tree = 0
        self._n_bytes = 0

    def add(self, text: bytes, count: int) -> None:
        """Add the field of the next tree, which must hold ``count`` numbers."""
        text = _words(text, count, self.name, self._first_tree + len(self._counts))
        self._texts.append(text)
        self._counts.append(count)
        self._n_bytes += len(text)
        if self._n_bytes > _BLOCK_BYTES:
            self._parse()

    def extend(self, values: np.ndarray, n_trees: int) -> None:
        """Add the field of the next trees, which is read and checked already."""
        self._parse()
        self._values.extend(values)
        self._first_tree += n_trees

    def array(self) -> np.ndarray:
        """The numbers of all trees."""
        self._parse()
        return self._values.array()

    def _parse(self) -> None:
        total = sum(self._counts)
        text = b" ".join(text for text in self._texts if text)
        try:
            values = _parsed(text, total, self._read_as, self.name, None)
        except ModelFormatError:  # in which tree?
            for tree, (text, count) in enumerate(zip(self._texts, self._counts, strict=True), self._first_tree):
                _parsed(text, count, self._read_as, self.name, tree)
            raise
        if self._read_as.kind == "i":
            self._check_bounds(values)
        self._values.extend(values)
        self._first_tree += len(self._counts)
        self._texts, self._counts, self._n_bytes = [], [], 0

    def _check_bounds(self, values: npt.NDArray[np.int64]) -> None:
        low, high, problem = self._bounds
        if len(values) and not low <= values.min() <= values.max() <= high:
            node = int(np.argmax((values < low) | (values > high)))
            starts = offsets(self._counts)
            tree = int(np.searchsorted(starts, node, "right")) - 1
            problem = f"node {node - starts[tree]}: {problem}"
            raise ModelFormatError(problem, tree=self._first_tree + tree, field=self.name)


def _words(text: bytes, count: int, name: str, tree: int | None) -> bytes:
    """``text`` as exactly ``count`` tokens with one space between them."""
    if n_words(text) != count or b"  " in text or text[:1] == b" " or text[-1:] == b" ":
        text = squeezed(text)
        if n_words(text) != count:
            raise ModelFormatError(f"holds {n_words(text)} values, not {count}", tree=tree, field=name)
    return text


def _parsed(text: bytes, count: int, dtype: npt.DTypeLike, name: str, tree: int | None) -> np.ndarray:
    if count == 0:
        return np.zeros(0, dtype)
    try:
        # The 0 at the end is reached only if all was read: older NumPy stops at what it cannot read.
        values = np.fromstring(text + b" 0", dtype, sep=" ")
    except (ValueError, DeprecationWarning):
        values = np.zeros(0, dtype)
    if len(values) != count + 1:
        raise ModelFormatError("holds something that is not a number", tree=tree, field=name)
    return values[:-1]


def squeezed(text: bytes) -> bytes:
    """``text`` with one space between its tokens, without making an object of each."""
    return one_spaced(text.translate(_TO_SPACES))


def one_spaced(text: bytes) -> bytes:
    """``text`` with every run of spaces as one space, and none at its ends."""
    text = text.strip(b" ")
    while b"  " in text:
        text = text.replace(b"  ", b" ")
    return text


def n_words(text: bytes) -> int:
    """Number of tokens of text with one space between them."""
    return text.count(b" ") + 1 if text else 0
