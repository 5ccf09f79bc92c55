"""Strings in CSV that spell an integer differently from the model's categories."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from gpuqs.errors import InputError
from gpuqs.text_hashes import holds

#: What pandas reads as an integer, including blanks around it.
_WHOLE: Final = re.compile(r"[ \t]*([+-]?[0-9]+)[ \t]*")

#: What pandas reads as a float, which may be a whole number nevertheless.
_FRACTION: Final = re.compile(r"[ \t]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t]*")

#: Beyond this, floats do not distinguish consecutive integers.
_LARGEST: Final = 2.0**53


class WholeNumbers:
    """The spellings of integers in a column of strings, whose categories a model compares as strings.

    CatBoost compares "7", but pandas reads 07, +7 and 7 with blanks around it as that number. Here they are, too, if
    all of the model's categories are integers. Otherwise they may be strings as well: only blanks are removed.
    Other spellings that match no category, though the plain one does, are refused.

    Parameters
    ----------
    known : tuple
        The model's categories: strings (and the integers that some of them spell), or the names of their hashes.
    """

    def __init__(self, known: tuple[Any, ...]) -> None:
        self._known = frozenset(known)
        self._are_whole = bool(known) and all(_plain(str(value)) == str(value) for value in known)

    def respelled(self, column: Any, refuse: Callable[[int, str], InputError]) -> Any:
        """A chunked Arrow array of strings with its integers as the model spells them.

        Parameters
        ----------
        column : pyarrow.ChunkedArray
        refuse : callable
            Makes the error from a row of the column, and what is wrong there.

        Raises
        ------
        InputError
        """
        import pyarrow

        parts, row = [], 0
        for part in column.chunks:
            encoded = part.dictionary_encode()
            texts = encoded.dictionary.to_pylist()
            respelled = [self._respelled(text) for text in texts]
            if None in respelled:
                at = respelled.index(None)
                first = int(np.argmax(np.asarray(encoded.indices.fill_null(-1)) == at))
                raise refuse(
                    row + first,
                    f"{texts[at]!r} is not one of the model's categories, but {_plain(texts[at])!r} is; write it so",
                )
            parts.append(part if respelled == texts else pyarrow.array(respelled, "string").take(encoded.indices))
            row += len(part)
        return pyarrow.chunked_array(parts, "string")

    def _respelled(self, text: str) -> str | None:
        """The string as the model spells it, or itself; None if it is to be refused."""
        plain = _plain(text)
        if plain is None or plain == text or holds(self._known, text):
            return text
        if _WHOLE.fullmatch(text) and (self._are_whole or plain == text.strip(" \t")):
            return plain
        return None if holds(self._known, plain) else text


def _plain(text: str) -> str | None:
    """How Python writes the integer that a string spells; None if it spells none."""
    if whole := _WHOLE.fullmatch(text):
        digits = whole[1].lstrip("+-").lstrip("0")
        return "-" * (whole[1][0] == "-") + digits if digits else "0"
    if not _FRACTION.fullmatch(text):
        return None
    number = float(text)
    return str(int(number)) if abs(number) <= _LARGEST and number == int(number) else None
