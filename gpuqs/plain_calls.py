"""Plain calls, the most frequent ones: straight from the caller's array to the kernels.

A call of `Model.predict` is plain where all of these hold; every other call takes the general path, `Model._answer`:

- ``X`` has at least one row, no more than are scored in one go (`gpuqs.chunks.rows_at_once`), and the model's number of
  columns. It is an aligned NumPy array (no subclass) of native float32 or float64, whose strides are any; or one of a
  few integers or bools, if ``out`` is None; or a list or tuple of lists or tuples of floats (Python's or float64), ints
  up to 2^53, bools and None.
- ``output`` is "value" or "raw", or "leaf" where the answer holds few numbers; ``raw_score``, ``output_margin`` and
  ``pred_leaf`` are True or False.
- ``precision`` is "exact" or "fast", ``engine`` is "auto".
- ``n_threads``, or what another library calls it, is None or a positive int.
- ``out`` is None; or it is a C-contiguous, writable NumPy array of the answer's shape and type that shares no memory
  with ``X``, and the kernels make the answer themselves (NumPy makes some values: `gpuqs.links.of_numpy`).
- ``num_iteration`` is None or an int, ``start_iteration`` an int, ``iteration_range`` None or a tuple of two ints,
  ``trees`` None or a slice of ints and None; they do not contradict each other.
- ``device`` is None or "cpu", and the model is on the host.
- ``base_margin`` is None; ``pred_contrib`` is False.
- The model takes arrays as they are, which CatBoost's with categories do not, and its values have the shape of sums.
- An engine of the CPU's kernels scores it.

Rows that the general path has made of frames and the like go through here, too, where nothing else is asked for. So do
those of a small CSR matrix, which are made here, if neither precision, nor a range of trees, nor ``out`` is given.

The first few calls with a range of trees go by what scores all trees, if the base score allows (`goes_by_whole`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np

from gpuqs import cpu_fallback, links
from gpuqs.arrays.sparse import reader_of_few
from gpuqs.chooser import Chooser
from gpuqs.chunks import rows_at_once
from gpuqs.devices import HOST
from gpuqs.engines import Program
from gpuqs.engines.cpu import CpuProgram
from gpuqs.forest import Forest
from gpuqs.forks import lazy
from gpuqs.kept import keep_some
from gpuqs.keywords import output_and_trees
from gpuqs.layout.leaves import fixed_point_step
from gpuqs.outputs import Precision
from gpuqs.programs import DOCUMENTS_BY_WHOLE, RANGES_COUNTED, Programs
from gpuqs.threads import threads_of_call

#: Most documents of a small batch: a list holds the program for each number of them.
MOST_SMALL: Final = 4096
#: The same of a range of iterations, of which a model may have hundreds.
MOST_SMALL_OF_PART: Final = 128

#: Seconds of scoring up to which a call keeps Python's lock: two threads that hand it over get less done than one that
#: keeps it (an Intel server, calls of 2 to 6 us: 0.5 to 0.8 times as much; of 10 us: 1.2 times).
BRIEF: Final = 5e-6

Method = TypeVar("Method", bound=Callable[..., Any])


def plain_first(method: Method) -> Method:
    """`Model.predict` that answers plain calls by ``self._plain``, its `PlainWays`; ``method`` answers all others.

    It is C's, for Python takes longer to find fifteen arguments' values than a small forest's score takes.
    """
    tries_plain: Method = cpu_fallback.plain_first(cpu_fallback.in_default_float_mode(method))
    return tries_plain


class PlainWays:
    """What answers a model's plain calls on the host, by one plan; each is made when it is first asked for.

    Nothing in it knows the model, which could not be freed then.

    Parameters
    ----------
    chooser : Chooser
    programs : Programs
    """

    def __init__(self, chooser: Chooser, programs: Programs) -> None:
        self._chooser, self._programs = chooser, programs
        self._ranges: dict[Any, tuple[slice | None, cpu_fallback.TreeRange | None]] = {}
        self._of_ranges: dict[Any, tuple[cpu_fallback.PlainCalls | None]] = {}

    @lazy
    def exact(self) -> cpu_fallback.PlainCalls | None:
        """Calls with all trees."""
        return plain_calls(self._chooser, self._programs)

    @lazy
    def fast(self) -> cpu_fallback.PlainCalls | None:
        """The same with fixed-point sums."""
        return plain_calls(self._chooser, self._programs, precision="fast")

    @lazy
    def narrow(self) -> cpu_fallback.PlainCalls | None:
        """`exact` for documents of the columns `Forest.tested` alone."""
        return plain_calls(self._chooser, self._programs, narrow=True)

    @lazy
    def _rows_of_csr(self) -> Callable[[Any], np.ndarray | None] | None:
        return reader_of_few(self._programs.forest, rows_at_once(self._programs.forest, narrow=True))

    def of_csr(self, X: Any, raw: bool, n_threads: int) -> np.ndarray | None:
        """The answer for a CSR matrix of scipy's, with options as of `narrow`; None: the general path has it."""
        read, plain = self._rows_of_csr, self.narrow
        rows = None if read is None or plain is None else read(X)
        if rows is None or plain is None:
            return None
        scores: np.ndarray | None = plain.raw(rows, n_threads) if raw else plain.values(rows, n_threads)
        return scores

    def of_range(
        self,
        precision: Precision,
        trees: slice | None,
        start: int,
        number: int | None,
        iteration_range: tuple[int, int] | None,
    ) -> tuple[cpu_fallback.PlainCalls | None, cpu_fallback.TreeRange | None]:
        """Calls with the trees that these keywords of `Model.predict` ask for, which have these very types.

        With what scores all trees, the range of them is given.

        Raises
        ------
        ValueError
            They contradict each other, or name iterations that are not there.
        """
        key = None if trees is None else (trees.start, trees.stop, trees.step), start, number, iteration_range
        found = self._ranges.get(key)
        if found is None:
            _, chosen = output_and_trees(
                self._programs.forest,
                "value",
                trees,
                start_iteration=start,
                num_iteration=number,
                iteration_range=iteration_range,
            )
            found = chosen, None if chosen is None else _range_of_all(self._programs.forest, chosen)
            keep_some(self._ranges, key, found, RANGES_COUNTED)
        chosen, of_all = found
        if chosen is None:
            return self.fast if precision == "fast" else self.exact, None
        if precision == "exact" and of_all is not None and self._programs.goes_by_whole(chosen, 1):
            return self.exact, of_all
        of_range = precision, chosen.start, chosen.stop
        own = self._of_ranges.get(of_range)
        if own is None:
            own = (plain_calls(self._chooser, self._programs, precision=precision, trees=chosen),)
            keep_some(self._of_ranges, of_range, own, self._programs.parts_kept)
        return own[0], None


