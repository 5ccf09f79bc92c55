"""Readers: what a training library wrote (or holds in memory) -> `gpuqs.forest.Forest`.

Each module of this package reads one format and offers the same five names:

- ``NAME``: the format's name, for people;
- ``FEATURES``: what of it is read, for people: a string for each of `FEATURES`;
- ``recognises(head)``: whether a file that begins with ``head`` is in this format;
- ``read(data, source)``: the Forest in ``data``; ``source`` is what error messages call it;
- ``from_object(obj)``: the Forest of a live object, or None if it is not this library's.

Formats are recognised by what a file holds, never by its name.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, Final

from gpuqs.errors import ModelFormatError
from gpuqs.forest import Forest
from gpuqs.formats import native
from gpuqs.streams import Input

#: Modules of this package, asked in this order; the first that recognises the content reads it.
FORMATS: Final = (
    *("native", "lightgbm", "xgboost", "catboost", "sklearn", "quickrank", "jforests"),
    *("treelite_json", "onnx_trees"),
)

#: Columns of the table of formats.
FEATURES: Final = ("files", "live objects", "missing values", "categories", "outputs", "raw scores")

#: Beginnings of files that are almost in a known format, and what to do with such files.
_NEARLY: Final = {
    rb"\x1f\x8b|BZh|\xfd7zXZ|\x28\xb5\x2f\xfd": "is compressed; unpack it first",
    rb'\s*\{\s*"name":\s*"tree"': "is a dump of LightGBM's (`dump_model`); save the model with `save_model`",
    rb'booster\[0\]|\s*\[\s*\{\s*"nodeid"': "is a dump of XGBoost's (`dump_model`); save the model with `save_model`",
}

#: Bytes of a file's beginning that `recognises` is given.
_HEAD_BYTES: Final = 4096


def readers() -> Iterator[ModuleType]:
    """The readers, each imported only when it is reached, so that importing gpuqs stays fast."""
    for name in FORMATS:
        yield import_module(f"{__name__}.{name}")


def read_model(model: Any, *, mmap: bool = False) -> Forest:
    """Read a model, whatever it is.

    Parameters
    ----------
    model : str, os.PathLike, bytes, bytearray, memoryview or a live model
        A path; the text of a model (a str with a line break in it, or that begins with "{"); the
        bytes of a model; or a live model of a library that is read (see `table`), or a Forest.
    mmap : bool
        Leave leaf values in the file, which must be in gpuqs's own format; see `gpuqs.load`.

    Returns
    -------
    Forest

    Raises
    ------
    ModelFormatError
        The model is damaged, or in no format that is read.
    UnsupportedModelError
        The model is sound but uses something that gpuqs does not evaluate.
    OSError
        The file cannot be read (``FileNotFoundError`` and its kin).
    """
    if mmap:
        if not isinstance(model, (str, os.PathLike)):
            raise ModelFormatError("mmap=True maps a file; pass its path", source=f"{type(model).__name__} object")
        with open(model, "rb") as file:
            return native.read_mapped(file, str(model))
    if isinstance(model, str) and ("\n" in model or model.startswith("{")):
        return _read_bytes(model.encode(errors="replace"), "model text")
    if isinstance(model, str) and not model:
        raise ModelFormatError("is empty; pass the path of a model's file", source="path")
    if isinstance(model, (str, os.PathLike)):
        return _read_file(Path(model))
    if isinstance(model, (bytes, bytearray, memoryview)):
        data = bytes(model)
        if len(data) <= _HEAD_BYTES and os.path.isfile(data):
            raise ModelFormatError("are the path of a file; pass it as a str", source="model bytes")
        return _read_bytes(data, "model bytes")
    for reader in readers():
        forest: Forest | None = reader.from_object(model)
        if forest is not None:
            return forest
    kind = type(model)
    problem = f"not a model that gpuqs reads: {_what_is_read()}"
    if hasattr(model, "read"):
        problem = "is an open file; pass its path, or what file.read() gives"
    raise ModelFormatError(problem, source=f"{kind.__module__}.{kind.__qualname__} object")


def _read_file(path: Path) -> Forest:
    if path.is_dir():
        raise ModelFormatError("is a directory; pass the path of the model's file in it", source=str(path))
    with Input(str(path)) as raw, io.BufferedReader(raw) as file:
        if raw.seekable() and native.recognises(head := file.peek(_HEAD_BYTES)):
            if n_bytes := os.fstat(raw.fileno()).st_size:  # 0 where a filesystem does not say
                native.check_size(head, n_bytes, str(path))
            raw.seek(0)
            return native.read(raw.read_pages(), str(path))
        data = content(file, str(path))
    return _read_bytes(data, str(path))


def content(file: BinaryIO, source: str) -> bytes:
    """All of a file in a format that is read; of other files only the beginning is read, as a device may never end.

    Raises
    ------
    ModelFormatError
        It is in no such format; the message names ``source``.
    """
    head = file.read(_HEAD_BYTES)
    _reader_of(head, source)
    if not file.seekable():
        return head + file.read()
    whole = getattr(file, "raw", file)  # a buffer would be prepended to the rest, by a copy of all
    whole.seek(file.tell() - len(head))
    rest: bytes = whole.read()
    return rest


def _read_bytes(data: bytes, source: str) -> Forest:
    forest: Forest = _reader_of(data[:_HEAD_BYTES], source).read(data, source)
    return forest


def _reader_of(head: bytes, source: str) -> ModuleType:
    for reader in readers():
        if reader.recognises(head):
            return reader
    for beginning, problem in _NEARLY.items():
        if re.match(beginning, head):
            raise ModelFormatError(f"{problem}, or pass the live model itself", source=source)
    problem = "is in no format that gpuqs reads" if head else "is empty"
    raise ModelFormatError(f"{problem}: {_what_is_read()}", source=source)


def table() -> str:
    """What is read of each format, as a Markdown table."""
    rows = [("format", *FEATURES), ("---",) * (1 + len(FEATURES))]
    rows += [(reader.NAME, *(reader.FEATURES[feature] for feature in FEATURES)) for reader in readers()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _what_is_read() -> str:
    names = ", ".join(reader.NAME for reader in readers() if not reader.FEATURES["files"].startswith("none"))
    return f"gpuqs reads files of {names}; save the model again in one of these, or pass the live model itself"
