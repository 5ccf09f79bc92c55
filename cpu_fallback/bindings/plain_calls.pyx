# cython: language_level=3
"""Plain calls, as `gpuqs.plain_calls` defines them: from NumPy's arrays straight to the kernels."""

from functools import wraps

cimport numpy as cnp
from cpython.pystate cimport PyThreadState_Get
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from cpython.tuple cimport PyTuple_GET_ITEM
from cython cimport auto_pickle, boundscheck, critical_section, wraparound

from gpuqs.cpu_fallback.float_mode cimport CDefaultFloatMode
from gpuqs.cpu_fallback.links cimport Finish, Link
from gpuqs.cpu_fallback.lists cimport rows_of
from gpuqs.cpu_fallback.scorer import max_threads
from gpuqs.cpu_fallback.scorer cimport CLeafValues, Documents, Scorer, Values
from libc.stdint cimport int16_t, int32_t, int64_t
from libc.stdlib cimport getenv
from libcpp cimport bool as cbool
from libcpp.vector cimport vector


cnp.import_array()


cdef extern from "driver/clock.hpp" namespace "gpuqs" nogil:
    int64_t ticks_now()
    double ticks_of_second()


cdef extern from "driver/turns.hpp" namespace "gpuqs" nogil:
    cdef cppclass Turns:
        void take(const void* thread, int64_t now, int64_t longest)
        void leave(const void* thread)


cdef extern from *:
    """
    #ifdef Py_GIL_DISABLED
    static constexpr bool takes_turns = false;
    #else
    static constexpr bool takes_turns = true;
    #endif
    """
    const cbool takes_turns


cdef extern from *:  # as Cython defines them: what is unlikely lies apart, so that a usual call goes through few cache lines
    bint likely(bint) noexcept nogil
    bint unlikely(bint) noexcept nogil


cdef Turns turns
cdef double ticks_each_second = ticks_of_second()
cdef int64_t longest_turn = <int64_t>(10e-6 * ticks_each_second)


cdef enum:
    MAX_CAST = 1 << 14  # integers of the largest array cast whole; of larger, wide ones only tested columns are cast
    MAX_LEAVES = 1 << 17  # leaf numbers of an answer, about 100 us to write; more are work that threads may share


include "plain_answers.pxi"
include "plain_arguments.pxi"
include "plain_programs.pxi"


cdef int fill(Scorer scorer, const Documents& documents, const CLeafValues& values, int n_threads, void* sums, Link link,
              const Finish* finish, void* scores, bint leaves) except -1 nogil:
    if leaves:
        scorer.fill_leaves(documents, values, <int32_t*>scores, n_threads)
        return 0
    scorer.fill(documents, values, sums, n_threads)
    if link is not None:
        link.fill(finish[0], sums, documents.n, scores, n_threads)
    return 0


cdef int number_type(char sum_format) noexcept:
    """NumPy's type number of sums."""
    return cnp.NPY_DOUBLE if sum_format == b"d" else cnp.NPY_FLOAT if sum_format == b"f" else cnp.NPY_INT64


cdef bint lie_apart(cnp.ndarray x, cnp.ndarray out) noexcept:
    """Whether no byte from the first to the last of ``x`` [n, columns] lies in ``out``, which is C-contiguous."""
    cdef Py_ssize_t begin = <Py_ssize_t>cnp.PyArray_DATA(x), way
    cdef Py_ssize_t end = begin + cnp.PyArray_ITEMSIZE(x), of_out = <Py_ssize_t>cnp.PyArray_DATA(out)
    for axis in range(2):
        way = (cnp.PyArray_DIM(x, axis) - 1) * cnp.PyArray_STRIDE(x, axis)
        begin, end = begin + min(way, 0), end + max(way, 0)
    return end <= of_out or of_out + cnp.PyArray_NBYTES(out) <= begin


