"""Text and categorical columns of data frames, coded as the model's training library coded them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from gpuqs.errors import InputError
from gpuqs.forest import Forest
from gpuqs.text_hashes import are_hashes, hash_names

#: Rows [start, stop) of a column as category codes; NaN for what the model has not seen, and for missing.
Codes = Callable[[int, int], np.ndarray]


def pandas_codes(column: Any, numeric: bool, forest: Forest, feature: int) -> Codes | None:
    """How to code a pandas column; None where it holds plain numbers, or what cannot be coded.

    Raises
    ------
    InputError
        The model's categories are texts and the column is numeric.
    """
    known = _known(forest, feature, numeric, column.name)
    if hasattr(column, "cat") and (known or column.cat.categories.dtype.kind in "fiub"):
        to_code = _to_code(column.cat.categories, known)

        def coded(start: int, stop: int) -> np.ndarray:
            rows: np.ndarray = to_code[column.iloc[start:stop].cat.codes.to_numpy()]
            return rows

        return coded
    if known is None:
        return None

    def codes(start: int, stop: int) -> np.ndarray:
        places, values = column.iloc[start:stop].factorize()
        coded: np.ndarray = _to_code(values, known)[places]
        return coded

    return codes


def arrow_codes(column: Any, numeric: Callable[[Any], bool], forest: Forest, feature: int) -> Codes | None:
    """As `pandas_codes`, for a (chunked) Arrow array; ``numeric`` tells types of numbers."""
    name = forest.feature_names[feature] if forest.feature_names else f"number {feature}"
    known = _known(forest, feature, numeric(column.type), name)
    dictionary = hasattr(column.type, "value_type") and hasattr(column.type, "index_type")
    if known is None and not (dictionary and numeric(column.type.value_type)):
        return None

    def codes(start: int, stop: int) -> np.ndarray:
        rows = column.slice(start, stop - start)
        coded = [np.zeros(0)]
        for part in rows.chunks if hasattr(rows, "chunks") else [rows]:
            encoded = part if dictionary else part.dictionary_encode()
            places = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
            coded.append(_to_code(encoded.dictionary.to_pylist(), known)[places])
        return np.concatenate(coded)

    return codes


def _known(forest: Forest, feature: int, numeric: bool, name: Any) -> tuple[Any, ...] | None:
    """The categories by which a column is coded."""
    categories = forest.schema.categories
    known = categories[feature] if categories else None
    if known and numeric and not are_hashes(known) and all(isinstance(value, str) for value in known):
        raise InputError(
            f"column {name!r} holds numbers, but the model's categories are texts, such as {known[:1]}; "
            "pass those, or pass an array of codes"
        )
    return known


def _to_code(values: Iterable[Any], known: tuple[Any, ...] | None) -> np.ndarray:
    """The code of each of a column's own categories; a NaN last, for missing values (place -1)."""
    if known is None:  # the model took them for numbers
        return np.array([*map(float, values), np.nan])
    if are_hashes(known):
        values = hash_names(list(values))
    code = {value: float(number) for number, value in enumerate(known)}
    return np.array([*(code.get(value, np.nan) for value in values), np.nan])
