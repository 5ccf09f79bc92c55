"""Plain calls, the most frequent ones: straight from the caller's array to the kernels.

A call of `Model.predict` is plain where all of these hold; every other call takes the general path, `gpuqs.calls`:

- ``X`` has at least one row, no more than are scored in one go (`gpuqs.chunks.rows_at_once`), and the model's number of
  columns. It is an aligned NumPy array (no subclass) of native float32 or float64 with any strides; or a small one of
  integers or bools, if ``out`` is None; or a list or tuple of lists or tuples of floats (Python's or float64), ints up
  to 2^53, bools and None.
- ``output`` is "value" or "raw", or "leaf" where the answer holds few numbers; ``raw_score``, ``output_margin`` and
  ``pred_leaf`` are True or False.
- ``precision`` is "exact" or "fast", ``engine`` is "auto".
- ``n_threads``, or another library's name for it, is None or a positive int.
- ``out`` is None; or it is a C-contiguous, writable NumPy array of the answer's shape and type that shares no memory
  with ``X``, and the kernels make the answer themselves (NumPy makes some values: `gpuqs.links.numpy_link`).
- ``num_iteration`` is None or an int, ``start_iteration`` an int, ``iteration_range`` None or a tuple of two ints,
  ``trees`` None or a slice of ints and None; they do not contradict each other.
- ``device`` is None or "cpu", and the model is on the host.
- ``base_margin`` is None; ``pred_contrib`` is False.
- The model reads arrays as they are (CatBoost models with categories do not, nor does an ``XGBModel(missing=-1)``), and
  its values have the shape of its sums.
- A compiled CPU engine scores it.

The first call of a small model that is not laid out yet walks the trees as they are (`gpuqs.engines.forest_walk`).

Rows that the general path has made from frames and the like are also scored here, if no other option is given. So are
those of a small CSR matrix, and of lists and object arrays that hold categories by value (CatBoost's), which are read
here if neither precision, nor a range of trees, nor ``out`` is given.

The first few calls with a range of trees use the program for all trees, if the base score allows (`goes_by_whole`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, SupportsIndex, TypeAlias, TypeVar

import numpy as np

from gpuqs import cpu_fallback, links
from gpuqs.arrays.dense import reader_of_values
from gpuqs.arrays.sparse import reader_of_few
from gpuqs.chooser import Chooser
from gpuqs.chunks import rows_at_once, rows_copied
from gpuqs.devices import HOST
from gpuqs.engines import Program
from gpuqs.engines.cpu import CpuProgram
from gpuqs.engines.forest_walk import comes_first, forest_walk
from gpuqs.files import is_mapped
from gpuqs.forest import CATEGORICAL, NEGATIVE_FRACTION_IS_ZERO, WHOLE_CODES, ZERO_THRESHOLD, Forest
from gpuqs.forks import lazy
from gpuqs.kept import keep_some
from gpuqs.keywords import output_and_trees
from gpuqs.layout.leaves import fixed_point_step
from gpuqs.outputs import Precision
from gpuqs.programs import RANGES_COUNTED, Programs
from gpuqs.threads import look_up_threads, threads_of_call

#: Most documents of a small batch: a list holds the program for each number of documents.
MAX_SMALL: Final = 4096
#: The same for a range of iterations; a model may have hundreds of ranges.
MAX_SMALL_OF_PART: Final = 128

#: Seconds of scoring up to which a call keeps the GIL: for such calls, two threads that hand it over get no more done
#: than one that keeps it (on an Intel server 0.95 times as much with calls of 2 us, but 1.3 with 2.7 and 1.8 with 8).
BRIEF: Final = 1.5e-6

Method = TypeVar("Method", bound=Callable[..., Any])

#: What a call asks for: precision, the ends of ``trees``, ``start_iteration``, ``num_iteration``, ``iteration_range``.
Asked: TypeAlias = tuple[Precision, tuple[int | None, ...] | None, int, int | None, tuple[int, int] | None]


def asked_as(
    precision: Precision,
    trees: slice | None,
    start_iteration: SupportsIndex,
    num_iteration: SupportsIndex | None,
    iteration_range: Sequence[int] | None,
) -> Asked:
    """Checked arguments of `Model.predict`, in the form that `PlainWays` uses."""
    ends = None if trees is None else (trees.start, trees.stop, trees.step)
    return (
        precision,
        None if ends is None else tuple(None if end is None else int(end) for end in ends),
        int(start_iteration),
        None if num_iteration is None else int(num_iteration),
        None if iteration_range is None else (int(iteration_range[0]), int(iteration_range[1])),
    )


def plain_first(method: Method) -> Method:
    """Make a `Model.predict` that answers plain calls by ``self._plain``, a `PlainWays`, and others by ``method``.

    It is compiled, because Python takes longer to bind fifteen arguments than a small forest takes to score.
    """
    tries_plain: Method = cpu_fallback.plain_first(cpu_fallback.in_default_float_mode(method))
    return tries_plain


class PlainWays:
    """What answers a model's plain calls on the host, by one plan; each part is made on first use.

    It must not refer to the model: such a cycle would keep the model alive.

    Parameters
    ----------
    chooser : Chooser
    programs : Programs
    """

    def __init__(self, chooser: Chooser, programs: Programs) -> None:
        self._chooser, self._programs = chooser, programs
        self._ranges: dict[Any, tuple[slice | None, cpu_fallback.PlainCalls | cpu_fallback.TreeRange | None]] = {}
        self._of_ranges: dict[Any, tuple[cpu_fallback.PlainCalls | None]] = {}

    @lazy
    def exact(self) -> cpu_fallback.PlainCalls | None:
        """For calls with all trees."""
        return plain_calls(self._chooser, self._programs)

    @lazy
    def fast(self) -> cpu_fallback.PlainCalls | None:
        """The same with fixed-point sums."""
        return plain_calls(self._chooser, self._programs, precision="fast")

    @lazy
    def narrow(self) -> cpu_fallback.PlainCalls | None:
        """`exact` for documents with only the columns `Forest.tested`."""
        return plain_calls(self._chooser, self._programs, narrow=True)

    @lazy
    def _rows_of_csr(self) -> Callable[[Any], np.ndarray | None] | None:
        return reader_of_few(self._programs.forest, rows_copied(self._programs.forest, narrow=True))

    @lazy
    def _rows_of_values(self) -> Callable[[Any], np.ndarray | None] | None:
        forest = self._programs.forest
        return reader_of_values(forest.given, rows_copied(forest))

    def of_csr(self, X: Any, raw: bool, n_threads: int) -> np.ndarray | None:
        """The answer for a scipy CSR matrix by `narrow`; None: the general path must answer."""
        read, plain = self._rows_of_csr, self.narrow
        rows = None if read is None or plain is None else read(X)
        return None if rows is None else _answer(plain, rows, raw, n_threads)

    @cpu_fallback.in_default_float_mode
    def of_values(self, X: Any, raw: bool, n_threads: int) -> np.ndarray | None:
        """The same by `exact` for lists and arrays of objects that hold categories by value."""
        read, plain, forest = self._rows_of_values, self.exact, self._programs.forest
        rows = None if read is None or plain is None else read(X)
        if rows is not None and forest.ctrs is not None:
            rows = forest.ctrs.documents(rows, look_up_threads(forest, len(rows), n_threads or None))
        return None if rows is None else _answer(plain, rows, raw, n_threads)

    def of_range(self, n_documents: int, asked: Asked) -> cpu_fallback.PlainCalls | cpu_fallback.TreeRange | None:
        """What answers a call with a range of trees.

        Raises
        ------
        ValueError
            Keywords contradict each other, or name iterations that are not there.
        """
        own = self._of_ranges.get(asked)
        if own is not None:
            return own[0]
        of_all = self._ranges.get(asked)
        if of_all is None:
            if len(self._ranges) >= RANGES_COUNTED:
                self._ranges.clear()
            of_all = self._ranges.setdefault(asked, self._of_all(asked))
        trees, found = of_all
        if trees is None or (found is not None and self._programs.goes_by_whole(trees, n_documents)):
            return found
        return self.for_many_calls(asked)

    def for_many_calls(self, asked: Asked) -> cpu_fallback.PlainCalls | None:
        """What answers calls that will be many: for a range of trees, a program of its own."""
        own = self._of_ranges.get(asked)
        if own is not None:
            return own[0]
        trees, found = self._of_all(asked)
        if trees is None:
            return found
        own = (plain_calls(self._chooser, self._programs, precision=asked[0], trees=trees),)
        return keep_some(self._of_ranges, asked, own, self._programs.parts_kept)[0]

    def prepare(self, asked: Asked, n_documents: int) -> None:
        """Prepare everything that such calls with ``n_documents`` need."""
        plain = self.for_many_calls(asked)
        if plain is not None:
            plain.prepare(min(n_documents, sys.maxsize))

    def _of_all(self, asked: Asked) -> tuple[slice | None, cpu_fallback.PlainCalls | cpu_fallback.TreeRange | None]:
        """The range of trees, and what scores it by the program for all trees, or None; None and that for all trees."""
        precision, ends, start, number, iterations = asked
        trees = None if ends is None else slice(*ends)
        forest, whole = self._programs.forest, self.fast if precision == "fast" else self.exact
        _, chosen = output_and_trees(
            forest, "value", trees, start_iteration=start, num_iteration=number, iteration_range=iterations
        )
        if chosen is None:
            return None, whole
        n_trees, has_base = chosen.stop - chosen.start, forest.base_of(chosen.start) is forest.base_score
        if precision == "fast" or whole is None or (forest.base_first and not has_base):
            return chosen, None
        divisor = links.trees_averaged(forest, n_trees)
        return chosen, cpu_fallback.TreeRange(
            whole,
            chosen.start,
            n_trees,
            raw_divisor=divisor if forest.average_raw else 1.0,
            value_divisor=divisor if forest.average else 1.0,
            has_base=has_base,
        )


def _answer(plain: cpu_fallback.PlainCalls, rows: np.ndarray, raw: bool, n_threads: int) -> np.ndarray | None:
    scores: np.ndarray | None = plain.raw(rows, n_threads) if raw else plain.values(rows, n_threads)
    return scores


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

    None: nothing does, as values do not have the shape of sums, or linear leaves have no fast precision, or take for
    zeros what tests tell from zero.
    ``narrow``: documents hold only the columns `Forest.tested`.
    """
    forest = programs.part(trees)
    if forest.link == "argmax" or (forest.has_linear_leaves and (precision == "fast" or _tells_near_zero(forest))):
        return None
    of_documents = forest.narrowed if narrow else forest
    numpy_link, at_once = links.numpy_link(forest), rows_at_once(forest, narrow)

    def program_of(n_documents: int) -> tuple[Program, int]:
        here = cpu_fallback.machine()
        way = chooser.way(n_documents, HOST, here)
        program = programs.get(way.engine, precision, trees, narrow, machine=here, params=way.params)
        return program, chooser.threads(way, n_documents, here)

    def first_of(n_documents: int) -> tuple[Program, int] | None:
        if chooser.plan is not None or programs.has_whole or not comes_first(forest, n_documents):
            return None
        if is_mapped(forest.leaf_value):  # the file may change after the values were read
            return None
        return forest_walk(of_documents, cpu_fallback.machine()), 1

    return cpu_fallback.PlainCalls(
        first_of=_in_default_mode(first_of) if trees is None and precision == "exact" else None,
        program_of=_in_default_mode(program_of),
        threads_of=threads_of_call,
        n_features=of_documents.n_features,
        most=min(MAX_SMALL if trees is None else MAX_SMALL_OF_PART, at_once),
        max_at_once=at_once,
        brief=BRIEF,
        of_arrays=forest.schema.arrays_as_they_are,
        single=forest.integer_dtype == "float32",
        raw=_link(forest, precision, "identity", forest.average_raw),
        value=_link(forest, precision, "identity" if numpy_link else links.kernel_of(forest), forest.average),
        then=numpy_link,
        n_iterations=forest.n_iterations,
        some_left_out=forest.iterations_left_out > 0,
    )


