"""LightGBM: `Booster.predict`, and for one row the C function that it has for that."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from peers.base import Contender, OfThreads, Peer, Source, own_models_only

#: LightGBM's constant for a float32 matrix.
_FLOAT32 = 0
#: LightGBM's constant for raw scores.
_RAW = 1


def one_row(booster: Any, n_features: int) -> Callable[[np.ndarray], np.ndarray]:
    """LightGBM's shortest way to the raw score of one float32 row: prepared once, no checks."""
    from lightgbm.basic import _LIB as library

    config, length, score = ctypes.c_void_p(), ctypes.c_int64(), np.empty(1)
    to = score.ctypes.data_as(ctypes.POINTER(ctypes.c_double))
    status = library.LGBM_BoosterPredictForMatSingleRowFastInit(
        booster._handle, _RAW, 0, -1, _FLOAT32, n_features, b"num_threads=1", ctypes.byref(config)
    )
    assert status == 0, library.LGBM_GetLastError()

    def predict(x: np.ndarray) -> np.ndarray:
        library.LGBM_BoosterPredictForMatSingleRowFast(
            config, ctypes.c_void_p(x.ctypes.data), ctypes.byref(length), to
        )
        return score

    return predict


def build(source: Source) -> OfThreads:
    booster = source.live

    def with_threads(n: int) -> dict[str, Contender]:
        rows = {"LightGBM": Contender(lambda X: booster.predict(X, raw_score=True, num_threads=n))}
        row = {"LightGBM, one row in C": Contender(one_row(booster, source.X.shape[1]), most=1)}
        return rows | (row if n == 1 else {})

    return with_threads


PEER = Peer(
    name="LightGBM",
    package="lightgbm",
    distribution="lightgbm",
    rows="float32 NumPy rows",
    threads="num_threads of each call",
    refuses=own_models_only("LightGBM"),
    build=build,
)
