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
    """One that kernels were built for.

    Parameters
    ----------
    name : str
    lanes : int
        Documents that `vqs` scores at once.
    widest_word : int
        Documents that `bitslice` scores at once at most.
    has_encoder : bool
        Whether tree programs can become machine code.
    has_jumps : bool
        Whether `rankwalk` takes few documents by pointer jumping.
    gathers : bool
        Whether `walk` goes over nodes alone, a register full of walks at a time.
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
#: Numbers of the C++ headers that layouts go by, by name.
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
    "kMostRankLanes": kMostRankLanes,
    "kRegistersTogether": kRegistersTogether,
    "kJumpPlaces": kJumpPlaces,
    "kJumpEntries": kJumpEntries,
    "kBlockThresholds": kBlockThresholds,
    "kLeafOnLeft": kLeafOnLeft,
    "kNarrowestWord": kNarrowestWord,
    "kPlanes": kPlanes,
}


cdef extern from "driver/threads.hpp" namespace "gpuqs":
    void* address_of_share_out()

#: For modules whose loops go by this one's threads.
SHARE_OUT = PyCapsule_New(address_of_share_out(), NULL, NULL)


def available_isas():
    """Names of the instruction sets that this processor has, best first."""
    return [isa.name for isa in INSTRUCTION_SETS if isa.is_here]


def forced_isa():
    """The environment variable ``GPUQS_ISA``, or None. Every call asks, so not through `os.environ`."""
    cdef const char* name = getenv("GPUQS_ISA")
    return None if name == NULL else name.decode("utf-8", "backslashreplace")  # an error may then show whatever it is


def compiles(str isa):
    """Whether tree programs become machine code for an instruction set: `GPUQS_MACHINE_CODE=0` forbids it."""
    cdef const char* allowed = getenv("GPUQS_MACHINE_CODE")
    return (allowed == NULL or allowed[0] != b"0") and compiles_programs(find_kernels(isa.encode())[0])


def most_threads():
    """Most threads that work at a call, and at all calls together but for their callers'."""
    return gpuqs_most_threads()


def latency(int64_t n_bytes, int64_t steps):
    """Nanoseconds of a read that waits for the one before it, spread over so much memory."""
    cdef double taken
    with nogil:
        taken = c_latency(n_bytes, steps)
    return taken


def table_part(str isa, int n_leaves, int value_bytes):
    """Bytes of the parts into which an instruction set's tables cut values of so many bytes; 0: it has no tables.

    `n_leaves` is 32 or 64: the most leaves of a tree.
    """
    return find_kernels(isa.encode()).table_part(n_leaves, value_bytes)


cdef const void* data_of(array, dtype, list keep) except? NULL:
    """Address of an array of that dtype in C order, on a whole cache line, kept alive in `keep`.

    Copied where it lies otherwise: what is large is made there, see `gpuqs.cache_lines`.
    """
    array = np.ascontiguousarray(array)
    if array.dtype != dtype:
        raise TypeError(f"expected {np.dtype(dtype)}, got {array.dtype}")
    cdef size_t data = address_of(array), n_bytes, start
    if data % LINE == 0:
        keep.append(array)
        return <const void*>data
    n_bytes = array.nbytes
    room = np.empty(n_bytes + LINE, np.uint8)
    keep.append(room)
    start = (address_of(room) + LINE - 1) // LINE * LINE
    memcpy(<void*>start, <const void*>data, n_bytes)
    return <const void*>start


cdef size_t address_of(array) except? 0:
    """Address of an array in C order."""
    cdef Py_buffer view
    PyObject_GetBuffer(array, &view, PyBUF_SIMPLE)
    cdef size_t address = <size_t>view.buf
    PyBuffer_Release(&view)
    return address


cdef const void* structs_of(array, str name, list keep) except? NULL:
    """`data_of` an array of the C++ struct of that name."""
    if array.dtype != STRUCTS[name]:
        raise TypeError(f"the layout has {name} as {array.dtype}, but the kernels read {STRUCTS[name]}: build gpuqs anew")
    return data_of(array, STRUCTS[name], keep)


