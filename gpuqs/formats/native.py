"""gpuqs's own format: the arrays of a `Forest` as they lie in memory, to be used in place.

A file is, all little-endian::

    0   8 bytes   magic
    8   uint32    version of the format
    12  uint32    bytes of the header
    16  uint64    bytes of the file
    24  uint32    CRC-32 of the file without these four bytes
    28  uint32    0
    32            the header: JSON, ASCII; then, each at a multiple of 64 bytes, the arrays

The header is ``{"fields": {name: value}, "arrays": {name: {"dtype", "shape", "offset"}}}``; offsets count
from the first multiple of 64 after it. The header may have a third entry ``"plan"``, which `kept_plan` returns
unchanged. `kept_arrays` returns arrays whose names have a dot, except those of CTRs, which belong to the forest
(`gpuqs.formats.native_ctrs`). Readers ignore names that they do not know; a change that affects a model's scores raises
the version. Arrays that equal their default (`gpuqs.forest_arrays`) are left out. Nothing in a file is ever executed.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from io import BufferedReader
from itertools import pairwise
from math import isfinite, nan, prod
from types import MappingProxyType
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np

from gpuqs.cpu_fallback.file_bytes import crc32
from gpuqs.errors import ModelFormatError, UnsupportedModelError
from gpuqs.files import mapped, replacing
from gpuqs.forest import Forest
from gpuqs.forest_arrays import ARRAYS, as_by_default, lengths
from gpuqs.formats import native_ctrs
from gpuqs.formats.fields import INT32_MAX, get, parse_json
from gpuqs.schema import RULES, Schema

NAME: Final = "gpuqs"

#: The features that are read, by the columns of `gpuqs.formats.FEATURES`.
FEATURES: Final = {
    "files": "`Model.save`",
    "live objects": "`gpuqs.forest.Forest`",
    "missing values": "all",
    "categories": "all",
    "outputs": "all",
    "raw scores": "same bits",
}

#: Not ASCII, and with both characters of line ends, so that a transfer as text is noticed.
MAGIC: Final = b"\x93GPUQS\r\n"
VERSION: Final = 2

_PREAMBLE: Final = struct.Struct("<8sIIQII")
#: The bytes of the checksum.
_CRC: Final = slice(24, 28)
_ALIGNMENT: Final = 64

#: The type of each array in a file.
_DTYPES: Final = {name: np.dtype(array.dtype).newbyteorder("<").str for name, array in ARRAYS.items()}
#: Arrays that files may lack. All others are needed for their lengths or for the scores.
_LINEAR: Final = ("linear_offsets", "linear_feature", "linear_coefficient")
_MAY_LACK: Final = ("iteration_starts", "leaf_id", "category_offsets", "category_words", *_LINEAR)
_KINDS: Final = {int: "a 32-bit integer", str: "a string", bool: "true or false", float: "a finite number"}
#: A Forest's fields of those types, and the type of each in the header.
_FIELDS: Final = {
    field.name: kind for field in dataclasses.fields(Forest) for kind in _KINDS if field.type == kind.__name__
}
#: Arrays that stay in a mapped file. All others sooner or later determine which memory engines read and write:
#: even thresholds, whose order gives ranks.
_MAPPED: Final = ("leaf_value",)


#: For a Forest that was read from a file: the plan in the file, and its arrays that are not the Forest's.
_BESIDE: WeakKeyDictionary[Forest, tuple[Any, dict[str, np.ndarray]]] = WeakKeyDictionary()
#: The types that such arrays may have; all have one dimension.
_KEPT_DTYPES: Final = tuple(np.dtype(kind).newbyteorder("<").str for kind in ("float64", "int64", "uint16"))


def kept_plan(forest: Forest) -> Any:
    """The plan in the file that a Forest was read from, as unchecked JSON values; None if there is none."""
    return _BESIDE.get(forest, (None, {}))[0]


def kept_arrays(forest: Forest) -> dict[str, np.ndarray]:
    """The other arrays in the file that a Forest was read from; copies, with unchecked contents."""
    return _BESIDE.get(forest, (None, {}))[1]


def recognises(head: bytes) -> bool:
    """Whether a file that begins with ``head`` is in gpuqs's own format."""
    return head.startswith(MAGIC)


def from_object(obj: Any) -> Forest | None:
    """A `Forest` as it is; None for anything else."""
    return obj if isinstance(obj, Forest) else None


# -- writing ------------------------------------------------------------------------------