cdef bint fits(cnp.ndarray out, int n_dims, const cnp.npy_intp* shape, int type_of_scores) noexcept:
    """Whether a caller's array may hold scores."""
    return (cnp.PyArray_NDIM(out) == n_dims and cnp.PyArray_DIM(out, 0) == shape[0]
            and (n_dims == 1 or cnp.PyArray_DIM(out, 1) == shape[1]) and cnp.PyArray_TYPE(out) == type_of_scores
            and cnp.PyArray_ISCARRAY(out))


cdef Documents documents_in(cnp.ndarray x, bint given) noexcept:
    """An array's rows, as kernels read them. ``given``: as for `PlainCalls.scores`."""
    cdef Documents documents
    documents.data = cnp.PyArray_DATA(x)
    documents.n = cnp.PyArray_DIM(x, 0)
    documents.row_stride, documents.column_stride = cnp.PyArray_STRIDE(x, 0), cnp.PyArray_STRIDE(x, 1)
    documents.is_double = cnp.PyArray_TYPE(x) == cnp.NPY_DOUBLE
    documents.planes = NULL
    documents.tiny_is_zero = given
    return documents


cdef class TreeRange:
    """A range of trees that is scored by the program for all trees, with exact sums.

    Parameters
    ----------
    whole : PlainCalls
        What scores all trees.
    first, n_trees : int
    raw_divisor, value_divisor : float
        Divisors of sums for raw scores and for values; 1 for none.
    has_base : bool
        Whether the base score that is added last belongs to the range.
    """

    cdef PlainCalls whole
    cdef int first, n_trees
    cdef double raw_divisor, value_divisor
    cdef bint has_base

    def __init__(self, PlainCalls whole not None, int first, int n_trees, *, double raw_divisor=1.0, double value_divisor=1.0,
                 bint has_base=True):
        self.whole, self.first, self.n_trees = whole, first, n_trees
        self.raw_divisor, self.value_divisor, self.has_base = raw_divisor, value_divisor, has_base


