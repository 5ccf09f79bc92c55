# A Scorer for each engine, over its layout: part of scorer.pyx.

cdef class QuickScorer(Scorer):
    """Over a QuickScorerLayout: `vqs` (``together`` is 0), or `qs`'s kernel with ``together`` documents at a time."""

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


cdef class Bitslice(Scorer):
    """`bitslice` over a BitsliceLayout; ``making``: the least number of threads that write its code."""

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
