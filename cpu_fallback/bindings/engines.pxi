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
        c.block_offsets = int32s(layout.block_offsets, self.keep)
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
        if c.nodes_alone and not self.kernels.walks_nodes_alone():
            raise ValueError(f"{isa} has no walks over nodes alone")
        c.n_blocks = len(layout.block_offsets) - 1
        c.block_offsets = int32s(layout.block_offsets, self.keep)
        c.tree_offsets = int64s(layout.tree_offsets, self.keep)
        c.item32 = <const Item[float]*>structs_of(layout.item32, "Item<float>", self.keep)
        c.item64 = <const Item[double]*>structs_of(layout.item64, "Item<double>", self.keep)
        if tops is None:
            self.engine.reset(new CWalk(self.kernels[0], c, document_block))
            return
        if layout.tops.start.shape != (len(layout.tree_offsets) - 1, kTopExits) or not np.array_equal(
                layout.block_offsets, layout.tops.programs.block_offsets):
            raise ValueError("the tops are not those of the trees")
        self.keep.append(tops)
        cdef const int32_t* start = int32s(layout.tops.start, self.keep)
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
        c.node_offsets = int64s(forest.node_offsets, self.keep)
        c.column = int32s(columns.of_node, self.keep)
        c.threshold = float64s(columns.threshold, self.keep)
        c.left = int32s(forest.left, self.keep)
        c.right = int32s(forest.right, self.keep)
        c.routing = uint8s(forest.routing, self.keep)
        self.engine.reset(new CForestWalk(self.kernels[0], c, document_block))


cdef class RankWalk(Scorer):
    """`rankwalk` over a RankWalkLayout."""

    def __init__(self, layout, int n_features, *, bint single, int document_block, str isa):
        self._choose(isa, n_features)
        cdef RankWalkLayout c
        c.columns = columns_of(layout.ranks.columns, self.keep)
        c.single = single
        c.offsets = int64s(layout.ranks.offsets, self.keep)
        c.threshold32 = float32s(layout.threshold32, self.keep)
        c.threshold64 = float64s(layout.ranks.threshold, self.keep)
        c.block = int64s(layout.blocks.first, self.keep)
        c.sample_block = int64s(layout.blocks.first_samples, self.keep)
        c.blocks32.threshold = float32s(layout.blocks.threshold32, self.keep)
        c.blocks32.sample = float32s(layout.blocks.sample32, self.keep)
        c.blocks64.threshold = float64s(layout.blocks.threshold64, self.keep)
        c.blocks64.sample = float64s(layout.blocks.sample64, self.keep)
        c.n_entries = len(layout.entries)
        c.entries = <const RankEntry*>structs_of(layout.entries, "RankEntry", self.keep)
        c.n_blocks = len(layout.block_offsets) - 1
        c.block_offsets = int32s(layout.block_offsets, self.keep)
        c.tree = int32s(layout.tree, self.keep)
        c.root = uint32s(layout.root, self.keep)
        c.steps = uint8s(layout.steps, self.keep)
        c.group_items = int64s(layout.group_items, self.keep)
        c.items = uint32s(layout.items, self.keep)
        c.node_offsets = int64s(layout.node_offsets, self.keep)
        c.tests = <const RankTest*>structs_of(layout.tests, "RankTest", self.keep)
        c.jumps = jumps_of(layout.jumps, self.keep)
        self.engine.reset(new CRankWalk(self.kernels[0], c, document_block))


cdef class Bitslice(Scorer):
    """`bitslice` over a BitsliceLayout; ``making``: the least number of threads that write its code."""

    def __init__(self, layout, int n_features, *, bint single, int word, int together, int making, str isa):
        self._choose(isa, n_features)
        cdef BitsliceLayout c
        c.ranks = ranks_of(layout.ranks, single, self.keep)
        c.n_blocks = len(layout.block_offsets) - 1
        c.block_offsets = int32s(layout.block_offsets, self.keep)
        c.block_segments = int64s(layout.block_segments, self.keep)
        c.segments = <const Segment*>structs_of(layout.segments, "Segment", self.keep)
        c.low = uint8s(layout.low, self.keep)
        c.block_low = int64s(layout.block_low, self.keep)
        c.n_predicates = layout.n_predicates
        c.level_offsets = int64s(layout.level_offsets, self.keep)
        c.levels = uint16s(layout.levels, self.keep)
        c.tree_leaves = uint16s(layout.tree_leaves, self.keep)
        c.leaf_bytes = 1 if layout.tree_leaves.max(initial=0) <= 256 else 2
        programs = layout.programs
        if hasattr(programs, "nodes"):
            c.node_offsets = int64s(programs.node_offsets, self.keep)
            c.nodes = <const TreeNode*>structs_of(programs.nodes, "TreeNode", self.keep)
        else:
            self._interpret(&c, programs)
        self.engine.reset(new CBitslice(self.kernels[0], c, word, together, making))

    cdef void _interpret(self, BitsliceLayout* c, programs) except *:
        c.trees_merged = programs.trees_merged
        c.n_slots = programs.n_slots
        c.group_runs = int64s(programs.group_runs, self.keep)
        c.runs = <const Run*>structs_of(programs.runs, "Run", self.keep)
        c.group_treelets = int64s(programs.group_treelets, self.keep)
        c.treelets = <const Treelet*>structs_of(programs.treelets, "Treelet", self.keep)
        c.tree_slot = uint16s(programs.tree_slot, self.keep)

    def encode(self, chunks, Py_ssize_t n, int n_threads):
        """Rank `n` documents (chunks of float32 or float64 [rows, features]) once, to score them many times.

        All chunks but the last hold a multiple of 512 rows.
        """
        cdef Held held
        cdef Documents docs
        cdef Coded coded = Coded.__new__(Coded)
        cdef const CBitslice* engine = <const CBitslice*>self.engine.get()
        cdef uint8_t* planes
        cdef int64_t rows = 0
        coded.planes = np.empty(coded_bytes(engine[0], n), np.uint8)
        planes = <uint8_t*><size_t>coded.planes.ctypes.data
        for documents in chunks:
            held = Held(documents, PyBUF_STRIDES | PyBUF_FORMAT)
            docs = self._documents(&held.view)
            if rows % 512 or rows + docs.n > n:
                raise ValueError("chunks do not fit the documents")
            with nogil:
                c_encode(engine[0], docs, n, planes + coded_bytes(engine[0], rows), n_threads)
            rows += docs.n
        if rows != n:
            raise ValueError("chunks do not fit the documents")
        coded.c.n = n
        coded.c.planes = planes
        return coded

    def time_stages(self, Values values, documents, sums):
        """`score` with one thread; returns the seconds of each stage."""
        cdef double[4] seconds
        self._run(values, documents, sums, values.sum_format, values.c.n_outputs, 1, False, False, seconds)
        return dict(zip(("rank coding", "predicates", "programs", "values"), seconds))
