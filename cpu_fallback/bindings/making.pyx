# cython: language_level=3
"""Loops over all nodes of a forest: to check it, and to lay it out.

Arguments are trusted unless a docstring says otherwise: most functions use indices and offsets without checking them.
"""

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.vector cimport vector

import numpy as np

from gpuqs import cache_lines
from gpuqs.cpu_fallback.processors import loading_threads
from gpuqs.cpu_fallback.scorer import SHARE_OUT


cdef extern from "making/trees.hpp" namespace "gpuqs" nogil:
    cdef cppclass Trees:
        int64_t n_trees
        const int64_t* node_offsets
        const int64_t* leaf_offsets
        const int32_t* left
        const int32_t* right

    cdef cppclass TreeFaults:
        int64_t left, right, node, leaf, cycle

    TreeFaults c_check_trees "gpuqs::check_trees"(const Trees&, int32_t* depth, int n_threads) except +
    void c_store_positions "gpuqs::store_positions"(int64_t n_trees, const int64_t* leaf_offsets, int32_t* position)
    void c_number_leaves "gpuqs::number_leaves"(
        const Trees&, int32_t* first, int32_t* middle, int32_t* end, int32_t* position, int n_threads) except +
    void c_pair_up "gpuqs::pair_up"(const Trees&, int64_t* place, int64_t* distance) except +

cdef extern from "making/category_sets.hpp" namespace "gpuqs" nogil:
    void c_unite_sets "gpuqs::unite_sets"(const uint32_t* words, const int64_t* offsets, int64_t n_sets, uint32_t* held)
    void c_mark_rows "gpuqs::mark_rows"(
        const uint32_t* words, const int64_t* offsets, int64_t n_sets, const int32_t* row_of_code, int64_t row_words, uint64_t* rows)

cdef extern from "making/leaf_order.hpp" namespace "gpuqs" nogil:
    void c_put_in_order "gpuqs::put_in_order"(
        int64_t n_trees, const int64_t* leaf_offsets, const int32_t* position, const void* items, int64_t bytes, void* ordered,
        int n_threads) except +
    void c_put_in_gray_code "gpuqs::put_in_gray_code"(
        int64_t n_trees, const int64_t* leaf_offsets, const uint8_t* oblivious, const int64_t* start, const void* items,
        int64_t bytes, void* ordered, int n_threads) except +

cdef extern from "making/distinct.hpp" namespace "gpuqs" nogil:
    cdef cppclass Superblocks:
        vector[int64_t] ends, distinct, n_distinct

    vector[int64_t] c_distinct "gpuqs::distinct"(const double* keys, const int32_t* groups, int64_t n, int32_t* number) except +
    vector[int64_t] c_distinct "gpuqs::distinct"(const int32_t* keys, const int32_t* groups, int64_t n, int32_t* number) except +
    vector[int64_t] c_distinct "gpuqs::distinct"(const int64_t* keys, const int32_t* groups, int64_t n, int32_t* number) except +
    vector[int64_t] c_distinct_rows "gpuqs::distinct_rows"(
        const void* rows, int64_t bytes, int64_t n, int64_t most, int32_t* number) except +
    vector[int64_t] c_counts "gpuqs::counts"(const int32_t* numbers, int64_t n, int64_t range) except +
    vector[uint8_t] c_flagged "gpuqs::flagged"(
        const int32_t* numbers, const uint8_t* flags, uint8_t bit, int64_t n, int64_t range) except +
    cbool c_are_ranks "gpuqs::are_ranks"(const double* keys, const int32_t* groups, int64_t n, int64_t n_groups, const double* distinct,
                                         const int64_t* offsets, int64_t n_distinct, const int32_t* rank, int n_threads) except +
    Superblocks c_number_predicates "gpuqs::number_predicates"(
        const int32_t* predicate, int64_t n_predicates, const int64_t* first_node, int64_t n_blocks, int64_t max_predicates,
        int64_t max_nodes, int32_t* number) except +

cdef extern from "making/node_programs.hpp" namespace "gpuqs" nogil:
    void c_node_programs "gpuqs::node_programs"(
        const Trees&, const int32_t* middle, const int32_t* predicate, void* nodes, int n_threads) except +

