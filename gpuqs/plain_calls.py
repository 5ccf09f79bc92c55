"""Calls without wishes, the most frequent ones: straight from the caller's array to the kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from gpuqs import cpu_fallback, links
from gpuqs.chunks import rows_at_once
from gpuqs.devices import HOST
from gpuqs.engines import Program
from gpuqs.engines.cpu import CpuProgram
from gpuqs.explanation import Chooser
from gpuqs.forest import Forest
from gpuqs.layout.leaves import fixed_point_step
from gpuqs.outputs import Precision
from gpuqs.programs import Programs
from gpuqs.threads import THREAD_WORK, threads_of_call

#: Most documents that are few, whatever the forest: a list holds the program for each number of them.
MOST: Final = 4096

#: Seconds of scoring up to which a call keeps Python's lock: two threads that hand it over get less done than one that
#: keeps it (an Intel server, calls of 2 to 6 us: 0.5 to 0.8 times as much; of 10 us: 1.2 times).
BRIEF: Final = 5e-6

Method = TypeVar("Method", bound=Callable[..., Any])


def plain_first(method: Method) -> Method:
    """`Model.predict` that answers calls without wishes by ``self._plain``, where there is one; ``method`` does
    all else. It is C's, for Python takes longer to find fifteen arguments' values than a small forest's score takes."""
    tries_plain: Method = cpu_fallback.plain_first(cpu_fallback.in_default_float_mode(method))
    return tries_plain


def most_few(forest: Forest) -> int:
    """As many documents of a forest are few at most: more are for several threads."""
    return min(MOST, (THREAD_WORK - 1) // max(forest.n_trees, 1))


@cpu_fallback.in_default_float_mode
def plain_calls(
    forest: Forest, chooser: Chooser, programs: Programs, *, precision: Precision = "exact", narrow: bool = False
) -> cpu_fallback.PlainCalls | None:
    """What answers a forest's calls without wishes on the host.

    None: nothing does, for arrays are not scored as they are, or values have not the shape of sums. Nothing in it knows
    the model, which could not be freed then. ``narrow``: documents hold the columns `Forest.tested` alone.
    """
    if forest.schema.arrays_hold_values or forest.link == "argmax":
        return None
    of_documents = forest.narrowed if narrow else forest
    few, of_numpy = most_few(forest), links.of_numpy(forest)

    def program_of(n_documents: int) -> Program | None:
        here = cpu_fallback.machine()
        way = chooser.way(n_documents, HOST, here)
        if n_documents <= few and way.n_threads not in (None, 1):
            return None
        return programs.get(way.engine, precision, None, narrow, on=here, params=way.params)

    def threads_of(n_documents: int) -> int:
        planned = chooser.way(n_documents, HOST, cpu_fallback.machine()).n_threads
        return threads_of_call(forest, n_documents, planned=planned)

    return cpu_fallback.PlainCalls(
        cpu_fallback.in_default_float_mode(partial(_bound, program_of)),
        of_documents.n_features,
        few,
        BRIEF,
        rows_at_once(forest, narrow),
        threads_of,
        raw=_link(forest, precision, "identity", forest.average_raw),
        value=_link(forest, precision, "identity" if of_numpy else links.kernel_of(forest), forest.average),
        then=of_numpy,
        n_iterations=forest.n_iterations,
        some_left_out=forest.iterations_left_out > 0,
    )


def _link(forest: Forest, precision: Precision, name: str, averaged: bool) -> cpu_fallback.Link | None:
    """What makes scores of sums; None: sums are these."""
    divisor = links.trees_averaged(forest, forest.n_trees) if averaged else 1.0
    of_all = partial(cpu_fallback.Link, name, forest.sum_dtype, forest.n_outputs, forest.link_scale, divisor)
    if precision == "fast":
        return of_all(step=fixed_point_step(forest), base=forest.base_score)
    last = None if forest.base_first or not forest.base_score.any() else forest.base_score
    if name == "identity" and last is None and not averaged:
        return None
    return of_all(last=last)


def _bound(program_of: Callable[[int], Program | None], n_documents: int) -> tuple[Any, cpu_fallback.Values] | None:
    program = program_of(n_documents)
    return (program.scorer, program.bound) if isinstance(program, CpuProgram) else None