cdef class PlainCalls:
    """Answers the plain calls of one model on the host, with one precision; None if a call is not plain after all.

    Parameters
    ----------
    program_of : callable
        For a number of documents, gives the `Scorer` and the `Values` that score them, and the threads that they are
        worth; or None.
    first_of : callable, optional
        The same for the first call, which may be scored differently; None: like the others.
    threads_of : callable
        Gives the number of threads that a call gets if it is worth the given number, more than one.
    n_features, most : int
        Columns of documents, and the most documents of a small batch, whose program is found without a search.
    max_at_once : int
        The most documents that are scored in one go, at least ``most``: with more, signals would wait too long.
    brief : float
        Seconds: if scoring a number of documents took no longer, calls with that number keep the GIL from then on,
        until more than one in twenty take over ten times as long. A thousand calls later, this may begin again: the
        slow calls may have been due to cold caches.
    of_arrays : bool
        Whether arrays passed to `Model.predict` are documents as they are; else they must be converted first.
    single : bool
        Whether integers become float32 documents (`Forest.integer_dtype`).
    raw, value : Link or None
        They turn sums into raw scores and values; None: the sums are these already. Fixed-point sums have both.
    then : callable, optional
        Turns what ``value`` gives into values, both [documents, outputs].
    n_iterations : int
        The iterations of all trees; ``some_left_out``: whether the model had more.
    """

    cdef object program_of, first_of, threads_of, then
    cdef Link raw_link, value_link
    cdef Py_ssize_t n_features, max_at_once, n_iterations
    cdef bint some_left_out, of_arrays, single
    cdef double brief  # in ticks
    cdef Chosen chosen

    def __init__(self, *, program_of, threads_of, Py_ssize_t n_features, Py_ssize_t most, Py_ssize_t max_at_once, double brief,
                 bint of_arrays=True, bint single=False, Link raw=None, Link value=None, then=None, Py_ssize_t n_iterations=0,
                 bint some_left_out=False, first_of=None):
        self.first_of = first_of
        self.n_iterations, self.some_left_out = n_iterations, some_left_out
        self.of_arrays, self.single = of_arrays, single
        self.program_of, self.n_features, self.brief = program_of, n_features, brief * ticks_each_second
        self.max_at_once, self.threads_of = max_at_once, threads_of
        self.raw_link, self.value_link, self.then = raw, value, then
        self.chosen = Chosen(most)

    cdef Chosen chosen_now(self):
        cdef Chosen chosen
        with critical_section(self):  # without the GIL, `chosen` might be freed while it is read
            chosen = self.chosen
        if likely(chosen.hold()):
            return chosen
        chosen = Chosen(len(chosen.programs) - 1, chosen)
        with critical_section(self):
            self.chosen = chosen
        return chosen

    cdef Bound first_program(self, Py_ssize_t n):
        """What scores ``n`` documents if this is the first call, or None."""
        with critical_section(self):
            first_of, self.first_of = self.first_of, None
        return None if first_of is None else bound_by(first_of, n)

    cdef bint takes(self, cnp.ndarray x, Py_ssize_t n) noexcept:
        """Whether an array is n documents of native floats."""
        return (cnp.PyArray_NDIM(x) == 2 and cnp.PyArray_DIM(x, 0) == n and cnp.PyArray_DIM(x, 1) == self.n_features
                and cnp.PyArray_TYPE(x) in (cnp.NPY_FLOAT, cnp.NPY_DOUBLE) and cnp.PyArray_ISBEHAVED_RO(x))

    cdef documents_of(self, X, bint has_out):
        """``X`` if it is an array (few integers become floats), or its rows if it is a list; None if no plain call
        takes it."""
        cdef CDefaultFloatMode mode
        if unlikely(not self.of_arrays):
            return None
        if likely(type(X) is cnp.ndarray):
            if likely(has_out or not (cnp.PyArray_ISINTEGER(X) or cnp.PyArray_ISBOOL(X)) or cnp.PyArray_SIZE(X) > MAX_CAST):
                return X
            mode.hold()  # until this returns
            return cnp.PyArray_Cast(X, cnp.NPY_FLOAT if self.single else cnp.NPY_DOUBLE)
        return rows_of(X, self.n_features, self.single) if len(X) <= self.max_at_once else None

    cdef int16_t kept_lock(self, int16_t so_far, int64_t ticks) noexcept:
        """The next number in `keeps_lock`, after a call that took so long."""
        if so_far < 0:
            return so_far + 1
        if so_far == 0:
            return ticks <= self.brief
        if ticks <= 10 * self.brief:
            return max(so_far - 1, 1)
        return so_far + 20 if so_far < 80 else -1000

    cdef scores(self, cnp.ndarray x, int of, int n_threads=0, cnp.ndarray out=None, bint given=False, TreeRange trees=None):
        """Raw scores, leaf numbers (``of``: RAW, LEAF) or values, in ``out`` if given; None if the call is not plain.

        ``n_threads``: 0 stands for the number that such a call gets. ``given``: linear leaves take numbers next to
        zero for zeros, as in callers' arrays and lists.
        ``trees``: a range of them that is scored, or None for all.
        """
        cdef cnp.ndarray sums, scores
        cdef Documents docs
        cdef Bound program, first
        cdef CLeafValues of_trees
        cdef const CLeafValues* values
        cdef Finish of_range
        cdef const Finish* finish = NULL
        cdef Py_ssize_t n = cnp.PyArray_DIM(x, 0) if cnp.PyArray_NDIM(x) == 2 else 0
        cdef cnp.npy_intp[2] shape
        cdef void* of_sums
        cdef void* of_scores
        cdef Chosen chosen
        cdef Link link
        cdef int64_t started, now
        cdef void* thread
        cdef bint leaves = of & LEAF
        cdef CDefaultFloatMode mode
        mode.hold()  # until this returns
        if unlikely(n == 0 or n > self.max_at_once or not self.takes(x, n)):
            return None
        chosen = self.chosen_now()
        first = None if likely(self.first_of is None) or trees is not None else self.first_program(n)
        program = chosen.known(n) if likely(first is None) else first
        if unlikely(program is None):
            program = chosen.choose(n, self.program_of)
        if unlikely(program is None):
            return None
        values = &program.values.c
        if unlikely(trees is not None):
            of_trees = values[0]
            of_trees.first_tree, of_trees.n_trees = trees.first, trees.n_trees
            values = &of_trees
        if unlikely(leaves) and (n * values.n_trees > MAX_LEAVES or (n_threads == 0 and program.worth > 1)):  # left to the general path
            return None
        if n_threads == 0:
            n_threads = 1 if likely(program.worth == 1) else self.threads_of(program.worth)
        if unlikely(not self.takes(x, n)):  # what ran meanwhile may have changed it in place
            return None
        docs = documents_in(x, given)
        shape[0], shape[1] = n, values.n_trees if leaves else values.n_outputs
        n_dims = 1 if shape[1] == 1 and not leaves else 2
        link = None if leaves else self.raw_link if of & RAW else self.value_link
        if link is not None:
            finish = &link.c
            if unlikely(trees is not None):
                of_range = link.c
                of_range.divisor = trees.raw_divisor if of & RAW else trees.value_divisor
                of_range.last = link.c.last if trees.has_base else NULL
                finish = &of_range
        of_link = link is not None and link.c.step != 0  # fixed-point sums become scores of another type
        type_of_sums = cnp.NPY_INT32 if leaves else number_type(program.values.sum_format)
        type_of_scores = (cnp.NPY_DOUBLE if link.c.is_double else cnp.NPY_FLOAT) if of_link else type_of_sums
        if likely(out is None):
            scores = empty_answer(n_dims, shape, type_of_scores)
        elif fits(out, n_dims, shape, type_of_scores) and (of or self.then is None) and lie_apart(x, out):
            scores = out
        else:
            return None
        sums = scores
        if of_link and cnp.PyArray_ITEMSIZE(scores) != 8:  # else sums may lie where the scores will
            sums = cnp.PyArray_EMPTY(n_dims, shape, type_of_sums, False)
        of_sums, of_scores = cnp.PyArray_DATA(sums), cnp.PyArray_DATA(scores)
        started = ticks_now()
        counts = chosen.is_small(n) and n_threads == 1 and trees is None and first is None
        if counts and chosen.keeps_lock[n] > 0:
            fill(program.scorer, docs, values[0], 1, of_sums, link, finish, of_scores, leaves)
            now = ticks_now()
        else:
            thread = <void*>PyThreadState_Get()
            with nogil:
                if takes_turns:
                    turns.leave(thread)
                fill(program.scorer, docs, values[0], n_threads, of_sums, link, finish, of_scores, leaves)
                now = ticks_now()
                if takes_turns:
                    turns.take(thread, now, longest_turn)
        if counts:
            kept = self.kept_lock(chosen.keeps_lock[n], now - started)
            if kept != chosen.keeps_lock[n]:  # else threads would pass its cache line to and fro
                chosen.keeps_lock[n] = kept
        if of or self.then is None:
            return scores
        return self.then(cnp.PyArray_Reshape(scores, (n, values.n_outputs))).reshape((<object>scores).shape)

    def prepare(self, Py_ssize_t n):
        """Choose what scores ``n`` documents, as the first call with that number does."""
        if n <= self.max_at_once:
            chosen = self.chosen_now()
            if chosen.known(n) is None:
                chosen.choose(n, self.program_of)

    cdef bint are_all(self, number) except -1:
        """Whether the first ``number`` iterations are all trees. As in LightGBM, 0 or less means all there were."""
        return number == self.n_iterations or (not self.some_left_out and (number <= 0 or number > self.n_iterations))

    def raw(self, cnp.ndarray X not None, int n_threads=0):
        """Raw scores [documents], or [documents, outputs] of several; None if ``X``, a NumPy array, makes no plain
        call: it holds other numbers than native floats, more rows than are scored in one go or none, or is not
        documents at all. ``n_threads``: 0 stands for the number that such a call gets."""
        return self.scores(X, RAW, n_threads)

    def values(self, cnp.ndarray X not None, int n_threads=0):
        """The same for values."""
        return self.scores(X, 0, n_threads)


