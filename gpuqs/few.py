"""Calls with few documents and no wishes, the most frequent ones: straight from the caller's array to the kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from gpuqs import cpu_fallback, links
from gpuqs.engines import Program
from gpuqs.engines.cpu import CpuProgram
from gpuqs.forest import Forest
from gpuqs.threads import THREAD_WORK

#: Most documents of such a call. What Python does else takes 10 us: half of what a hundred trees take for 257
#: documents, a twentieth of what they take for so many.
MOST: Final = 4096

#: Seconds of scoring up to which a call keeps Python's lock: two threads that hand it over get less done than one that
#: keeps it (an Intel server, calls of 2 to 6 us: 0.5 to 0.8 times as much; of 10 us: 1.2 times).
BRIEF: Final = 5e-6

Method = TypeVar("Method", bound=Callable[..., Any])


def few_first(method: Method) -> Method:
    """`Model.predict` that scores few documents without wishes by ``self._few``, where there is one; ``method`` does
    all else. It is C's, for Python takes longer to find fifteen arguments' values than a small forest's score takes."""
    tries_few: Method = cpu_fallback.few_first(method)
    return tries_few


def most_few(forest: Forest) -> int:
    """As many documents of a forest are few at most: more are for several threads, or for Python."""
    return min(MOST, (THREAD_WORK - 1) // max(forest.n_trees, 1))


def few_documents(forest: Forest, program_of: Callable[[int], Program | None]) -> cpu_fallback.FewDocuments | None:
    """What scores few documents of the host, with precision "exact" and in one thread; None: nothing does, for
    arrays are not scored as they are, or values have not the shape of sums.

    Parameters
    ----------
    forest : Forest
    program_of : callable
        Gives the program that scores so many documents, or None where several threads do; it knows no model, which
        could not be freed then.
    """
    if forest.schema.arrays_hold_values or forest.link == "argmax":
        return None
    of_numpy = links.of_numpy(forest)
    return cpu_fallback.FewDocuments(
        partial(_bound, program_of),
        forest.n_features,
        most_few(forest),
        BRIEF,
        raw=_link(forest, "identity", forest.average_raw),
        value=_link(forest, "identity" if of_numpy else links.kernel_of(forest), forest.average),
        then=of_numpy,
    )


def _link(forest: Forest, name: str, averaged: bool) -> cpu_fallback.Link | None:
    """What makes scores of sums; None: sums are these."""
    last = None if forest.base_first or not forest.base_score.any() else forest.base_score
    if name == "identity" and last is None and not averaged:
        return None
    divisor = links.trees_averaged(forest, forest.n_trees) if averaged else 1.0
    return cpu_fallback.Link(name, forest.sum_dtype, forest.n_outputs, forest.link_scale, divisor, last)


def _bound(program_of: Callable[[int], Program | None], n_documents: int) -> tuple[Any, cpu_fallback.Values] | None:
    program = program_of(n_documents)
    return (program.scorer, program.bound) if isinstance(program, CpuProgram) else None
