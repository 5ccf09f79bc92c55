"""The text in which LightGBM writes models: lines ``key=value``, numbers separated by spaces."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from gpuqs.errors import ModelFormatError

#: More lines than any header or tree has; a file may not make us hold millions of them.
_MAX_LINES: Final = 1000
_TO_SPACES: Final = bytes.maketrans(b"\t\v\f\r", b"    ")


def fields_of(text: bytes, tree: int | None = None) -> dict[bytes, bytes]:
    """Lines ``key=value`` (or ``key`` alone) by key; of a repeated key the last one holds."""
    if text.count(b"\n") > _MAX_LINES:
        raise ModelFormatError(f"more than {_MAX_LINES} lines; save or copy the model anew", tree=tree)
    return dict(line.partition(b"=")[::2] for line in text.split(b"\n"))


def count(fields: dict[bytes, bytes], name: str, lowest: int, highest: int, tree: int | None) -> int:
    text = fields.get(name.encode())
    if text is None:
        raise ModelFormatError("is missing; save or copy the model anew", tree=tree, field=name)
    text = text.strip()
    # The length keeps int() fast, whatever the file says.
    if not (text.isdigit() and len(text) < 20 and lowest <= int(text) <= highest):
        shown = text[:20].decode(errors="replace")
        raise ModelFormatError(
            f"is {shown!r}, not a whole number in [{lowest}, {highest}]", tree=tree, field=name
        )
    return int(text)


def numbers(text: bytes, count: int, dtype: npt.DTypeLike, name: str, tree: int | None) -> np.ndarray:
    """Exactly ``count`` numbers, separated by spaces; every float64 as it was written."""
    if n_words(text) != count:
        text = squeezed(text)
    if n_words(text) != count:
        raise ModelFormatError(f"holds {n_words(text)} values, not {count}", tree=tree, field=name)
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
    """``text`` with one space between its words, without making an object of each."""
    text = text.translate(_TO_SPACES).strip(b" ")
    while b"  " in text:
        text = text.replace(b"  ", b" ")
    return text


def n_words(text: bytes) -> int:
    """Number of words of text with one space between them."""
    return text.count(b" ") + 1 if text else 0


def joined(parts: list[np.ndarray], dtype: npt.DTypeLike) -> np.ndarray:
    return np.concatenate([np.zeros(0, dtype), *parts])