@auto_pickle(False)
cdef class PlainFirst:
    """Base class of models: where `plain_first` finds what answers their plain calls.

    It is compiled, because a field takes one cache line, where looking up an attribute takes thirty.
    """

    cdef object ways  # a `PlainWays`, or None
    cdef PlainCalls of_all_trees  # its `exact`, once a call has asked for it

    @property
    def _plain(self):
        with critical_section(self):
            return self.ways

    @_plain.setter
    def _plain(self, ways):
        with critical_section(self):
            self.ways, self.of_all_trees = ways, None

    cdef PlainCalls exact(self):
        cdef PlainCalls plain
        with critical_section(self):
            plain = self.of_all_trees
        if likely(plain is not None):
            return plain
        ways = self._plain
        plain = None if ways is None else ways.exact
        with critical_section(self):
            if self.ways is ways:
                self.of_all_trees = plain
        return plain


cdef plain_of(PlainFirst model, X, int asked, dict keywords):
    """What answers the call: a `PlainCalls` of a model's `PlainWays`, a `TreeRange`, or None."""
    if likely(not asked & (FAST | PART | N_ITERATIONS)):
        return model.exact()
    ways = model._plain
    if ways is None:
        return None
    plain = ways.fast if asked & FAST else model.exact()
    if plain is None or not asked & (PART | N_ITERATIONS):
        return plain
    if not asked & PART and (<PlainCalls?>plain).are_all(keywords["num_iteration"]):
        return plain
    trees, n = keywords.get("trees"), len(X) if type(X) is not cnp.ndarray else cnp.PyArray_DIM(X, 0) if cnp.PyArray_NDIM(X) else 0
    ends = None if trees is None else (trees.start, trees.stop, trees.step)
    return ways.of_range(n, ("fast" if asked & FAST else "exact", ends, keywords.get("start_iteration", 0),
                             keywords.get("num_iteration"), keywords.get("iteration_range")))