cdef Columns columns_of(columns, list keep) except *:
    cdef Columns c
    c.n = len(columns)
    c.n_numeric = columns.n_numeric
    c.feature = <const int32_t*>data_of(columns.feature, np.int32, keep)
    c.routing = <const uint8_t*>data_of(columns.routing, np.uint8, keep)
    c.set_offsets = <const int64_t*>data_of(columns.set_offsets, np.int64, keep)
    c.set_words = <const uint32_t*>data_of(columns.set_words, np.uint32, keep)
    tables = columns.tables
    c.n_tables = len(tables.tables)
    c.tables = <const CategoryTable*>structs_of(tables.tables, "CategoryTable", keep)
    c.row_of_code = <const int32_t*>data_of(tables.row_of_code, np.int32, keep)
    c.rows = <const uint64_t*>data_of(tables.rows, np.uint64, keep)
    return c


cdef Tuples tuples_of(tuples, int mask_bits, list keep) except *:
    cdef Tuples c
    c.offsets = <const int64_t*>data_of(tuples.offsets, np.int64, keep)
    c.tree = <const int32_t*>data_of(tuples.tree, np.int32, keep)
    c.mask = data_of(tuples.mask, f"u{mask_bits // 8}", keep)
    return c


cdef TestLists lists_of(lists, int mask_bits, list keep) except *:
    cdef TestLists c
    c.tests = tuples_of(lists.tests, mask_bits, keep)
    c.missing = tuples_of(lists.missing, mask_bits, keep)
    c.threshold32 = <const float*>data_of(lists.threshold32, np.float32, keep)
    c.threshold64 = <const double*>data_of(lists.threshold64, np.float64, keep)
    return c


cdef class Values:
    """`gpuqs.layout.leaves.LeafValues`, bound."""

    def __init__(self, values, tables=None, int table_leaves=64):
        self.keep = []
        self.sum_format = ord(values.sum_dtype.char)
        value = values.value.dtype.str[1:]
        self.c.kind = {"f8": ValueKind.float64, "f4": ValueKind.float32, "i4": ValueKind.fixed}[value]
        self.c.value = data_of(values.value, value, self.keep)
        self.c.width = values.value.shape[1]
        self.c.row = NULL
        if len(values.row):
            self.c.row = <const int32_t*>data_of(values.row, np.int32, self.keep)
        self.c.offsets = <const int64_t*>data_of(values.offsets, np.int64, self.keep)
        self.c.tree_output = <const int32_t*>data_of(values.tree_output, np.int32, self.keep)
        before, after = values.neighbours
        self.c.before = <const int32_t*>data_of(before, np.int32, self.keep)
        self.c.after = <const int32_t*>data_of(after, np.int32, self.keep)
        self.c.leaf_id = <const int32_t*>data_of(values.leaf_id, np.int32, self.keep)
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
            self.c.linear.feature = <const int32_t*>data_of(values.linear_feature, np.int32, self.keep)
            self.c.linear.coefficient = <const double*>data_of(values.linear_coefficient, np.float64, self.keep)

    cdef void _take(self, values) except *:
        self.c.first_tree, self.c.n_trees = values.trees.start, len(values.trees)
        self.c.start = data_of(values.start, values.sum_dtype, self.keep)

    def of_trees(self, values):
        """The same, bound, but for the range of trees and what sums start from, which are those of ``values``."""
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
        """`score`, of what is where it should be."""
        c_score(self.engine.get()[0], self.kernels[0], documents, values, sums, n_threads, False)
        return 0

    cdef int fill_leaves(self, const Documents& documents, const CLeafValues& values, int32_t* leaves,
                         int n_threads) except -1 nogil:
        """`leaves`, likewise."""
        c_exit_leaves(self.engine.get()[0], documents, values, leaves, n_threads)
        return 0

    def score(self, Values values, documents, sums, int n_threads, bint started=False):
        """Fill `sums`, C order [documents, outputs] of `values.sum_dtype`; started: add to what it holds."""
        self._run(values, documents, sums, values.sum_format, values.c.n_outputs, n_threads, False, started, NULL)

    def leaves(self, Values values, documents, out, int n_threads):
        """Fill `out`, int32 C order [documents, trees], with the source library's leaf numbers."""
        self._run(values, documents, out, b"i", values.c.n_trees, n_threads, True, False, NULL)

    cdef _run(self, Values values, documents, out, char kind, Py_ssize_t width, int n_threads, bint leaves,
              bint started, double* seconds):
        cdef Py_buffer read, write
        cdef Documents docs
        coded = isinstance(documents, Coded)
        if coded:
            docs = (<Coded>documents).c
        else:
            PyObject_GetBuffer(documents, &read, PyBUF_STRIDES | PyBUF_FORMAT)
        try:
            if not coded:
                docs = self._documents(&read)
            PyObject_GetBuffer(out, &write, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | PyBUF_WRITABLE)
            try:
                if write.ndim != 2 or write.shape[0] != docs.n or write.shape[1] != width or write.format[0] != kind:
                    raise ValueError(f"the output must be [{docs.n}, {width}] of format {chr(kind)!r}")
                with nogil:
                    if seconds != NULL:
                        c_time_stages((<const CBitslice*>self.engine.get())[0], self.kernels[0], docs, values.c, write.buf,
                                      started, seconds)
                    elif leaves:
                        c_exit_leaves(self.engine.get()[0], docs, values.c, <int32_t*>write.buf, n_threads)
                    else:
                        c_score(self.engine.get()[0], self.kernels[0], docs, values.c, write.buf, n_threads, started)
            finally:
                PyBuffer_Release(&write)
        finally:
            if not coded:
                PyBuffer_Release(&read)


