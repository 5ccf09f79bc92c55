# cython: language_level=3
"""Loops over all nodes of a forest: to check it, and to lay it out. Nobody else need check what is passed but where it says so."""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libcpp.vector cimport vector

import numpy as np


cdef extern from "making/trees.hpp" namespace "gpuqs" nogil:
    cdef cppclass Trees:
        int64_t n_trees
        const int64_t* node_offsets
        const int64_t* leaf_offsets
        const int32_t* left
        const int32_t* right

    cdef cppclass TreeFaults:
        int64_t left, right, node, leaf, cycle

    TreeFaults c_check_trees "gpuqs::check_trees"(const Trees&, int64_t* depth) except +
    void c_number_leaves "gpuqs::number_leaves"(const Trees&, int32_t* first, int32_t* middle, int32_t* end, int32_t* position) except +
    void c_pair_up "gpuqs::pair_up"(const Trees&, int64_t* place, int64_t* distance) except +

cdef extern from "making/distinct.hpp" namespace "gpuqs" nogil:
    cdef cppclass Superblocks:
        vector[int64_t] ends, distinct, n_distinct

    vector[int64_t] c_distinct "gpuqs::distinct"(const double* keys, const int32_t* groups, int64_t n, int64_t* number) except +
    vector[int64_t] c_distinct "gpuqs::distinct"(const int64_t* keys, const int32_t* groups, int64_t n, int64_t* number) except +
    Superblocks c_number_predicates "gpuqs::number_predicates"(
        const int64_t* predicate, int64_t n_predicates, const int64_t* first_node, int64_t n_blocks, int64_t most_predicates,
        int64_t most_nodes, int64_t* number) except +

cdef extern from "making/node_programs.hpp" namespace "gpuqs" nogil:
    void c_node_programs "gpuqs::node_programs"(const Trees&, const int32_t* middle, const int64_t* predicate, void* nodes) except +

ctypedef fused key_t:
    double
    int64_t


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


cdef array_of(const vector[int64_t]& values):
    cdef int64_t[::1] to
    array = np.empty(values.size(), np.int64)
    to = array
    for i in range(<Py_ssize_t>values.size()):
        to[i] = values[i]
    return array


def check_trees(forest):
    """What is wrong with a Forest's children, and each node's depth (int64 [N], for sound trees).

    Offsets have been checked, and that trees have a leaf more than nodes. The first node or leaf is given of each fault, in
    the order in which they are looked for: "left" and "right" (a child that is outside its tree), "node" and "leaf" (has no
    parent or several), "cycle" (no way leads there from the root).
    """
    cdef Trees trees = trees_of(forest)
    cdef TreeFaults faults
    depth = np.empty(len(forest.left), np.int64)
    cdef int64_t* to = writable(depth)
    with nogil:
        faults = c_check_trees(trees, to)
    found = {"left": faults.left, "right": faults.right, "node": faults.node, "leaf": faults.leaf, "cycle": faults.cycle}
    return {fault: at for fault, at in found.items() if at >= 0}, depth


def number_leaves(forest):
    """The arrays of `gpuqs.layout.leaves.LeafRanges`."""
    cdef Trees trees = trees_of(forest)
    arrays = [np.empty(len(forest.left), np.int32) for _ in range(3)] + [np.empty(len(forest.leaf_value), np.int32)]
    cdef int32_t* first = writable32(arrays[0])
    cdef int32_t* middle = writable32(arrays[1])
    cdef int32_t* end = writable32(arrays[2])
    cdef int32_t* position = writable32(arrays[3])
    with nogil:
        c_number_leaves(trees, first, middle, end, position)
    return arrays


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
    """Where each of the distinct keys is first met, the keys ascending, and which of them each key is.

    That is `numpy.unique`'s indexes and inverse, sooner where keys repeat. No key is NaN. Where ``groups`` are given, keys of
    different groups are different, and ascend by group first.
    """
    cdef vector[int64_t] first
    cdef int64_t n = len(keys)
    if n > INT32_MAX or (groups is not None and len(groups) != n):
        raise ValueError("too many keys, or not a group for each")
    cdef const int32_t* group = NULL
    if groups is not None:
        group = address32(groups)
    cdef const key_t* of = &keys[0] if n else NULL
    number = np.empty(n, np.int64)
    cdef int64_t* to = writable(number)
    with nogil:
        first = c_distinct(of, group, n, to)
    return array_of(first), number


def number_predicates(const int64_t[::1] predicate, int64_t n_predicates, const int64_t[::1] first_node, int64_t most_predicates,
                      int64_t most_nodes):
    """Superblocks' ends, their distinct predicates and the numbers of these, and each node's predicate within its superblock.

    ``predicate`` is in [0, ``n_predicates``); ``first_node`` is that of each tree block, and rises from 0 to the nodes.
    """
    cdef Superblocks found
    cdef const int64_t* of = address(predicate)
    cdef const int64_t* firsts = address(first_node)
    cdef int64_t n_blocks = len(first_node) - 1
    number = np.empty(len(predicate), np.int64)
    cdef int64_t* to = writable(number)
    with nogil:
        found = c_number_predicates(of, n_predicates, firsts, n_blocks, most_predicates, most_nodes, to)
    return array_of(found.ends), array_of(found.distinct), array_of(found.n_distinct), number


def node_programs(forest, const int32_t[::1] middle, const int64_t[::1] predicate, nodes):
    """Fill ``nodes`` (zeros, an entry for each leaf) as `gpuqs.layout.programs.NodePrograms` says."""
    cdef Trees trees = trees_of(forest)
    cdef uint8_t[::1] entries = nodes.view(np.uint8)
    cdef void* to = &entries[0] if len(entries) else NULL
    cdef const int32_t* middles = address32(middle)
    cdef const int64_t* predicates = address(predicate)
    with nogil:
        c_node_programs(trees, middles, predicates, to)
