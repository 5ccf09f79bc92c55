"""Texts of CSV that spell a whole number otherwise than the model's categories do."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from gpuqs.errors import InputError
from gpuqs.text_hashes import holds

#: What pandas reads as a whole number, blanks around it and all.
_WHOLE: Final = re.compile(r"[ \t]*([+-]?[0-9]+)[ \t]*")

#: What it reads as a fraction, and what may be a whole number nevertheless.
_FRACTION: Final = re.compile(r"[ \t]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t]*")

#: Beyond that a fraction does not tell one whole number from the next.
_LARGEST: Final = 2.0**53


class WholeNumbers:
    """The spellings of whole numbers in a column of texts, whose categories a model compares as texts.

    CatBoost compares "7", and pandas reads 07, +7 and blanks around 7 as that number. So they are read here where all
    of the model's categories are whole numbers. Elsewhere they may be texts as well: blanks alone are taken off.
    Other spellings that match nothing, where the plain one matches, are refused.

    Parameters
    ----------
    known : tuple
        The model's categories: texts (and the whole numbers that some of them spell), or the names of their hashes.
    """

    def __init__(self, known: tuple[Any, ...]) -> None:
        self._known = frozenset(known)
        self._are_whole = bool(known) and all(_plain(str(value)) == str(value) for value in known)

    def respelled(self, column: Any, refuse: Callable[[int, str], InputError]) -> Any:
        """A chunked Arrow array of texts with its whole numbers as the model spells them.

        Parameters
        ----------
        column : pyarrow.ChunkedArray
        refuse : callable
            The error for a row of the column, and what is wrong there.

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
                    f"{texts[at]!r} is none of the model's categories, but {_plain(texts[at])!r} is; write it so",
                )
            parts.append(part if respelled == texts else pyarrow.array(respelled, "string").take(encoded.indices))
            row += len(part)
        return pyarrow.chunked_array(parts, "string")

    def _respelled(self, text: str) -> str | None:
        """The text as the model spells it, or itself; None where it is to be refused."""
        plain = _plain(text)
        if plain is None or plain == text or holds(self._known, text):
            return text
        if _WHOLE.fullmatch(text) and (self._are_whole or plain == text.strip(" \t")):
            return plain
        return None if holds(self._known, plain) else text


def _plain(text: str) -> str | None:
    """How Python writes the whole number that a text spells; None where it spells none."""
    if whole := _WHOLE.fullmatch(text):
        digits = whole[1].lstrip("+-").lstrip("0")
        return "-" * (whole[1][0] == "-") + digits if digits else "0"
    if not _FRACTION.fullmatch(text):
        return None
    number = float(text)
    return str(int(number)) if abs(number) <= _LARGEST and number == int(number) else None
