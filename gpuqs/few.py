"""Calls with few documents and no wishes, the most frequent ones: straight from the caller's array to the kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np

from gpuqs import cpu_fallback
from gpuqs.engines import Program
from gpuqs.engines.cpu import CpuProgram
from gpuqs.forest import Forest
from gpuqs.links import to_raw, to_values

#: Most documents of such a call: more take so long that what Python does besides does not show.
MOST: Final = 256


class FewDocuments:
    """Scores few documents of the host, with precision "exact" and in one thread.

    Parameters
    ----------
    forest : Forest
    program_of : callable
        Gives the program that scores so many documents, or None where several threads do; it knows no model, which
        could not be freed then.
    most : int
        As many documents are few at most.
    """

    def __init__(self, forest: Forest, program_of: Callable[[int], Program | None], most: int) -> None:
        self._forest, self._program_of = forest, program_of
        bound = partial(_bound, program_of)
        self._sums = cpu_fallback.FewDocuments(bound, forest.n_features, min(most, MOST)).score
        nothing_last = forest.base_first or not forest.base_score.any()
        self._raw_are_sums = nothing_last and not forest.average_raw
        self._values_are_sums = nothing_last and not forest.average and forest.link == "identity"

    @staticmethod
    def takes(forest: Forest) -> bool:
        """Whether arrays are scored as they are, and values have the shape of sums."""
        return not forest.schema.arrays_hold_values and forest.link != "argmax"

    def predict(self, X: np.ndarray, raw: bool) -> np.ndarray | None:
        """Raw scores or values, as `Model.predict` gives them; None where ``X`` is for it to read, or to refuse."""
        sums: np.ndarray | None = self._sums(X)
        if sums is None or (self._raw_are_sums if raw else self._values_are_sums):
            return sums
        program = self._program_of(len(sums))
        if program is None:
            return None
        scores = program.values.finish(sums.reshape(len(sums), -1))
        answer = (to_raw if raw else to_values)(self._forest, scores, self._forest.n_trees)
        return answer.reshape(sums.shape)


def _bound(program_of: Callable[[int], Program | None], n_documents: int) -> tuple[Any, cpu_fallback.Values] | None:
    program = program_of(n_documents)
    return (program.scorer, program.bound) if isinstance(program, CpuProgram) else None
