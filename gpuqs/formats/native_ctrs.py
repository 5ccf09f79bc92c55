"""A forest's CTRs in gpuqs's own format: a field of the header, and two arrays for all projections together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gpuqs.ctrs import Ctrs, Projection
from gpuqs.errors import ModelFormatError
from gpuqs.formats.fields import get, numbers, whole

#: Names of the arrays: keys (int64 of the same bits), and values row by row (float64).
KEYS, VALUES = "ctrs.keys", "ctrs.values"

_MOST: Final = int(np.iinfo(np.int32).max)


def fields_of(ctrs: Ctrs) -> dict[str, Any]:
    """The header's field for CTRs."""
    projections = [
        {
            "categories": projection.categories,
            "above": projection.above,
            "equals": projection.equals,
            "n_keys": len(projection.keys),
            "n_ctrs": projection.values.shape[1],
        }
        for projection in ctrs.projections
    ]
    return {"n_given": ctrs.n_given, "codes": [*ctrs.codes.items()], "projections": projections}


def arrays_of(ctrs: Ctrs) -> dict[str, npt.NDArray[Any]]:
    """The arrays for CTRs, by name."""
    keys, values = [np.zeros(0, np.uint64)], [np.zeros(0)]
    for projection in ctrs.projections:
        keys.append(projection.keys)
        values.append(projection.values.ravel().astype(np.float64))
    return {KEYS: np.concatenate(keys).view(np.int64), VALUES: np.concatenate(values)}


def read(fields: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> Ctrs:
    """The CTRs of a file.

    Raises
    ------
    ModelFormatError
    """
    if not all(name in arrays for name in (KEYS, VALUES)) or arrays[KEYS].dtype != np.int64:
        raise ModelFormatError("lacks its arrays", field="ctrs")
    keys = arrays[KEYS].view(np.uint64)
    with np.errstate(over="ignore"):
        values = arrays[VALUES].astype(np.float32)
    projections, key, value = [], 0, 0
    for item in get(fields, "projections", list):
        n_keys, n_ctrs = whole(item, "n_keys", 0, _MOST), whole(item, "n_ctrs", 1, _MOST)
        n_values = (n_keys + 1) * n_ctrs
        if key + n_keys > len(keys) or value + n_values > len(values):
            raise ModelFormatError("needs more keys or values than the arrays hold", field="ctrs")
        projections.append(
            Projection(
                tuple(map(_whole, get(item, "categories", list))),
                tuple((_whole(at), _border(border), nan is True) for at, border, nan in _rows(item, "above", 3)),
                tuple((_whole(at), _whole(value)) for at, value in _rows(item, "equals", 2)),
                keys[key : key + n_keys].copy(),
                values[value : value + n_values].reshape(-1, n_ctrs).copy(),
            )
        )
        key, value = key + n_keys, value + n_values
    if key < len(keys) or value < len(values):
        raise ModelFormatError("uses fewer keys or values than the arrays hold", field="ctrs")
    codes = {}
    for column, hashes in _rows(fields, "codes", 2):
        if not isinstance(hashes, list):
            raise ModelFormatError("holds hashes that are not an array", field="codes")
        codes[_whole(column)] = tuple(map(_whole, hashes))
    return Ctrs(whole(fields, "n_given", 0, _MOST), codes, tuple(projections))


def _rows(obj: dict[str, Any], name: str, length: int) -> list[list[Any]]:
    rows: list[list[Any]] = get(obj, name, list)
    if not all(isinstance(row, list) and len(row) == length for row in rows):
        raise ModelFormatError(f"is not an array of arrays of {length}", field=name)
    return rows


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 32:
        raise ModelFormatError("holds something other than unsigned 32-bit integers", field="ctrs")
    return value


def _border(value: Any) -> float:
    (border,) = numbers([value], "above", np.float32)
    return float(border)
