# cython: language_level=3
"""Layouts (NumPy arrays) bound to the C++ engines; scoring releases the GIL."""

from typing import NamedTuple

import numpy as np

from gpuqs import cache_lines

from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_SIMPLE, PyBUF_STRIDES, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
)
from cpython.pycapsule cimport PyCapsule_New
from libc.stdlib cimport getenv
from libc.string cimport memcpy

cdef size_t LINE = cache_lines.LINE


class InstructionSet(NamedTuple):
    """An instruction set that kernels were built for.

    Parameters
    ----------
    name : str
    lanes : int
        Documents that `vqs` scores at once.
    widest_word : int
        The most documents that `bitslice` scores at once.
    has_encoder : bool
        Whether tree programs can become machine code.
    has_jumps : bool
        Whether `rankwalk` scores few documents by pointer jumping.
    gathers : bool
        Whether `walk` goes over nodes only, a register full of walks at a time.
    is_here : bool
        Whether this processor has it.
    """

    name: str
    lanes: int
    widest_word: int
    has_encoder: bool
    has_jumps: bool
    gathers: bool
    is_here: bool


cdef _instruction_sets():
    cdef const CInstructionSet* c = begin_instruction_sets()
    sets = []
    while c != end_instruction_sets():
        told = c.lanes(), c.widest_word(), c.has_encoder(), c.has_jumps(), c.gathers(), c.is_here()
        sets.append(InstructionSet(c.name().decode(), *told))
        c += 1
    return tuple(sets)


cdef _structs():
    cdef const Struct* c = begin_structs()
    cdef const Field* field
    structs = {}
    while c != end_structs():
        names, formats, offsets = [], [], []
        field = c.begin
        while field != c.end:
            names.append(field.name.decode())
            formats.append((f"{chr(field.kind)}{field.bytes}", () if field.items == 1 else field.items))
            offsets.append(field.offset)
            field += 1
        structs[c.name.decode()] = np.dtype(
            {"names": names, "formats": formats, "offsets": offsets, "itemsize": c.bytes}
        )
        c += 1
    return structs


#: All instruction sets that kernels were built for, best first.
INSTRUCTION_SETS = _instruction_sets()
#: Whether the engines that implement QuickScorer were built (CMake's option GPUQS_QUICKSCORER).
QUICKSCORER = has_quickscorer()
#: The C++ structs that layouts fill, by name.
STRUCTS = _structs()
#: Constants of the C++ headers that layouts depend on, by name.
CONSTANTS = {
    "kZeroMissing": kZeroMissing,
    "kCategorical": kCategorical,
    "kSetRight": kSetRight,
    "kNegativeFractionIsZero": kNegativeFractionIsZero,
    "kWholeCodes": kWholeCodes,
    "kZeroThreshold": kZeroThreshold,
    "kWalkLeaves": kWalkLeaves,
    "kWideLeaves": kWideLeaves,
    "kRankWalks": kRankWalks,
    "kRankLeaves": kRankLeaves,
    "kEntryMask": kEntryMask,
    "kEntryThresholds": kEntryThresholds,
    "kPositionShift": kPositionShift,
    "kDistanceShift": kDistanceShift,
    "kSigned": kSigned,
    "kWalking": kWalking,
    "kWalkingNarrow": kWalkingNarrow,
    "kJumping": kJumping,
    "kMaxRankLanes": kMaxRankLanes,
    "kRegistersTogether": kRegistersTogether,
    "kJumpPlaces": kJumpPlaces,
    "kJumpEntries": kJumpEntries,
    "kBlockThresholds": kBlockThresholds,
    "kLeafOnRight": kLeafOnRight,
    "kNarrowestWord": kNarrowestWord,
    "kPlanes": kPlanes,
}


cdef extern from "driver/threads.hpp" namespace "gpuqs":
    void* address_of_share_out()

#: The address of `share_out`, for modules that use this one's threads.
SHARE_OUT = PyCapsule_New(address_of_share_out(), NULL, NULL)


def available_isas():
    """Names of the instruction sets that this processor has, best first."""
    return [isa.name for isa in INSTRUCTION_SETS if isa.is_here]


def forced_isa():
    """The environment variable ``GPUQS_ISA``, or None. Not read through `os.environ`, as every call asks for it."""
    cdef const char* name = getenv("GPUQS_ISA")
    return None if name == NULL else name.decode("utf-8", "backslashreplace")  # so that an error can show any bytes


