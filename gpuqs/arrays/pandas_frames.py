"""pandas frames as documents: columns by name, categories coded as in training."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuqs.arrays.categories import pandas_codes
from gpuqs.arrays.columns import columns_of
from gpuqs.arrays.dense import Documents, score_dtype
from gpuqs.arrays.sparse import from_sparse_frame, plain_dtype
from gpuqs.errors import InputError
from gpuqs.forest import Forest


def from_frame(X: Any, forest: Forest) -> Documents:
    take = columns_of([str(c) for c in X.columns], all(isinstance(c, str) for c in X.columns), forest)
    frame = X if take is None else X.iloc[:, take]
    if not any(forest.schema.categories) and (documents := from_sparse_frame(frame, forest)) is not None:
        return documents
    dtypes, coded = [], {}
    for feature, (name, dtype) in enumerate(zip(frame.columns, frame.dtypes, strict=True)):
        plain = plain_dtype(getattr(dtype, "numpy_dtype", dtype))
        numeric = isinstance(plain, np.dtype) and plain.kind in "fiub"
        codes = pandas_codes(frame.iloc[:, feature], numeric, forest, feature)
        if codes is not None:
            coded[feature] = codes
        elif numeric:
            dtypes.append(plain)
        else:
            raise InputError(f"column {name!r} has dtype {dtype}; documents hold numbers only")
    # As LightGBM does: the type that holds every column and float32.
    dtype = score_dtype(np.result_type(np.float32, *dtypes), forest)
    uncoded = [feature for feature in range(frame.shape[1]) if feature not in coded]
    numbers = frame.iloc[:, uncoded] if coded else frame

    def chunk(start: int, stop: int) -> np.ndarray:
        rows: np.ndarray = numbers.iloc[start:stop].to_numpy(dtype=dtype, na_value=np.nan)
        if not coded:
            return rows
        out = np.empty((stop - start, frame.shape[1]), dtype)
        out[:, uncoded] = rows
        for feature, codes in coded.items():
            out[:, feature] = codes(start, stop)
        return out

    return Documents(len(X), chunk)