cdef class Coded:
    """Documents coded as ranks by a `Bitslice`; only scorers over the same rank tables understand them."""

    cdef Documents c
    cdef object planes

    def __len__(self):
        return self.c.n

    @property
    def nbytes(self):
        return self.planes.nbytes


cdef class QuickScorer(Scorer):
    """`vqs`, or an engine that takes so many documents together by `qs`'s kernel, over a QuickScorerLayout."""

    def __init__(self, layout, int n_features, *, bint single, int together, int document_block, str isa):
        self._choose(isa, n_features)
        if not QUICKSCORER:
            raise ValueError("gpuqs was built without QuickScorer")
        cdef QuickScorerLayout c
        c.columns = columns_of(layout.columns, self.keep)
        c.single = single
        c.n_blocks = len(layout.block_offsets) - 1
        c.block_offsets = <const int32_t*>data_of(layout.block_offsets, np.int32, self.keep)
        c.straight = lists_of(layout.straight, layout.mask_bits, self.keep)
        c.has_reversed = layout.reversed is not None
        if c.has_reversed:
            c.reversed = lists_of(layout.reversed, layout.mask_bits, self.keep)
        c.oblivious = layout.oblivious
        c.mask_bits = layout.mask_bits
        self.engine.reset(new CQuickScorer(self.kernels[0], c, together, document_block))


cdef class Walk(Scorer):
    """`walk` over a WalkLayout; ``tops``: the `Bitslice` of the layout's tops, where it has any."""

    def __init__(self, layout, int n_features, *, bint single, int document_block, str isa, Bitslice tops=None):
        self._choose(isa, n_features)
        cdef WalkLayout c
        c.columns = columns_of(layout.columns, self.keep)
        c.single = single
        c.column_bits = layout.column_bits
        c.nodes_alone, c.wide = layout.nodes_alone, layout.wide
        if c.nodes_alone and self.kernels.walk_nodes_float == NULL:
            raise ValueError(f"{isa} has no walks over nodes alone")
        c.n_blocks = len(layout.block_offsets) - 1
        c.block_offsets = <const int32_t*>data_of(layout.block_offsets, np.int32, self.keep)
        c.tree_offsets = <const int64_t*>data_of(layout.tree_offsets, np.int64, self.keep)
        c.item32 = <const Item[float]*>structs_of(layout.item32, "Item<float>", self.keep)
        c.item64 = <const Item[double]*>structs_of(layout.item64, "Item<double>", self.keep)
        if tops is None:
            self.engine.reset(new CWalk(self.kernels[0], c, document_block))
            return
        if layout.tops.start.shape != (len(layout.tree_offsets) - 1, kTopExits) or not np.array_equal(
                layout.block_offsets, layout.tops.programs.block_offsets):
            raise ValueError("the tops are not those of the trees")
        self.keep.append(tops)
        cdef const int32_t* start = <const int32_t*>data_of(layout.tops.start, np.int32, self.keep)
        self.engine.reset(new CWalkBelow(
            self.kernels[0], c, document_block, (<const CBitslice*>tops.engine.get())[0], start))


