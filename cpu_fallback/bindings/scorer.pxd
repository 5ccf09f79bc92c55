# The C++ side of the CPU engines, as Cython sees it.
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport unique_ptr


cdef extern from "layout/documents.hpp" namespace "gpuqs" nogil:
    cdef struct Documents:
        const void* data
        int64_t n, row_stride, column_stride
        cbool is_double, tiny_is_zero
        const uint8_t* planes


cdef extern from "layout/category_tables.hpp" namespace "gpuqs" nogil:
    cdef struct CategoryTable:
        pass


cdef extern from "layout/columns.hpp" namespace "gpuqs" nogil:
    cdef uint8_t kZeroMissing, kCategorical, kSetRight, kNegativeFractionIsZero, kWholeCodes
    cdef double kZeroThreshold

    cdef struct Columns:
        int32_t n
        int32_t n_numeric
        const int32_t* feature
        const uint8_t* routing
        const int64_t* set_offsets
        const uint32_t* set_words
        int32_t n_tables
        const CategoryTable* tables
        const int32_t* row_of_code
        const uint64_t* rows


cdef extern from "layout/quickscorer.hpp" namespace "gpuqs" nogil:
    cdef struct Tuples:
        const int64_t* offsets
        const int32_t* tree
        const void* mask

    cdef struct TestLists:
        Tuples tests
        Tuples missing
        const float* threshold32
        const double* threshold64

    cdef struct QuickScorerLayout:
        Columns columns
        cbool single
        int32_t n_blocks
        const int32_t* block_offsets
        TestLists straight
        TestLists reversed
        cbool has_reversed, oblivious
        int32_t mask_bits


cdef extern from "layout/walk.hpp" namespace "gpuqs" nogil:
    cdef uint32_t kWalkLeaves, kWideLeaves

    cdef cppclass Item[T]:
        pass

    cdef struct WalkLayout:
        Columns columns
        cbool single, nodes_alone, wide
        int32_t column_bits, n_blocks
        const int32_t* block_offsets
        const int64_t* tree_offsets
        const Item[float]* item32
        const Item[double]* item64


cdef extern from "layout/rankwalk.hpp" namespace "gpuqs" nogil:
    cdef int kEntryThresholds, kRankWalks, kRankLeaves, kPositionShift, kDistanceShift, kSigned, kBlockThresholds
    cdef int kWalking, kWalkingNarrow, kJumping, kMaxRankLanes, kRegistersTogether, kJumpPlaces, kJumpEntries, kLeafOnRight
    cdef uint32_t kEntryMask

    cdef struct RankEntry:
        pass

    cdef struct RankTest:
        pass

    cdef struct JumpWord:
        pass

    cdef struct RankJumps:
        int32_t n_words, words_together
        const JumpWord* words
        const int32_t* trees
        const int32_t* blocks
        const uint8_t* root
        const uint8_t* doublings

    cdef cppclass ThresholdBlocks[Value]:
        const Value* threshold
        const Value* sample

    cdef struct RankWalkLayout:
        Columns columns
        cbool single
        const int64_t* offsets
        const float* threshold32
        const double* threshold64
        const int64_t* block
        const int64_t* sample_block
        ThresholdBlocks[float] blocks32
        ThresholdBlocks[double] blocks64
        int32_t n_entries
        const RankEntry* entries
        int32_t n_blocks
        const int32_t* block_offsets
        const int32_t* tree
        const uint32_t* root
        const uint8_t* steps
        const int64_t* group_items
        const uint32_t* items
        const int64_t* node_offsets
        const RankTest* tests
        RankJumps jumps


cdef extern from "layout/ranks.hpp" namespace "gpuqs" nogil:
    cdef struct RankTables:
        Columns columns
        cbool single
        const uint8_t* n_bits
        const uint8_t* marks_missing
        const int32_t* plane_offsets
        const int64_t* level_offsets
        const float* levels
        const int64_t* offsets
        const double* threshold


cdef extern from "layout/programs.hpp" namespace "gpuqs" nogil:
    cdef int kNarrowestWord, kPlanes

    cdef struct Run:
        pass

    cdef struct Treelet:
        pass

    cdef struct TreeNode:
        pass


cdef extern from "layout/bitslice.hpp" namespace "gpuqs" nogil:
    cdef struct Segment:
        pass

    cdef struct BitsliceLayout:
        RankTables ranks
        int32_t n_blocks
        const int32_t* block_offsets
        const int64_t* block_segments
        const Segment* segments
        const uint8_t* low
        const int64_t* block_low
        int32_t n_predicates
        const int64_t* level_offsets
        const uint16_t* levels
        const uint16_t* tree_leaves
        int32_t leaf_bytes
        int32_t trees_merged, n_slots
        const int64_t* group_runs
        const Run* runs
        const int64_t* group_treelets
        const Treelet* treelets
        const uint16_t* tree_slot
        const int64_t* node_offsets
        const TreeNode* nodes


cdef extern from "layout/structs.hpp" namespace "gpuqs" nogil:
    cdef cppclass Field:
        const char* name
        char kind
        size_t bytes, items, offset
    cdef cppclass Struct:
        const char* name
        size_t bytes
        const Field* begin
        const Field* end
    const Struct* begin_structs()
    const Struct* end_structs()