def _range_of_all(forest: Forest, trees: slice) -> cpu_fallback.TreeRange | None:
    """What `PlainCalls` with all trees need for a range of them; None: sums of these start from another base score."""
    n_trees, has_base = trees.stop - trees.start, forest.base_of(trees.start) is forest.base_score
    if forest.base_first and not has_base:
        return None
    divisor = links.trees_averaged(forest, n_trees)
    return cpu_fallback.TreeRange(
        trees.start,
        n_trees,
        most=DOCUMENTS_BY_WHOLE,
        raw_divisor=divisor if forest.average_raw else 1.0,
        value_divisor=divisor if forest.average else 1.0,
        has_base=has_base,
    )


@cpu_fallback.in_default_float_mode
def plain_calls(
    chooser: Chooser,
    programs: Programs,
    *,
    precision: Precision = "exact",
    narrow: bool = False,
    trees: slice | None = None,
) -> cpu_fallback.PlainCalls | None:
    """What answers plain calls with one precision, for documents of one width, and a range of trees.

    None: nothing does, for values have not the shape of sums, or linear leaves no fast precision.
    ``narrow``: documents hold the columns `Forest.tested` alone.
    """
    forest = programs.part(trees)
    if forest.link == "argmax" or (forest.has_linear_leaves and precision == "fast"):
        return None
    of_documents = forest.narrowed if narrow else forest
    of_numpy, at_once = links.of_numpy(forest), rows_at_once(forest, narrow)

    def program_of(n_documents: int) -> tuple[Program, int]:
        here = cpu_fallback.machine()
        way = chooser.way(n_documents, HOST, here)
        program = programs.get(way.engine, precision, trees, narrow, machine=here, params=way.params)
        return program, chooser.threads(way, n_documents, here)

    return cpu_fallback.PlainCalls(
        program_of=cpu_fallback.in_default_float_mode(partial(_bound, program_of)),
        threads_of=threads_of_call,
        n_features=of_documents.n_features,
        most=min(MOST_SMALL if trees is None else MOST_SMALL_OF_PART, at_once),
        most_at_once=at_once,
        brief=BRIEF,
        of_arrays=not forest.schema.arrays_hold_values,
        single=forest.integer_dtype == "float32",
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


def _bound(program_of: Callable[[int], tuple[Program, int]], n_documents: int) -> tuple[Any, Any, int] | None:
    program, worth = program_of(n_documents)
    return (program.scorer, program.bound, worth) if isinstance(program, CpuProgram) else None