def compiles(str isa):
    """Whether tree programs become machine code for an instruction set: `GPUQS_MACHINE_CODE=0` forbids it."""
    cdef const char* allowed = getenv("GPUQS_MACHINE_CODE")
    return (allowed == NULL or allowed[0] != b"0") and compiles_programs(find_kernels(isa.encode())[0])


def max_threads():
    """The most threads of one call, and of all calls together apart from the callers' own threads."""
    return gpuqs_most_threads()


def latency(int64_t n_bytes, int64_t steps):
    """Nanoseconds per read when each waits for the one before it, spread over ``n_bytes`` of memory."""
    cdef double taken
    with nogil:
        taken = c_latency(n_bytes, steps)
    return taken


def table_part(str isa, int n_leaves, int value_bytes):
    """Bytes of the parts into which an instruction set's tables cut values of ``value_bytes``; 0: it has no tables.

    `n_leaves` is 32 or 64: the most leaves of a tree.
    """
    return find_kernels(isa.encode()).table_part(n_leaves, value_bytes)


include "layouts.pxi"


cdef class Values:
    """`gpuqs.layout.leaves.LeafValues`, bound to the C struct."""

    def __init__(self, values, tables=None, int table_leaves=64):
        self.keep = []
        self.sum_format = ord(values.sum_dtype.char)
        value = values.value.dtype.str[1:]
        self.c.kind = {"f8": ValueKind.float64, "f4": ValueKind.float32, "i4": ValueKind.fixed}[value]
        self.c.value = data_of(values.value, value, self.keep)
        self.c.width = values.value.shape[1]
        self.c.row = NULL
        if len(values.row):
            self.c.row = int32s(values.row, self.keep)
        self.c.offsets = int64s(values.offsets, self.keep)
        self.c.tree_output = int32s(values.tree_output, self.keep)
        before, after = values.neighbours
        self.c.before = int32s(before, self.keep)
        self.c.after = int32s(after, self.keep)
        self.c.leaf_id = int32s(values.leaf_id, self.keep)
        self.c.n_outputs = values.n_outputs
        self._take(values)
        self.c.tables = NULL
        self.c.table_leaves = 0
        if tables is not None:
            self.c.tables = data_of(tables, f"u{values.value.itemsize // tables.shape[2]}", self.keep)
            self.c.table_leaves = table_leaves
        self.c.linear.bounds = NULL
        if len(values.linear_bounds):
            self.c.linear.bounds = <const LinearBounds*>data_of(values.linear_bounds, np.int64, self.keep)
            self.c.linear.feature = int32s(values.linear_feature, self.keep)
            self.c.linear.coefficient = float64s(values.linear_coefficient, self.keep)

    cdef void _take(self, values) except *:
        self.c.first_tree, self.c.n_trees = values.trees.start, len(values.trees)
        self.c.start = data_of(values.start, values.sum_dtype, self.keep)

    def of_trees(self, values):
        """A copy with the range of trees, and what sums start from, of ``values``."""
        cdef Values same = Values.__new__(Values)
        same.c, same.keep, same.sum_format = self.c, list(self.keep), self.sum_format
        same._take(values)
        return same


