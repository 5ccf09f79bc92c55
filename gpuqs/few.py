"""Calls with few documents and no wishes, the most frequent ones: straight from the caller's array to the kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from gpuqs import cpu_fallback
from gpuqs.engines import Program
from gpuqs.engines.cpu import CpuProgram
from gpuqs.forest import Forest
from gpuqs.links import to_raw, to_values

#: Most documents of such a call: more take so long that what Python does besides does not show.
MOST: Final = 256

#: Seconds of scoring up to which a call keeps Python's lock: two threads that hand it over get less done than one that
#: keeps it (an Intel server, calls of 2 to 6 us: 0.5 to 0.8 times as much; of 10 us: 1.2 times).
BRIEF: Final = 5e-6

#: Scores of an array, as `Model.predict` gives them; None where the array is for it to read, or to refuse.
Scores: TypeAlias = Callable[[np.ndarray], np.ndarray | None]


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

    Attributes
    ----------
    raw, values : callable
        Give raw scores and values.
    """

    def __init__(self, forest: Forest, program_of: Callable[[int], Program | None], most: int) -> None:
        bound = partial(_bound, program_of)
        sums = cpu_fallback.FewDocuments(bound, forest.n_features, min(most, MOST), BRIEF).score
        nothing_last = forest.base_first or not forest.base_score.any()
        raw_are_sums = nothing_last and not forest.average_raw
        values_are_sums = nothing_last and not forest.average and forest.link == "identity"
        # Where nothing is left to do, no Python runs: from cold caches each function of it takes microseconds.
        self.raw: Scores = sums if raw_are_sums else partial(_finished, forest, program_of, to_raw, sums)
        self.values: Scores = sums if values_are_sums else partial(_finished, forest, program_of, to_values, sums)

    @staticmethod
    def takes(forest: Forest) -> bool:
        """Whether arrays are scored as they are, and values have the shape of sums."""
        return not forest.schema.arrays_hold_values and forest.link != "argmax"


def _finished(
    forest: Forest,
    program_of: Callable[[int], Program | None],
    link: Callable[[Forest, np.ndarray, int], np.ndarray],
    sums_of: Scores,
    X: np.ndarray,
) -> np.ndarray | None:
    sums = sums_of(X)
    program = None if sums is None else program_of(len(sums))
    if sums is None or program is None:
        return None
    scores = program.values.finish(sums.reshape(len(sums), -1))
    return link(forest, scores, forest.n_trees).reshape(sums.shape)


def _bound(program_of: Callable[[int], Program | None], n_documents: int) -> tuple[Any, cpu_fallback.Values] | None:
    program = program_of(n_documents)
    return (program.scorer, program.bound) if isinstance(program, CpuProgram) else None
