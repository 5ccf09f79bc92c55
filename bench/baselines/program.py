"""A system prepared for one forest, as checks and timings call it."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from baselines import condop, generated, if_then_else
from baselines.columns import find_columns, thresholds
from baselines.compiler import compiled
from baselines.registry import System
from gpuqs.forest import Forest

HERE = Path(__file__).parent
GENERATORS = {"if_then_else": if_then_else, "condop": condop}
_ARRAYS = ("node_offsets", "leaf_offsets", "column", "left", "right", "threshold", "leaf")


class _Forest(ctypes.Structure):
    """`Forest` of scorers/forest.hpp."""

    _fields_ = [("n_trees", ctypes.c_int64), ("n_columns", ctypes.c_int64), *((n, ctypes.c_void_p) for n in _ARRAYS)]


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


@cache
def library(value: np.dtype, total: np.dtype) -> ctypes.CDLL:
    """The systems for thresholds of one type and sums of another."""
    kinds = generated.C_TYPES
    flags = f"-DBASELINES_VALUE={kinds[value]}", f"-DBASELINES_SUM={kinds[total]}"
    lib = compiled(HERE / "baselines.cpp", sorted(HERE.rglob("*.hpp")), flags)
    lib.baselines_make.restype = ctypes.c_void_p
    return lib


class Program:
    """A system for one forest and one type of documents.

    Parameters
    ----------
    system : System
    forest : Forest
        A forest that the system does not refuse.
    dtype : float32 or float64
        Type of the documents.
    missing : bool
        Whether documents may have missing values; if not, no columns are added for them.
    v, tau : int
        Documents walked at a time; trees merged.
    """

    def __init__(
        self, system: System, forest: Forest, dtype: Any, *, missing: bool = True, v: int = 16, tau: int = 64
    ) -> None:
        reason = system.refuses(forest)
        if reason:
            raise ValueError(f"{system.name} does not hold the forest: {reason}")
        self.sum_dtype = np.dtype(forest.sum_dtype)
        self.dtype = np.dtype(np.float32) if forest.input_dtype == "float32" else np.dtype(dtype)
        self.base = forest.base_score.astype(self.sum_dtype)
        self.base_first = forest.base_first
        self.columns = find_columns(forest, missing)
        self.missing = missing
        threshold = thresholds(forest, self.dtype)
        leaf = np.ascontiguousarray(forest.weighted_leaves()[:, 0])
        self._system = None
        if system.generated:
            text = generated.source(GENERATORS[system.scorer], forest, self.columns.of_node, threshold, leaf)
            self._library = generated.library(text)
            return
        self._library = library(self.dtype, self.sum_dtype)
        of_node, left, right = self.columns.of_node, forest.left, forest.right
        arrays = [forest.node_offsets, forest.leaf_offsets, of_node, left, right, threshold, leaf]
        arrays = [np.ascontiguousarray(array) for array in arrays]  # kept alive until the call returns
        view = _Forest(forest.n_trees, len(self.columns), *(array.ctypes.data for array in arrays))
        error = ctypes.create_string_buffer(200)
        names = system.scorer.encode(), system.order.encode()
        parameters = ctypes.c_long(v), ctypes.c_long(tau)
        self._system = self._library.baselines_make(
            ctypes.byref(view), *names, *parameters, error, ctypes.c_long(len(error))
        )
        if self._system is None:
            raise ValueError(f"{system.name}: {error.value.decode()}")

    def score(self, X: np.ndarray, d: int = 64, s: int = 64) -> np.ndarray:
        """Raw scores of documents, in blocks of d documents and s scorers (trees, or blocks of merged trees)."""
        if d < 1 or s < 1:
            raise ValueError(f"blocks of {d} documents and {s} scorers: both are at least 1")
        if not self.missing and np.isnan(X).any():
            raise ValueError("the documents have missing values, which the program was not made for")
        rows = self.columns.fill(X, self.dtype)
        sums = np.full(len(rows), self.base[0] if self.base_first else 0, self.sum_dtype)
        n, documents, out = ctypes.c_long(len(rows)), _pointer(rows), _pointer(sums)
        if self._system is None:
            self._library.score(documents, n, ctypes.c_long(len(self.columns)), out)
        else:
            system = ctypes.c_void_p(self._system)
            self._library.baselines_score(system, documents, n, ctypes.c_long(d), ctypes.c_long(s), out)
        return sums if self.base_first else sums + self.base

    def __del__(self) -> None:
        if getattr(self, "_system", None) is not None:
            self._library.baselines_free(ctypes.c_void_p(self._system))
