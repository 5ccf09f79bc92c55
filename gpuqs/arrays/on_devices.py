"""Arrays in a device's memory as documents: scored where they lie, whatever their strides."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuqs.arrays.dense import Documents
from gpuqs.errors import InputError
from gpuqs.forest import Forest


def from_device(X: Any, forest: Forest) -> Documents:
    """Check an array that a device has adopted; integers stay as they are.

    Raises
    ------
    InputError
        Wrong number of dimensions or features, or a type that holds no numbers.
    """
    n_features = forest.given.n_features
    if X.ndim != 2 or X.shape[1] != n_features:
        raise InputError(f"X has shape {tuple(X.shape)}, not [documents, {n_features}]")
    if forest.schema.arrays_hold_values:
        raise InputError("X is on a GPU, but the model's categories are coded on the host; pass a host array")
    if forest.schema.missing is not None:
        raise InputError(
            f"X is on a GPU, where only NaN is missing, not {forest.schema.missing:g}; pass documents in host memory, "
            "or replace that number by NaN and convert the booster: gpuqs.from_model(estimator.get_booster())"
        )
    if X.dtype.kind not in "fiub":
        raise InputError(f"X has dtype {X.dtype}; documents are floating-point or integer numbers")
    if not X.dtype.isnative:
        raise InputError(f"X holds {X.dtype.str} values, whose byte order GPUs cannot read; convert them on the host")
    if X.dtype.kind == "f" and X.dtype.itemsize == 2:
        X = X.astype(np.float32)  # every float16 is a float32
    return Documents(X.shape[0], lambda start, stop: X[start:stop], copied=False)
