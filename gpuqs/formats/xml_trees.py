"""The common part of the readers of XML models: a parser that resists hostile files, and the numbers in its texts.

A document type declaration is refused, and with it every entity, external or expanding. Nesting and
the length of one tag are bounded, and nothing here or below recurses.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final
from xml.parsers import expat

from gpuqs.errors import ModelFormatError
from gpuqs.forest_checks import MAX_DEPTH

#: Upper limit of the depth of nested elements: the deepest tree, and a few elements around it.
_MAX_NESTING: Final = MAX_DEPTH + 16
#: Upper limit of the bytes of a tag, comment or declaration; expat reads an unfinished one again with every piece.
_MAX_MARKUP: Final = 1 << 20
_PIECE: Final = 1 << 16
#: Upper limit of the characters of a number: every float64, written in full, has fewer.
_MAX_NUMBER: Final = 1200

_COMMENT: Final = re.compile(rb"<!--.*?-->", re.DOTALL)
_START_TAG: Final = re.compile(rb"<([A-Za-z_][\w.-]*)")
_NUMBER: Final = re.compile(r"[+-]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?|inf(?:inity)?)", re.ASCII | re.IGNORECASE)
_WHOLE: Final = re.compile(r"[+-]?\d{1,18}", re.ASCII)


def root_name(head: bytes) -> bytes:
    """Name of the first element of a file that begins with ``head``; empty if it is not XML."""
    if not head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"<"):
        return b""
    tag = _START_TAG.search(_COMMENT.sub(b"", head))
    return tag[1] if tag else b""


def parse_xml(
    data: bytes | memoryview,
    start: Callable[[str, dict[str, str]], None],
    end: Callable[[str, str], None],
) -> None:
    """Call ``start(name, attributes)`` and ``end(name, text)`` at the tags of every element, in file order.

    Parameters
    ----------
    data : bytes or memoryview
        UTF-8, whatever it declares.
    start, end : callable
        ``text`` is the text between the end tag and the tag before it. The line is added to a
        `ModelFormatError` that they raise.

    Raises
    ------
    ModelFormatError
        Not well-formed, or something that no model needs: a document type, deep nesting, a huge tag.
    """
    # Checked before parsing: after a handler has raised, expat goes on to the end of its piece.
    data = bytes(data)
    if b"<!DOCTYPE" in data:
        raise ModelFormatError("holds a document type declaration, which no model needs; delete it")
    if b"\0" in data:  # not UTF-8; in UTF-16, a declaration would go unseen
        raise ModelFormatError("holds zero bytes: it is damaged, or not in UTF-8; save or copy the model again")
    parser = expat.ParserCreate("UTF-8")
    parser.buffer_text = True
    parts: list[str] = []
    depth = 0

    def opened(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _MAX_NESTING:
            raise ModelFormatError(f"elements are nested deeper than {_MAX_NESTING}")
        parts.clear()
        start(name, attributes)

    def closed(name: str) -> None:
        nonlocal depth
        depth -= 1
        text = "".join(parts)
        parts.clear()
        end(name, text)

    parser.StartElementHandler = opened
    parser.EndElementHandler = closed
    parser.CharacterDataHandler = parts.append
    try:
        for first in range(0, len(data), _PIECE):
            last = min(first + _PIECE, len(data))
            parser.Parse(data[first:last], False)
            if last - parser.CurrentByteIndex > _MAX_MARKUP:
                raise ModelFormatError(f"a tag or comment is longer than {_MAX_MARKUP} bytes")
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise ModelFormatError(
            f"is not well-formed XML, or is truncated or damaged: {error}; save or copy the model again"
        ) from None
    except ModelFormatError as error:
        problem = f"line {parser.CurrentLineNumber}: {error.problem}"
        raise ModelFormatError(problem, tree=error.tree, field=error.field) from None


def number(text: str | None, field: str, tree: int | None = None) -> float:
    """The float64 nearest to a decimal number; infinities are accepted, NaN is not."""
    text = _present(text, field, tree)
    if len(text) > _MAX_NUMBER or not _NUMBER.fullmatch(text):
        raise ModelFormatError(f"is {text[:40]!r}, not a number", tree=tree, field=field)
    return float(text)


def whole(text: str | None, low: int, high: int, field: str, tree: int | None = None) -> int:
    """An integer in ``[low, high]``."""
    text = _present(text, field, tree)
    if not _WHOLE.fullmatch(text) or not low <= int(text) <= high:
        problem = f"is {text[:40]!r}, not an integer in [{low}, {high}]"
        raise ModelFormatError(problem, tree=tree, field=field)
    return int(text)


def _present(text: str | None, field: str, tree: int | None) -> str:
    if text is None:
        raise ModelFormatError("is missing; save or copy the model again", tree=tree, field=field)
    return text.strip()