cdef extern from "layout/leaves.hpp" namespace "gpuqs" nogil:
    cdef enum class ValueKind:
        float64
        float32
        fixed

    cdef struct LinearBounds:
        int64_t first, end

    cdef struct LinearTerms:
        const LinearBounds* bounds
        const int32_t* feature
        const double* coefficient

    cdef struct CLeafValues "gpuqs::LeafValues":
        ValueKind kind
        const void* value
        int32_t width
        const int32_t* row
        const int64_t* offsets
        const int32_t* tree_output
        const int32_t* leaf_id
        const int32_t* before
        const int32_t* after
        int32_t n_outputs
        int32_t first_tree
        int32_t n_trees
        const void* start
        const void* tables
        int32_t table_leaves
        LinearTerms linear


cdef extern from "driver/scorer.hpp" namespace "gpuqs" nogil:
    cdef cppclass ExitLeaves:
        pass

    void c_score "gpuqs::score"(const ExitLeaves&, const Kernels&, const Documents&, const CLeafValues&, void*, int, cbool) except +
    cdef struct Stages:
        const int32_t* ends
        int n_ends
        int64_t stride
    void c_score_stages "gpuqs::score_stages"(const ExitLeaves&, const Kernels&, const Documents&, const CLeafValues&, const Stages&,
                                              const void*, void*, int) except +
    void c_exit_leaves "gpuqs::exit_leaves"(const ExitLeaves&, const Documents&, const CLeafValues&, int32_t*, int) except +


cdef extern from "generic/kernels.hpp" namespace "gpuqs" nogil:
    cdef cppclass Kernels:
        int (*table_part)(int n_leaves, int value_bytes)
        cbool walks_nodes_alone() const


cdef extern from "driver/instruction_sets.hpp" namespace "gpuqs" nogil:
    cdef cppclass CInstructionSet "gpuqs::InstructionSet":
        const char* name() const
        int lanes() const
        int widest_word() const
        cbool has_encoder() const
        cbool has_jumps() const
        cbool gathers() const
        cbool is_here() const
    const CInstructionSet* begin_instruction_sets()
    const CInstructionSet* end_instruction_sets()
    cbool has_quickscorer()
    const Kernels* find_kernels(const char* isa)


cdef extern from "driver/threads.hpp" nogil:
    int gpuqs_most_threads()


cdef extern from "jit/machine_code.hpp" namespace "gpuqs" nogil:
    cbool compiles_programs(const Kernels&)


cdef extern from "driver/engines.hpp" namespace "gpuqs" nogil:
    cdef cppclass CQuickScorer "gpuqs::QuickScorer"(ExitLeaves):
        CQuickScorer(const Kernels&, const QuickScorerLayout&, int together, int block) except +

    cdef cppclass CWalk "gpuqs::Walk"(ExitLeaves):
        CWalk(const Kernels&, const WalkLayout&, int block) except +

    cdef cppclass CRankWalk "gpuqs::RankWalk"(ExitLeaves):
        CRankWalk(const Kernels&, const RankWalkLayout&, int block) except +

    cdef cppclass CBitslice "gpuqs::Bitslice"(ExitLeaves):
        CBitslice(const Kernels&, const BitsliceLayout&, int word, int together, int n_making) except +

    int64_t coded_bytes(const CBitslice&, int64_t n)
    void c_encode "gpuqs::encode"(const CBitslice&, const Documents&, int64_t n, uint8_t* planes, int n_threads) except +


cdef extern from "driver/walk_below.hpp" namespace "gpuqs" nogil:
    const int kTopExits
    cdef cppclass CWalkBelow "gpuqs::WalkBelow"(ExitLeaves):
        CWalkBelow(const Kernels&, const WalkLayout&, int block, const CBitslice& tops, const int32_t* start) except +


cdef extern from "driver/forest_walk.hpp" namespace "gpuqs" nogil:
    cdef struct ForestTrees:
        Columns columns
        cbool single
        int32_t n_trees
        const int64_t* node_offsets
        const int32_t* column
        const double* threshold
        const int32_t* left
        const int32_t* right
        const uint8_t* routing

    cdef cppclass CForestWalk "gpuqs::ForestWalk"(ExitLeaves):
        CForestWalk(const Kernels&, const ForestTrees&, int block) except +


cdef extern from "driver/latency.hpp" namespace "gpuqs" nogil:
    double c_latency "gpuqs::latency"(int64_t bytes, int64_t steps) except +


cdef extern from "driver/time_stages.hpp" namespace "gpuqs" nogil:
    void c_time_stages "gpuqs::time_stages"(const CBitslice&, const Kernels&, const Documents&, const CLeafValues&, void* sums, double* seconds) except +


cdef class Values:
    cdef CLeafValues c
    cdef list keep
    cdef char sum_format  # of the buffer protocol

    cdef void _take(self, values) except *


cdef class Scorer:
    cdef unique_ptr[ExitLeaves] engine
    cdef const Kernels* kernels
    cdef list keep
    cdef int n_features

    cdef void _choose(self, str isa, int n_features) except *
    cdef Documents _documents(self, const Py_buffer* view) except *
    cdef int fill(self, const Documents& documents, const CLeafValues& values, void* sums, int n_threads) except -1 nogil
    cdef int fill_leaves(self, const Documents& documents, const CLeafValues& values, int32_t* leaves,
                         int n_threads) except -1 nogil
    cdef Documents _read(self, documents, list keep) except *
    cdef _run(self, Values values, documents, out, char kind, Py_ssize_t width, int n_threads, bint leaves, bint started,
              double* seconds)


cdef class Held:
    cdef Py_buffer view
