"""Refuse objects that are no table or array of documents, and say what to pass instead."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from gpuqs.errors import InputError
from gpuqs.forest import Forest

_MADE_FROM = "pass the frame or array that it was made from"
_ONE_COLUMN = "pass a frame of one row for one document, such as frame.iloc[[i]], or X.to_frame() for one feature"
_ONE_ARRAY = "pass pyarrow.table({name: X, ...}), with a column for each feature"
_ROWS = "pass a list of documents, each a list of its features' numbers"

#: What to pass instead of a library's own types, by its package and the type's name ("" for any).
_MENDS = {
    ("pandas", "Series"): _ONE_COLUMN,
    ("polars", "Series"): "pass X.to_frame(), with a column for each feature",
    ("pandas", "Index"): _ONE_COLUMN,
    ("pyarrow", "Array"): _ONE_ARRAY,
    ("pyarrow", "ChunkedArray"): _ONE_ARRAY,
    ("pyarrow", "RecordBatchReader"): "pass X.read_all()",
    ("array", "array"): _ROWS,
    ("polars", "LazyFrame"): "pass X.collect()",
    ("narwhals", "LazyFrame"): "pass X.collect()",
    ("xarray", "Dataset"): "pass X.to_dataframe(), or one of its arrays with a row for each document",
    ("xgboost", ""): _MADE_FROM,
    ("lightgbm", ""): _MADE_FROM,
    ("catboost", "FeaturesData"): "pass a frame or an array with a column for each feature, numeric ones first",
    ("catboost", ""): _MADE_FROM,
    ("gpuqs", "EncodedDocuments"): "they are already encoded; pass them to predict of the model that encoded them",
    ("dask", ""): "pass X.compute(), or X.map_partitions(model.predict) for frames that do not fit in memory",
}


def trained_on(forest: Forest, n_given: int) -> str:
    """How many features the model has, for errors about documents with another number of them."""
    said = f"the model was trained on {forest.n_features} features"
    if forest.library == "ONNX" and n_given > forest.n_features:  # graphs need not say
        said += (
            ", as far as its graph says or its trees test them; if there were more, set "
            "model.graph.input[0].type.tensor_type.shape.dim[1].dim_value"
        )
    return said


def refuse_strangers(X: Any) -> None:
    """Raise for an object that is not documents, even if NumPy could read it as an array.

    Raises
    ------
    InputError
        Names the type and what to pass instead.
    """
    kind = type(X)
    mend = _mend_of(kind.__mro__)
    if X is None:
        mend = "pass a frame or a 2-dimensional array of numbers"
    elif isinstance(X, type):
        mend = f"it is the class {X.__name__} itself; pass an instance of it"
    elif isinstance(X, range):
        mend = _ROWS
    elif isinstance(X, (str, bytes, os.PathLike)):
        mend = "read the file first (as with pandas.read_csv), or score it with the command: gpuqs score MODEL FILE"
    elif isinstance(X, Mapping) and not hasattr(X, "tocsr"):
        mend = "pass pandas.DataFrame([X]) for one document, pandas.DataFrame(X) for columns of documents"
    elif mend is None and isinstance(X, Iterator):
        mend = "pass list(X)"
    elif isinstance(X, (set, frozenset)):
        mend = "pass a list of documents: a set has no order"
    if mend is not None:
        package = _package(kind)
        name = kind.__qualname__ if package == "builtins" else f"{package}.{kind.__qualname__}"
        raise InputError(f"X is {'None' if X is None else f'a {name}'}, not documents; {mend}")


def refuse_other_tables(X: Any) -> None:
    """Raise for a table of a kind that is not read: as an array it would lose the names of its columns.

    Raises
    ------
    InputError
    """
    if not isinstance(X, np.ndarray) and any(_states(X, name) for name in ("columns", "column_names")):
        raise InputError(
            f"X is a {type(X).__name__}, a table of a kind that gpuqs does not read; pass it as a pandas frame or an "
            "Arrow table, whose columns go by name"
        )


def _states(X: Any, name: str) -> bool:
    """Whether the object has an attribute of that name, neither None nor callable."""
    try:
        value = getattr(X, name, None)
    except Exception:  # a property that fails
        return False
    return value is not None and not callable(value)


@lru_cache(maxsize=64)
def _mend_of(mro: tuple[type, ...]) -> str | None:
    """What to pass instead of a library's type, or of a subclass of it; None if nothing is known."""
    bases = [(_package(base).partition("_")[0], base.__name__) for base in mro]
    keys = [key for package, name in bases for key in ((package, name), (package, ""))]
    return next((_MENDS[key] for key in keys if key in _MENDS), None)


def _package(kind: type) -> str:
    """The package of a type, without the underscore of compiled modules such as ``_catboost``."""
    package: str = kind.__module__.partition(".")[0]
    return package if package.startswith("__") else package.removeprefix("_")


def refuse_records(X: list[Any] | tuple[Any, ...]) -> None:
    """Raise for a list of mappings or of masked arrays, whose names and masks would be ignored.

    Raises
    ------
    InputError
    """
    if X and isinstance(X[0], Mapping):
        raise InputError(f"X is a {type(X).__name__} of {type(X[0]).__name__}s; pass pandas.DataFrame(X)")
    if any(issubclass(kind, np.ma.MaskedArray) for kind in set(map(type, X))):
        raise InputError(f"X is a {type(X).__name__} of masked arrays; fill them with NaN where values are missing")