cdef class Scorer:
    """An engine with its layout, for one instruction set; immutable, usable from many threads."""

    cdef void _choose(self, str isa, int n_features) except *:
        self.keep = []
        self.n_features = n_features
        self.kernels = find_kernels(isa.encode())
        if self.kernels == NULL:
            raise ValueError(f"no kernels for instruction set {isa!r} here")

    cdef Documents _documents(self, const Py_buffer* view) except *:
        cdef Documents c
        cdef char kind = view.format[0]
        if view.ndim != 2 or view.shape[1] != self.n_features or kind not in (b"f", b"d"):
            raise ValueError(f"documents must be float32 or float64 [n, {self.n_features}]")
        c.data = view.buf
        c.n = view.shape[0]
        c.row_stride, c.column_stride = view.strides[0], view.strides[1]
        c.is_double = kind == b"d"
        c.planes = NULL
        c.tiny_is_zero = False
        return c

    cdef int fill(self, const Documents& documents, const CLeafValues& values, void* sums, int n_threads) except -1 nogil:
        """`score` without checks."""
        c_score(self.engine.get()[0], self.kernels[0], documents, values, sums, n_threads, False)
        return 0

    cdef int fill_leaves(self, const Documents& documents, const CLeafValues& values, int32_t* leaves,
                         int n_threads) except -1 nogil:
        """`leaves` without checks."""
        c_exit_leaves(self.engine.get()[0], documents, values, leaves, n_threads)
        return 0

    def score(self, Values values, documents, sums, int n_threads, bint started=False):
        """Fill `sums`, C order [documents, outputs] of `values.sum_dtype`; started: add to what it holds."""
        self._run(values, documents, sums, values.sum_format, values.c.n_outputs, n_threads, False, started, NULL)

    def leaves(self, Values values, documents, out, int n_threads):
        """Fill `out`, int32 C order [documents, trees], with the source library's leaf numbers."""
        self._run(values, documents, out, b"i", values.c.n_trees, n_threads, True, False, NULL)

    def stages(self, Values values, documents, ends, begin, sums, int n_threads):
        """Fill `sums` [stages, documents, outputs]: those before each of the trees `ends`, ascending, and after all.

        They begin with `begin` [documents, outputs] or, if it is None, as usual. Both are of `values.sum_dtype`; each
        stage, and `begin`, lies in C order.
        """
        cdef list keep = []
        cdef Documents docs = self._read(documents, keep)
        cdef Stages c
        cdef int stage
        cdef Held first, out = Held(sums, PyBUF_STRIDES | PyBUF_FORMAT | PyBUF_WRITABLE)
        cdef const void* start = NULL
        cdef Py_ssize_t width = values.c.n_outputs, n_bytes = out.view.itemsize
        c.ends, c.n_ends = int32s(ends, keep), <int>np.size(ends)
        cdef int64_t least = values.c.first_tree, end = least + values.c.n_trees
        for stage in range(c.n_ends):
            if not least <= c.ends[stage] < end:
                raise ValueError(f"stages must end at trees of the range, each behind the one before, not at {ends}")
            least = c.ends[stage] + 1
        if sums.shape != (c.n_ends + 1, docs.n, width) or out.view.format[0] != values.sum_format:
            raise ValueError(f"the sums must be [{c.n_ends + 1}, {docs.n}, {width}] of format {chr(values.sum_format)!r}")
        if docs.n and (out.view.strides[1] != width * n_bytes or out.view.strides[2] != n_bytes or out.view.strides[0] % n_bytes):
            raise ValueError("the sums of a stage must lie in C order")
        c.stride = out.view.strides[0] // n_bytes
        if begin is not None:
            first = Held(begin, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)
            if begin.shape != (docs.n, width) or first.view.format[0] != values.sum_format:
                raise ValueError(f"sums must begin with [{docs.n}, {width}] of format {chr(values.sum_format)!r}")
            start = first.view.buf
        with nogil:
            c_score_stages(self.engine.get()[0], self.kernels[0], docs, values.c, c, start, out.view.buf, n_threads)

    cdef Documents _read(self, documents, list keep) except *:
        """Documents as they are given, or coded; `keep` keeps their buffer alive."""
        if isinstance(documents, Coded):
            return (<Coded>documents).c
        cdef Held held = Held(documents, PyBUF_STRIDES | PyBUF_FORMAT)
        keep.append(held)
        return self._documents(&held.view)

    cdef _run(self, Values values, documents, out, char kind, Py_ssize_t width, int n_threads, bint leaves,
              bint started, double* seconds):
        cdef list keep = []
        cdef Documents docs = self._read(documents, keep)
        cdef Held held = Held(out, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | PyBUF_WRITABLE)
        cdef Py_buffer* write = &held.view
        if write.ndim != 2 or write.shape[0] != docs.n or write.shape[1] != width or write.format[0] != kind:
            raise ValueError(f"the output must be [{docs.n}, {width}] of format {chr(kind)!r}")
        with nogil:
            if seconds != NULL:
                c_time_stages((<const CBitslice*>self.engine.get())[0], self.kernels[0], docs, values.c, write.buf, seconds)
            elif leaves:
                c_exit_leaves(self.engine.get()[0], docs, values.c, <int32_t*>write.buf, n_threads)
            else:
                c_score(self.engine.get()[0], self.kernels[0], docs, values.c, write.buf, n_threads, started)


cdef class Held:
    """A buffer that is held for as long as this lives."""

    def __cinit__(self, array, int flags):
        PyObject_GetBuffer(array, &self.view, flags)

    def __dealloc__(self):
        PyBuffer_Release(&self.view)  # does nothing if no buffer was acquired


cdef class Coded:
    """Documents coded as ranks by a `Bitslice`; only scorers over the same rank tables understand them."""

    cdef Documents c
    cdef object planes

    def __len__(self):
        return self.c.n

    @property
    def nbytes(self):
        return self.planes.nbytes


include "engines.pxi"