cdef extern from "making/rank_items.hpp" namespace "gpuqs" nogil:
    cdef cppclass RankEntry:
        int32_t column, first, nan_left

    cdef cppclass RankedNodes:
        const int32_t* column
        const int32_t* rank
        const uint8_t* routing
        uint8_t nan_left
        int64_t n_columns
        const int64_t* offsets

    cdef struct RankTest:
        pass

cdef extern from "making/rank_jumps.hpp" namespace "gpuqs" nogil:
    cdef struct JumpWord:
        pass

    cdef struct JumpArrays:
        int64_t n_words
        int words_together
        JumpWord* words
        const int32_t* trees
        const uint8_t* root

    vector[int32_t] c_place_trees "gpuqs::place_trees"(const Trees&, int64_t tree_block, int words_together, uint8_t* root) except +
    bint can_name(size_t n_entries)

cdef extern from "making/rank_items.hpp" namespace "gpuqs" nogil:
    vector[RankEntry] c_rank_items "gpuqs::rank_items"(
        const Trees&, const RankedNodes&, const int64_t* start, uint32_t* items, RankTest* tests, int32_t* label,
        const JumpArrays* jumps, int n_threads) except +

cdef extern from "driver/threads.hpp" namespace "gpuqs":
    void share_out_by(void* other)

share_out_by(PyCapsule_GetPointer(SHARE_OUT, NULL))

ctypedef fused key_t:
    double
    int64_t
    int32_t


cdef inline const int64_t* address(const int64_t[::1] array) noexcept:
    return &array[0] if len(array) else NULL


cdef inline const int32_t* address32(const int32_t[::1] array) noexcept:
    return &array[0] if len(array) else NULL


cdef inline int64_t* writable(int64_t[::1] array) noexcept:
    return &array[0] if len(array) else NULL


cdef inline int32_t* writable32(int32_t[::1] array) noexcept:
    return &array[0] if len(array) else NULL


cdef Trees trees_of(forest) except *:
    cdef Trees trees
    trees.n_trees = len(forest.node_offsets) - 1
    trees.node_offsets, trees.leaf_offsets = address(forest.node_offsets), address(forest.leaf_offsets)
    trees.left, trees.right = address32(forest.left), address32(forest.right)
    return trees


cpdef int threads_for(int64_t n_leaves) except -1:
    """Threads for trees with ``n_leaves`` leaves in all: with few leaves, one is as fast as several."""
    return loading_threads() if n_leaves > 1 << 18 else 1


cdef array_of(const vector[int64_t]& values):
    cdef int64_t[::1] to
    array = np.empty(values.size(), np.int64)
    to = array
    for i in range(<Py_ssize_t>values.size()):
        to[i] = values[i]
    return array


def check_trees(forest):
    """What is wrong with a Forest's children, and each node's depth (int32 [N], for sound trees).

    The offsets must have been checked, and that trees have one leaf more than nodes. The first node or leaf with each
    fault is given, in the order in which faults are looked for: "left" and "right" (a child that is outside its
    tree), "node" and "leaf" (has no parent or several), "cycle" (cannot be reached from the root).
    """
    cdef Trees trees = trees_of(forest)
    cdef TreeFaults faults
    depth = np.empty(len(forest.left), np.int32)
    cdef int32_t* to = writable32(depth)
    cdef int n_threads = threads_for(trees.leaf_offsets[trees.n_trees])
    with nogil:
        faults = c_check_trees(trees, to, n_threads)
    found = {"left": faults.left, "right": faults.right, "node": faults.node, "leaf": faults.leaf, "cycle": faults.cycle}
    return {fault: at for fault, at in found.items() if at >= 0}, depth


def stored_positions(const int64_t[::1] leaf_offsets):
    """The position of each leaf in its tree, int32 [L], as leaves are stored; the offsets must have been checked."""
    cdef int64_t n_trees = len(leaf_offsets) - 1
    position = np.empty(leaf_offsets[n_trees], np.int32)
    c_store_positions(n_trees, &leaf_offsets[0], writable32(position))
    return position