def _tells_near_zero(forest: Forest) -> bool:
    """Whether some test may tell a number next to zero from zero. LightGBM's do not."""
    near = (forest.threshold >= -ZERO_THRESHOLD) & (forest.threshold < ZERO_THRESHOLD)
    reads_fractions = (forest.routing & (NEGATIVE_FRACTION_IS_ZERO | WHOLE_CODES)) != NEGATIVE_FRACTION_IS_ZERO
    tells = np.where((forest.routing & CATEGORICAL) != 0, reads_fractions, near)
    return forest.input_dtype == "float32" or bool(tells.any())


def _link(forest: Forest, precision: Precision, name: str, averaged: bool) -> cpu_fallback.Link | None:
    """The link from sums to scores; None if the sums are the scores."""
    divisor = links.trees_averaged(forest, forest.n_trees) if averaged else 1.0
    of_all = partial(cpu_fallback.Link, name, forest.sum_dtype, forest.n_outputs, forest.link_scale, divisor)
    if precision == "fast":
        return of_all(step=fixed_point_step(forest), base=forest.base_score)
    last = None if forest.base_first or not forest.base_score.any() else forest.base_score
    if name == "identity" and last is None and not averaged:
        return None
    return of_all(last=last)


def _in_default_mode(
    program_of: Callable[[int], tuple[Program, int] | None],
) -> Callable[[int], tuple[Any, Any, int] | None]:
    return cpu_fallback.in_default_float_mode(partial(_bound, program_of))


def _bound(program_of: Callable[[int], tuple[Program, int] | None], n_documents: int) -> tuple[Any, Any, int] | None:
    program, worth = program_of(n_documents) or (None, 0)
    return (program.scorer, program.bound, worth) if isinstance(program, CpuProgram) else None