cdef bint is_csr(kind) except -1:
    """Whether a type is that of scipy's own CSR matrices or arrays."""
    return kind.__name__ in ("csr_matrix", "csr_array") and str(kind.__module__).startswith("scipy.sparse.")


def plain_first(method):
    """Wrap the `Model.predict` of a `PlainFirst` so that plain calls are answered here, and all others by ``method``.

    In Cython, as Python takes a microsecond to fill in fifteen arguments' defaults, or ten with cold caches.
    """
    @wraps(method)
    def predict(self, X, output="value", **keywords):
        cdef int asked
        if likely(type(X) is cnp.ndarray) or type(X) is list or type(X) is tuple:
            asked = asked_by_all(output, keywords)
            if likely(not asked & NOT_PLAIN):
                plain, trees = plain_of(<PlainFirst?>self, X, asked, keywords), None
                if unlikely(type(plain) is TreeRange):
                    trees = plain
                    plain = (<TreeRange>trees).whole
                rows = None if plain is None else (<PlainCalls?>plain).documents_of(X, asked & OUT)
                if likely(rows is not None):
                    out = keywords["out"] if asked & OUT else None
                    n_threads = threads_of(asked, keywords)
                    answer = (<PlainCalls>plain).scores(rows, asked & (RAW | LEAF), n_threads, out, True, trees)
                    if likely(answer is not None):
                        return answer
                elif plain is not None and not asked & ~(RAW | N_THREADS) and not (<PlainCalls>plain).of_arrays:
                    answer = self._plain.of_values(X, asked & RAW != 0, threads_of(asked, keywords))
                    if answer is not None:
                        return answer
        elif is_csr(type(X)) and self._plain is not None:
            asked = asked_by_all(output, keywords)
            if not asked & ~(RAW | N_THREADS):
                answer = self._plain.of_csr(X, asked & RAW != 0, threads_of(asked, keywords))
                if answer is not None:
                    return answer
        return method(self, X, output, **keywords)

    return predict