def number_leaves(forest):
    """The arrays of `gpuqs.layout.leaves.LeafRanges`."""
    cdef Trees trees = trees_of(forest)
    arrays = [np.empty(len(forest.left), np.int32) for _ in range(3)] + [np.empty(len(forest.leaf_value), np.int32)]
    cdef int32_t* first = writable32(arrays[0])
    cdef int32_t* middle = writable32(arrays[1])
    cdef int32_t* end = writable32(arrays[2])
    cdef int32_t* position = writable32(arrays[3])
    cdef int n_threads = threads_for(trees.leaf_offsets[trees.n_trees])
    with nogil:
        c_number_leaves(trees, first, middle, end, position, n_threads)
    return arrays


def put_in_order(const int64_t[::1] leaf_offsets, const int32_t[::1] position, items, ordered):
    """Put each leaf's item, or row of items, at its position in its tree; both arrays are in C order, of the same
    shape and dtype."""
    cdef const uint8_t[::1] given = items.reshape(-1).view(np.uint8)
    cdef uint8_t[::1] to = ordered.reshape(-1).view(np.uint8)
    cdef int64_t n_trees = len(leaf_offsets) - 1, n = len(position)
    if len(to) != len(given) or leaf_offsets[n_trees] != n or (n and len(given) % n):
        raise ValueError("not an item for each leaf")
    cdef int n_threads = threads_for(n)
    if len(given):
        with nogil:
            c_put_in_order(n_trees, &leaf_offsets[0], &position[0], &given[0], len(given) // n, &to[0], n_threads)


def put_in_gray_code(const int64_t[::1] leaf_offsets, oblivious, const int64_t[::1] start, items, ordered):
    """Put each leaf's item, or row of items, where `gpuqs.layout.bitslice.gray_values` says; tree t's places begin at ``start[t]``.

    Both arrays are in C order, of the same dtype and row length. ``start`` ends with the length of ``ordered``.
    """
    cdef const uint8_t[::1] given = items.reshape(-1).view(np.uint8), in_binary = oblivious.view(np.uint8)
    cdef uint8_t[::1] to = ordered.reshape(-1).view(np.uint8)
    cdef int64_t n_trees = len(leaf_offsets) - 1, n = leaf_offsets[n_trees]
    cdef int n_threads = threads_for(n)
    if len(given):
        with nogil:
            c_put_in_gray_code(n_trees, &leaf_offsets[0], &in_binary[0], &start[0], &given[0], len(given) // n, &to[0], n_threads)


def unite_sets(const uint32_t[::1] words, const int64_t[::1] offsets):
    """The union of category sets, which are ``words[offsets[s]:offsets[s + 1]]``: uint32 [words of the longest]."""
    cdef int64_t n_sets = len(offsets) - 1
    held = np.zeros(int(np.diff(offsets).max(initial=0)), np.uint32)
    cdef uint32_t[::1] to = held
    if len(to):
        with nogil:
            c_unite_sets(&words[0], &offsets[0], n_sets, &to[0])
    return held


def mark_rows(const uint32_t[::1] words, const int64_t[::1] offsets, const int32_t[::1] row_of_code, uint64_t[:, ::1] rows):
    """Set bit s of the row of each code that set s holds; ``row_of_code``: the row for each code of the longest
    set."""
    cdef int64_t n_sets = len(offsets) - 1, row_words = rows.shape[1]
    if len(row_of_code):
        with nogil:
            c_mark_rows(&words[0], &offsets[0], n_sets, &row_of_code[0], row_words, &rows[0, 0])


def pair_up(forest):
    """The arrays ``place`` and ``distance`` of `gpuqs.layout.traversal.pair_up`."""
    cdef Trees trees = trees_of(forest)
    place, distance = np.empty(len(forest.left) + len(forest.leaf_value), np.int64), np.empty(len(forest.left), np.int64)
    cdef int64_t* place_to = writable(place)
    cdef int64_t* distance_to = writable(distance)
    with nogil:
        c_pair_up(trees, place_to, distance_to)
    return place, distance


def distinct(const key_t[::1] keys, const int32_t[::1] groups=None):
    """Where each distinct key is first met, with keys ascending (int64), and which distinct key each key is (int32).

    These are the indices and the inverse of `numpy.unique`, faster if keys repeat. No key may be NaN. If ``groups``
    are given, keys of different groups are distinct, and they ascend by group first.
    """
    cdef vector[int64_t] first
    cdef int64_t n = len(keys)
    if n > INT32_MAX or (groups is not None and len(groups) != n):
        raise ValueError("too many keys, or not a group for each")
    cdef const int32_t* group = NULL
    if groups is not None:
        group = address32(groups)
    cdef const key_t* of = &keys[0] if n else NULL
    number = np.empty(n, np.int32)
    cdef int32_t* to = writable32(number)
    with nogil:
        first = c_distinct(of, group, n, to)
    return array_of(first), number


def distinct_rows(rows, int64_t most):
    """Where each distinct row, by its bytes, is first met (int64, in order), and which distinct row each row is
    (int32).

    Both are empty if more than ``most`` are distinct, or if different rows have the same hash. ``rows`` is in C order.
    """
    cdef vector[int64_t] first
    cdef const uint8_t[::1] of = rows.reshape(-1).view(np.uint8)
    cdef int64_t n = len(rows), bytes = rows.strides[0]
    if n > INT32_MAX or n * bytes != len(of):
        raise ValueError("too many rows, or not in C order")
    number = np.empty(n, np.int32)
    cdef int32_t* to = writable32(number)
    if n:
        with nogil:
            first = c_distinct_rows(&of[0], bytes, n, most, to)
    return array_of(first), number[:n if first.size() else 0]


def counts(const int32_t[::1] numbers, int64_t n):
    """How often each number in [0, ``n``) occurs among the numbers, int64 [n]: `numpy.bincount` without a copy."""
    cdef vector[int64_t] found
    cdef const int32_t* of = address32(numbers)
    cdef int64_t n_numbers = len(numbers)
    with nogil:
        found = c_counts(of, n_numbers, n)
    return array_of(found)


def flagged(const int32_t[::1] numbers, const uint8_t[::1] flags, uint8_t bit, int64_t n):
    """Whether each number in [0, ``n``) occurs at some place where ``flags`` have the bit, bool [n]."""
    cdef vector[uint8_t] found
    cdef const int32_t* of = address32(numbers)
    cdef int64_t n_numbers = len(numbers)
    if len(flags) != n_numbers:
        raise ValueError("not a flag for each")
    if n_numbers:
        with nogil:
            found = c_flagged(of, &flags[0], bit, n_numbers, n)
    met = np.zeros(n, bool)
    for i in range(<Py_ssize_t>found.size()):
        met[i] = found[i] != 0
    return met


def number_predicates(const int32_t[::1] predicate, int64_t n_predicates, const int64_t[::1] first_node, int64_t max_predicates,
                      int64_t max_nodes):
    """Superblocks' ends, their distinct predicates, how many each has, and each node's predicate in its superblock.

    ``predicate`` is in [0, ``n_predicates``); ``first_node`` is the first node of each tree block, and rises from 0
    to the number of nodes.
    """
    cdef Superblocks found
    cdef const int32_t* of = address32(predicate)
    cdef const int64_t* firsts = address(first_node)
    cdef int64_t n_blocks = len(first_node) - 1
    number = np.empty(len(predicate), np.int32)
    cdef int32_t* to = writable32(number)
    with nogil:
        found = c_number_predicates(of, n_predicates, firsts, n_blocks, max_predicates, max_nodes, to)
    return array_of(found.ends), array_of(found.distinct), array_of(found.n_distinct), number


def node_programs(forest, const int32_t[::1] middle, const int32_t[::1] predicate, nodes):
    """Fill ``nodes`` (an entry for each leaf) as `gpuqs.layout.programs.NodePrograms` says."""
    cdef Trees trees = trees_of(forest)
    cdef uint8_t[::1] entries = nodes.view(np.uint8)
    cdef void* to = &entries[0] if len(entries) else NULL
    cdef const int32_t* middles = address32(middle)
    cdef const int32_t* predicates = address32(predicate)
    cdef int n_threads = threads_for(trees.leaf_offsets[trees.n_trees])
    with nogil:
        c_node_programs(trees, middles, predicates, to, n_threads)


def place_trees(forest, int64_t tree_block, int words_together):
    """Place trees in words, or pairs of words, as in `gpuqs.layout.rankwalk.RankJumps`.

    No tree may have more than 64 nodes, or 127 in a pair of words.

    Returns
    -------
    words : uint8 [words_together * W, 4 * 64]
        Not yet filled.
    trees : int32 [W + 1]
    root : uint8 [T]
    words_together : int
    """
    cdef Trees trees = trees_of(forest)
    root = np.empty(trees.n_trees, np.uint8)
    cdef uint8_t[::1] roots = root
    cdef vector[int32_t] first = c_place_trees(trees, tree_block, words_together, &roots[0] if len(root) else NULL)
    words = cache_lines.zeros((words_together * (first.size() - 1), sizeof(JumpWord)), np.uint8)
    return words, np.array(first, np.int32), root, words_together


cdef JumpArrays jump_arrays(placed) except *:
    cdef uint8_t[:, ::1] words = placed[0]
    cdef const int32_t[::1] trees = placed[1]
    cdef const uint8_t[::1] root = placed[2]
    cdef JumpArrays c
    c.n_words, c.words_together, c.trees = len(trees) - 1, placed[3], &trees[0]
    if len(words):
        c.words, c.root = <JumpWord*>&words[0, 0], &root[0]
    return c


def rank_items(forest, const int32_t[::1] column, const int32_t[::1] rank, const int64_t[::1] offsets, uint8_t nan_left,
               const int64_t[::1] start, placed=None):
    """Entries (int32 [E, 3]), items (uint32 [N + L]) and tests (uint32 [N]) of `gpuqs.layout.rankwalk.RankWalkLayout`; leaves'
    labels (int32 [L]); whether words were filled instead of items.

    ``column`` and ``rank`` are those of each node. ``nan_left``: the bit of a routing that sends missing values left.
    Each tree's items begin at ``start``. ``placed``: from `place_trees`; it is filled unless there are more entries
    than a word's tests can name.
    """
    cdef Trees trees = trees_of(forest)
    cdef JumpArrays of_jumps
    cdef const JumpArrays* jumps_to = NULL
    if placed is not None:
        of_jumps = jump_arrays(placed)
        jumps_to = &of_jumps
    cdef int n_threads = threads_for(trees.leaf_offsets[trees.n_trees])
    cdef const uint8_t[::1] routing = forest.routing
    cdef RankedNodes nodes
    cdef vector[RankEntry] found
    nodes.column, nodes.rank, nodes.offsets = address32(column), address32(rank), address(offsets)
    nodes.routing = &routing[0] if len(routing) else NULL
    nodes.nan_left, nodes.n_columns = nan_left, len(offsets) - 1
    items = cache_lines.zeros(len(forest.left) + len(forest.leaf_value), np.uint32)
    cdef uint32_t[::1] writable_items = items
    cdef uint32_t* to = &writable_items[0] if len(items) else NULL
    cdef const int64_t* starts = address(start)
    tests = cache_lines.zeros(len(forest.left), np.uint32)
    cdef uint32_t[::1] writable_tests = tests
    cdef RankTest* tests_to = <RankTest*>&writable_tests[0] if len(tests) else NULL
    label = np.empty(len(forest.leaf_value), np.int32)
    cdef int32_t* label_to = writable32(label)
    with nogil:
        found = c_rank_items(trees, nodes, starts, to, tests_to, label_to, jumps_to, n_threads)
    entries = np.empty((found.size(), 3), np.int32)
    cdef int32_t[:, ::1] filled = entries
    for e in range(<Py_ssize_t>found.size()):
        filled[e, 0], filled[e, 1], filled[e, 2] = found[e].column, found[e].first, found[e].nan_left
    return entries, items, tests, label, placed is not None and can_name(found.size())


def are_ranks(const double[::1] node_threshold, const int32_t[::1] column, int64_t n_columns, const double[::1] threshold,
              const int64_t[::1] offsets, const int32_t[::1] of_node):
    """Whether each node's threshold is the one at its rank among its column's, and these ascend and all occur.

    Column c has the thresholds ``threshold[offsets[c]:offsets[c + 1]]``. Columns are in [0, ``n_columns``).
    """
    cdef int64_t n = len(node_threshold), n_thresholds = len(threshold)
    cdef cbool right
    cdef int n_threads = threads_for(n)
    if n == 0 or n_thresholds == 0 or len(column) != n or len(of_node) != n or len(offsets) != n_columns + 1:
        return False
    with nogil:
        right = c_are_ranks(
            &node_threshold[0], &column[0], n, n_columns, &threshold[0], &offsets[0], n_thresholds, &of_node[0], n_threads)
    return right