def check_target(path: str | os.PathLike[str]) -> None:
    """Refuse a file that holds something else, such as another library's model, of which it may be the only copy.

    Raises
    ------
    FileExistsError
    """
    if os.path.isfile(path) and os.path.getsize(path) and os.access(path, os.R_OK):
        with open(path, "rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                problem = "is not a model in gpuqs's format; save under another name, or remove it first"
                raise FileExistsError(errno.EEXIST, problem, os.fspath(path))


def write(
    forest: Forest,
    path: str | os.PathLike[str],
    plan: dict[str, Any] | None = None,
    kept: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> None:
    """Write a Forest to a file, whole or not at all: see `gpuqs.files.replacing`.

    If the old file is replaced, whoever has it mapped keeps its old contents. If it can only be overwritten, that is
    refused if this process has it mapped; other processes see it change, or end by SIGBUS if it becomes shorter.

    ``plan``: JSON values that `kept_plan` returns. ``kept``: arrays that `kept_arrays` returns; their names have a dot.

    Raises
    ------
    UnsupportedModelError
        A category or class label is no string, number or boolean.
    OSError
        The file cannot be written.
    """
    left_out = as_by_default(vars(forest))
    arrays = {n: np.ascontiguousarray(getattr(forest, n), t) for n, t in _DTYPES.items() if n not in left_out}
    beside = {**kept, **({} if forest.ctrs is None else native_ctrs.arrays_of(forest.ctrs))}
    arrays |= {name: array.astype(array.dtype.newbyteorder("<")) for name, array in beside.items()}
    header = _header(forest, arrays, plan)
    size = _aligned(_PREAMBLE.size + len(header)) + sum(_aligned(values.nbytes) for values in arrays.values())
    version = 1 if forest.schema.missing is None else 2  # the lowest that has what the model needs
    start = _PREAMBLE.pack(MAGIC, version, len(header), size, 0, 0)
    crc = crc32(start[: _CRC.start])
    for part in (start[_CRC.stop :], *_parts(header, arrays)):
        crc = crc32(part, crc)
    with replacing(path) as file:
        file.write(_PREAMBLE.pack(MAGIC, version, len(header), size, crc, 0))
        file.writelines(_parts(header, arrays))


def _header(forest: Forest, arrays: dict[str, np.ndarray], plan: dict[str, Any] | None) -> bytes:
    fields: dict[str, Any] = {name: kind(getattr(forest, name)) for name, kind in _FIELDS.items()}
    fields["best_iteration"] = forest.best_iteration
    schema = forest.schema
    fields["feature_names"] = _plain(schema.names, "feature name")
    fields["categories"] = [None if c is None else _plain(c, "category") for c in schema.categories]
    fields["categories_in_order"] = [_plain(values, "category") for values in schema.in_order]
    fields["library"] = schema.library
    fields["categories_stated"], fields["categories_lost"] = list(schema.stated), list(schema.lost)
    fields["objects_as_float64"] = schema.objects_as_float64
    fields["absent"] = "missing" if np.isnan(schema.absent) else "zero"
    fields["missing"] = "" if schema.missing is None else repr(schema.missing)  # JSON has no infinities
    fields["classes"] = _plain(forest.classes, "class label")
    if forest.ctrs is not None:
        fields["ctrs"] = native_ctrs.fields_of(forest.ctrs)
    table, offset = {}, 0
    for name, values in arrays.items():
        table[name] = {"dtype": values.dtype.newbyteorder("<").str, "shape": values.shape, "offset": offset}
        offset += _aligned(values.nbytes)
    header = {"fields": fields, "arrays": table} | ({} if plan is None else {"plan": plan})
    return json.dumps(header, separators=(",", ":")).encode("ascii")


def _plain(values: tuple[Any, ...], what: str) -> list[str | int | float | bool]:
    """Values with NumPy scalars as Python's; refuse values that JSON would not return unchanged."""
    plain = [value.item() if isinstance(value, np.generic) else value for value in values]
    for value, given in zip(plain, values, strict=True):
        if not isinstance(value, (str, int, float)) or isinstance(given, (np.datetime64, np.timedelta64)):
            raise UnsupportedModelError(
                f"a {what} is a {type(given).__qualname__}; only strings, numbers and booleans can be saved; "
                "train with one of those"
            )
    return plain


def _parts(header: bytes, arrays: dict[str, np.ndarray]) -> Iterator[bytes | memoryview]:
    """The file after the preamble, piece by piece, each followed by its padding."""
    yield header
    yield bytes(-(_PREAMBLE.size + len(header)) % _ALIGNMENT)
    for values in arrays.values():
        yield values.reshape(-1).view(np.uint8).data
        yield bytes(-values.nbytes % _ALIGNMENT)


def _aligned(size: int) -> int:
    return size + -size % _ALIGNMENT


# -- reading ------------------------------------------------------------------------------


def read(data: bytes | memoryview, source: str) -> Forest:
    """Read gpuqs's own format; the Forest's arrays are views of ``data`` (on little-endian machines).

    Parameters
    ----------
    data : bytes or memoryview
        Memory that does not change.
    source : str
        What error messages call the model: its file.

    Raises
    ------
    ModelFormatError
        The file is truncated, damaged, or of a newer version. The message names the source and the field.
    """
    return _named(memoryview(data), source, tuple(ARRAYS))


def read_mapped(file: BufferedReader, source: str) -> Forest:
    """Read gpuqs's own format and leave the leaf values in the file, mapped into memory.

    Everything else is copied, and the copies are validated: if the file is overwritten meanwhile or later, only scores
    change (with ``precision="fast"`` they stay finite, even if leaf values are not). If the file is cut short, reading
    leaf values that it no longer has ends the process by SIGBUS.

    Raises
    ------
    ModelFormatError
        As `read`; or ``file`` cannot be mapped (a pipe, an empty file).
    """
    try:
        data = mapped(file)
    except (OSError, ValueError):
        raise ModelFormatError("cannot be mapped into memory; load it without mmap=True", source=source) from None
    if not recognises(data[: len(MAGIC)]):
        raise ModelFormatError(
            "is not in gpuqs's own format, the only one that can be mapped; load it without mmap=True, or save the "
            "model with Model.save and load that file",
            source=source,
        )
    return _named(memoryview(data), source, _MAPPED)


def _named(data: memoryview, source: str, in_place: tuple[str, ...]) -> Forest:
    try:
        return _read(data, in_place)
    except ModelFormatError as error:
        raise error.at(source) from None
    except (ValueError, TypeError) as error:  # from a Forest whose fields do not fit together
        raise ModelFormatError(f"is damaged: {error}", source=source) from None


def check_size(head: bytes, n_bytes: int, source: str) -> None:
    """Refuse a file of ``n_bytes`` bytes whose beginning states another size, before all of it is read.

    Raises
    ------
    ModelFormatError
        As `read`.
    """
    try:
        _preamble(head, n_bytes)
    except ModelFormatError as error:
        raise error.at(source) from None


def _preamble(head: bytes | memoryview, n_bytes: int) -> tuple[int, int]:
    """The length of the header and the checksum of a file of ``n_bytes`` bytes."""
    if len(head) < _PREAMBLE.size:
        raise ModelFormatError("the file is cut short; save or copy the model again")
    magic, version, n_header, size, crc, _ = _PREAMBLE.unpack_from(head)
    if magic != MAGIC:
        raise ModelFormatError("does not begin like a gpuqs model")
    if not 1 <= version <= VERSION:
        raise ModelFormatError(
            f"is in version {version} of the format, but this gpuqs reads only versions 1 to {VERSION}; "
            "upgrade gpuqs if a newer one wrote it, else save or copy the model again",
            field="version",
        )
    if n_bytes < size:
        problem = f"the file is cut short: {n_bytes:,} bytes of {size:,}; save or copy the model again"
        raise ModelFormatError(problem)
    if n_bytes > size:
        problem = f"the file is damaged: {n_bytes:,} bytes, not {size:,}; save or copy the model again"
        raise ModelFormatError(problem)
    return n_header, crc


def _read(data: memoryview, in_place: tuple[str, ...]) -> Forest:
    n_header, crc = _preamble(data, len(data))
    if crc32(data[_CRC.stop :], crc32(data[: _CRC.start])) != crc:
        raise ModelFormatError("the file is damaged: its checksum is wrong; save or copy the model again")
    header_end = _PREAMBLE.size + n_header
    if header_end > len(data):
        raise ModelFormatError("the header is longer than the file")
    header = parse_json(data[_PREAMBLE.size : header_end])
    arrays: dict[str, Any] = _arrays(data[_aligned(header_end) :], get(header, "arrays", dict), in_place)
    kept = {name: arrays.pop(name) for name in list(arrays) if "." in name}
    fields = get(header, "fields", dict)
    values = {name: _field(fields, name, kind) for name, kind in _FIELDS.items()}
    _check_lengths(arrays, values["n_features"], values["n_outputs"])
    ctrs = native_ctrs.read(get(fields, "ctrs", dict), kept) if "ctrs" in fields else None
    kept = {name: array for name, array in kept.items() if name not in (native_ctrs.KEYS, native_ctrs.VALUES)}
    forest = Forest(
        **arrays,
        **values,
        best_iteration=_field(fields, "best_iteration", int) if fields.get("best_iteration") is not None else None,
        schema=_schema(fields),
        classes=_values(get(fields, "classes", list), "classes"),
        ctrs=ctrs,
    )
    _BESIDE[forest] = header.get("plan"), kept
    return forest


def _arrays(data: memoryview, table: dict[str, Any], in_place: tuple[str, ...]) -> dict[str, np.ndarray]:
    """The arrays, checked not to overlap: views of ``data`` if ``in_place`` names them, else copies."""
    arrays, places = {}, []
    known = {name: (dtype, ARRAYS[name].n_dimensions) for name, dtype in _DTYPES.items()}
    for name in [name for name in table if "." in name and isinstance(table[name], dict)]:
        if table[name].get("dtype") in _KEPT_DTYPES:
            known[name] = table[name]["dtype"], 1
    for name, (dtype, n_dimensions) in known.items():
        if name in _MAY_LACK and name not in table:
            continue
        entry = get(table, name, dict)
        if entry.get("dtype") != dtype:
            raise ModelFormatError(f"has dtype {str(entry.get('dtype'))[:20]!r}, not {dtype!r}", field=name)
        shape, offset = get(entry, "shape", list), entry.get("offset")
        sound = len(shape) == n_dimensions and all(type(n) is int and n >= 0 for n in (*shape, offset))
        if not sound or 0 in shape[1:]:  # rows of any number would take no bytes
            raise ModelFormatError("has an invalid shape or offset", field=name)
        size = prod(shape) * np.dtype(dtype).itemsize
        if offset % _ALIGNMENT or offset + size > len(data):
            raise ModelFormatError("lies outside the file, or is not aligned", field=name)
        if size:
            places.append((offset, offset + size, name))
            values = np.frombuffer(data, dtype, prod(shape), offset).reshape(shape)
        else:
            values = np.zeros(shape, dtype)
        native = values.dtype.newbyteorder("=")
        arrays[name] = values.astype(native, copy=name not in in_place)
    for (_, stop, before), (start, _, name) in pairwise(sorted(places)):
        if start < stop:
            raise ModelFormatError(f"overlaps {before!r}", field=name)
    return arrays


def _check_lengths(arrays: dict[str, np.ndarray], n_features: int, n_outputs: int) -> None:
    """Refuse arrays that a Forest would take for left out, and fill in from values that it has not checked yet."""
    for name, length in lengths(arrays, n_outputs).items():
        if name in arrays and len(arrays[name]) != length:
            raise ModelFormatError(f"holds {len(arrays[name])} values, not {length}", field=name)
    if len(arrays["node_offsets"]) == 0:
        raise ModelFormatError("is empty", field="node_offsets")
    if n_outputs < 1:
        raise ModelFormatError("is not at least 1", field="n_outputs")
    if n_features < 0:
        raise ModelFormatError("is negative", field="n_features")


def _field(fields: dict[str, Any], name: str, kind: type) -> Any:
    value: Any = fields.get(name)
    sound = type(value) is kind
    if not sound or (kind is float and not isfinite(value)) or (kind is int and abs(value) > INT32_MAX):
        raise ModelFormatError(f"is missing, or is not {_KINDS[kind]}", field=name)
    return value


def _schema(fields: dict[str, Any]) -> Schema:
    library, absent = _field(fields, "library", str), _field(fields, "absent", str)
    if library not in RULES:
        raise ModelFormatError("is not a library that gpuqs knows", field="library")
    if absent not in ("missing", "zero"):
        raise ModelFormatError("is neither 'missing' nor 'zero'", field="absent")
    missing = _number(text, "missing") if (text := get(fields, "missing", str, "")) else None
    categories = (None if item is None else _values(item, "categories") for item in get(fields, "categories", list))
    in_order = (_values(item, "categories_in_order") for item in get(fields, "categories_in_order", list))
    listed_features = (f"categories_{which}" for which in ("stated", "lost"))
    stated, lost = (_values(get(fields, name, list), name, int) for name in listed_features)
    return Schema(
        _values(get(fields, "feature_names", list), "feature_names", str),
        tuple(categories),
        np.nan if absent == "missing" else 0.0,
        tuple(in_order),
        library,
        stated,
        lost,
        get(fields, "objects_as_float64", bool, False),
        missing=missing,
    )


def _number(text: str, name: str) -> float:
    """A number other than NaN, as `repr` writes it."""
    with suppress(ValueError):
        number = float(text) if len(text) < 32 else nan
        if repr(number) == text and number == number:
            return number
    raise ModelFormatError("is not a number", field=name)


def _values(items: Any, name: str, kinds: type | tuple[type, ...] = (str, int, float)) -> tuple[Any, ...]:
    if not isinstance(items, list) or not all(isinstance(item, kinds) for item in items):
        raise ModelFormatError("is not an array of strings, numbers and booleans", field=name)
    return tuple(items)