cdef class ForestWalk(Scorer):
    """Walks over the arrays of a Forest, and its `gpuqs.layout.columns.Columns`."""

    def __init__(self, forest, columns, int n_features, *, bint single, int document_block, str isa):
        self._choose(isa, n_features)
        cdef ForestTrees c
        c.columns = columns_of(columns, self.keep)
        c.single = single
        c.n_trees = forest.n_trees
        c.node_offsets = <const int64_t*>data_of(forest.node_offsets, np.int64, self.keep)
        c.column = <const int32_t*>data_of(columns.of_node, np.int32, self.keep)
        c.threshold = <const double*>data_of(columns.threshold, np.float64, self.keep)
        c.left = <const int32_t*>data_of(forest.left, np.int32, self.keep)
        c.right = <const int32_t*>data_of(forest.right, np.int32, self.keep)
        c.routing = <const uint8_t*>data_of(forest.routing, np.uint8, self.keep)
        self.engine.reset(new CForestWalk(self.kernels[0], c, document_block))


cdef class RankWalk(Scorer):
    """`rankwalk` over a RankWalkLayout."""

    def __init__(self, layout, int n_features, *, bint single, int document_block, str isa):
        self._choose(isa, n_features)
        cdef RankWalkLayout c
        c.columns = columns_of(layout.ranks.columns, self.keep)
        c.single = single
        c.offsets = <const int64_t*>data_of(layout.ranks.offsets, np.int64, self.keep)
        c.threshold32 = <const float*>data_of(layout.threshold32, np.float32, self.keep)
        c.threshold64 = <const double*>data_of(layout.ranks.threshold, np.float64, self.keep)
        c.block = <const int64_t*>data_of(layout.blocks.first, np.int64, self.keep)
        c.sample_block = <const int64_t*>data_of(layout.blocks.first_samples, np.int64, self.keep)
        c.blocks32.threshold = <const float*>data_of(layout.blocks.threshold32, np.float32, self.keep)
        c.blocks32.sample = <const float*>data_of(layout.blocks.sample32, np.float32, self.keep)
        c.blocks64.threshold = <const double*>data_of(layout.blocks.threshold64, np.float64, self.keep)
        c.blocks64.sample = <const double*>data_of(layout.blocks.sample64, np.float64, self.keep)
        c.n_entries = len(layout.entries)
        c.entries = <const RankEntry*>structs_of(layout.entries, "RankEntry", self.keep)
        c.n_blocks = len(layout.block_offsets) - 1
        c.block_offsets = <const int32_t*>data_of(layout.block_offsets, np.int32, self.keep)
        c.tree = <const int32_t*>data_of(layout.tree, np.int32, self.keep)
        c.root = <const uint32_t*>data_of(layout.root, np.uint32, self.keep)
        c.steps = <const uint8_t*>data_of(layout.steps, np.uint8, self.keep)
        c.group_items = <const int64_t*>data_of(layout.group_items, np.int64, self.keep)
        c.items = <const uint32_t*>data_of(layout.items, np.uint32, self.keep)
        c.node_offsets = <const int64_t*>data_of(layout.node_offsets, np.int64, self.keep)
        c.tests = <const RankTest*>structs_of(layout.tests, "RankTest", self.keep)
        c.jumps = jumps_of(layout.jumps, self.keep)
        self.engine.reset(new CRankWalk(self.kernels[0], c, document_block))


cdef RankJumps jumps_of(jumps, list keep) except *:
    cdef RankJumps c
    if jumps is None:
        return c
    c.n_words = len(jumps.trees) - 1
    c.words_together = jumps.words_together
    c.words = <const JumpWord*>structs_of(jumps.words, "JumpWord", keep)
    c.trees = <const int32_t*>data_of(jumps.trees, np.int32, keep)
    c.blocks = <const int32_t*>data_of(jumps.blocks, np.int32, keep)
    c.root = <const uint8_t*>data_of(jumps.root, np.uint8, keep)
    c.doublings = <const uint8_t*>data_of(jumps.doublings, np.uint8, keep)
    return c


cdef RankTables ranks_of(ranks, bint single, list keep) except *:
    cdef RankTables c
    c.columns = columns_of(ranks.columns, keep)
    c.single = single
    c.n_bits = <const uint8_t*>data_of(ranks.n_bits, np.uint8, keep)
    c.marks_missing = <const uint8_t*>data_of(ranks.marks_missing, np.uint8, keep)
    c.plane_offsets = <const int32_t*>data_of(ranks.plane_offsets, np.int32, keep)
    c.level_offsets = <const int64_t*>data_of(ranks.level_offsets, np.int64, keep)
    c.levels = <const float*>data_of(ranks.levels, np.float32, keep)
    c.offsets = <const int64_t*>data_of(ranks.offsets, np.int64, keep)
    c.threshold = <const double*>data_of(ranks.threshold, np.float64, keep)
    return c


cdef class Bitslice(Scorer):
    """`bitslice` over a BitsliceLayout; ``making``: threads that write its code at least."""

    def __init__(self, layout, int n_features, *, bint single, int word, int together, int making, str isa):
        self._choose(isa, n_features)
        cdef BitsliceLayout c
        c.ranks = ranks_of(layout.ranks, single, self.keep)
        c.n_trees = len(layout.tree_leaves)
        c.n_blocks = len(layout.block_offsets) - 1
        c.block_offsets = <const int32_t*>data_of(layout.block_offsets, np.int32, self.keep)
        c.block_segments = <const int64_t*>data_of(layout.block_segments, np.int64, self.keep)
        c.segments = <const Segment*>structs_of(layout.segments, "Segment", self.keep)
        c.low = <const uint8_t*>data_of(layout.low, np.uint8, self.keep)
        c.block_low = <const int64_t*>data_of(layout.block_low, np.int64, self.keep)
        c.n_predicates = layout.n_predicates
        c.level_offsets = <const int64_t*>data_of(layout.level_offsets, np.int64, self.keep)
        c.levels = <const uint16_t*>data_of(layout.levels, np.uint16, self.keep)
        c.tree_leaves = <const uint16_t*>data_of(layout.tree_leaves, np.uint16, self.keep)
        c.leaf_bytes = 1 if layout.tree_leaves.max(initial=0) <= 256 else 2
        programs = layout.programs
        if hasattr(programs, "nodes"):
            c.node_offsets = <const int64_t*>data_of(programs.node_offsets, np.int64, self.keep)
            c.nodes = <const TreeNode*>structs_of(programs.nodes, "TreeNode", self.keep)
        else:
            self._interpret(&c, programs)
        self.engine.reset(new CBitslice(self.kernels[0], c, word, together, making))

    cdef void _interpret(self, BitsliceLayout* c, programs) except *:
        c.trees_merged = programs.trees_merged
        c.n_slots = programs.n_slots
        c.group_runs = <const int64_t*>data_of(programs.group_runs, np.int64, self.keep)
        c.runs = <const Run*>structs_of(programs.runs, "Run", self.keep)
        c.group_treelets = <const int64_t*>data_of(programs.group_treelets, np.int64, self.keep)
        c.treelets = <const Treelet*>structs_of(programs.treelets, "Treelet", self.keep)
        c.tree_slot = <const uint16_t*>data_of(programs.tree_slot, np.uint16, self.keep)

    def encode(self, chunks, Py_ssize_t n, int n_threads):
        """Rank `n` documents (chunks of float32 or float64 [rows, features]) once, to score them many times.

        All chunks but the last hold a multiple of 512 rows.
        """
        cdef Py_buffer read
        cdef Documents docs
        cdef Coded coded = Coded.__new__(Coded)
        cdef const CBitslice* engine = <const CBitslice*>self.engine.get()
        cdef uint8_t* planes
        cdef int64_t rows = 0
        coded.planes = np.empty(coded_bytes(engine[0], n), np.uint8)
        planes = <uint8_t*><size_t>coded.planes.ctypes.data
        for documents in chunks:
            PyObject_GetBuffer(documents, &read, PyBUF_STRIDES | PyBUF_FORMAT)
            try:
                docs = self._documents(&read)
                if rows % 512 or rows + docs.n > n:
                    raise ValueError("chunks do not fit the documents")
                with nogil:
                    c_encode(engine[0], docs, n, planes + coded_bytes(engine[0], rows), n_threads)
                rows += docs.n
            finally:
                PyBuffer_Release(&read)
        if rows != n:
            raise ValueError("chunks do not fit the documents")
        coded.c.n = n
        coded.c.planes = planes
        return coded

    def time_stages(self, Values values, documents, sums, bint started=False):
        """`score` with one thread; returns the seconds of each stage."""
        cdef double[4] seconds
        self._run(values, documents, sums, values.sum_format, values.c.n_outputs, 1, False, started, seconds)
        return dict(zip(("rank coding", "predicates", "programs", "values"), seconds))
