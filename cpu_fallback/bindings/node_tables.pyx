# cython: language_level=3
# cython: boundscheck=False, wraparound=False, cdivision=True
"""Tables that hold trees' nodes and leaves together, divided into the nodes and the leaves of a Forest."""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t

import numpy as np


def divide(const uint8_t[:] leaf, const int64_t[:] left, const int64_t[:] right, const int64_t[:] feature,
           const double[:] threshold, const uint8_t[:] routing, const double[:, :] value, const int64_t[::1] bounds):
    """The Forest's arrays over nodes and leaves by name, and the sizes of its trees.

    ``bounds`` is where each tree begins in the table, and the end. If a child lies outside its tree, returns the
    tree, the node in it, and the name of the field instead. Features that int32 does not hold become -1, which a
    Forest refuses.
    """
    cdef int64_t n = leaf.shape[0], n_trees = bounds.shape[0] - 1, width = value.shape[1], t, i, k, start, size, node, l
    if bounds[0] != 0 or bounds[n_trees] != n or not (
        left.shape[0] == right.shape[0] == feature.shape[0] == threshold.shape[0] == routing.shape[0] == value.shape[0] == n
    ):
        raise ValueError("the arrays of a table of nodes are not of one length")
    for t in range(n_trees):
        if bounds[t] > bounds[t + 1]:
            raise ValueError("the bounds of trees descend")
    n_nodes, n_leaves, numbers = np.zeros(n_trees, np.int64), np.zeros(n_trees, np.int64), np.empty(n, np.int32)
    cdef int64_t[::1] nodes_of = n_nodes, leaves_of = n_leaves
    cdef int32_t[::1] number = numbers
    for t in range(n_trees):  # leaf i of a tree is ~i = -(i + 1)
        for i in range(bounds[t], bounds[t + 1]):
            number[i] = <int32_t>(~leaves_of[t] if leaf[i] else nodes_of[t])
            leaves_of[t] += leaf[i] != 0
            nodes_of[t] += leaf[i] == 0
    cdef int64_t all_nodes = n_nodes.sum(), all_leaves = n_leaves.sum()
    arrays = {name: np.empty(all_nodes, np.int32) for name in ("feature", "left", "right")}
    arrays |= {"threshold": np.empty(all_nodes), "routing": np.empty(all_nodes, np.uint8)}
    arrays |= {"leaf_value": np.empty((all_leaves, width)), "leaf_id": np.empty(all_leaves, np.int32)}
    cdef int32_t[::1] to_feature = arrays["feature"], to_left = arrays["left"], to_right = arrays["right"]
    cdef int32_t[::1] to_id = arrays["leaf_id"]
    cdef double[::1] to_threshold = arrays["threshold"]
    cdef double[:, ::1] to_value = arrays["leaf_value"]
    cdef uint8_t[::1] to_routing = arrays["routing"]
    node = l = 0
    for t in range(n_trees):
        start, size = bounds[t], bounds[t + 1] - bounds[t]
        for i in range(start, start + size):
            if leaf[i]:
                for k in range(width):
                    to_value[l, k] = value[i, k]
                to_id[l] = <int32_t>(i - start)
                l += 1
                continue
            if not 0 <= left[i] < size:
                return t, i - start, "left"
            if not 0 <= right[i] < size:
                return t, i - start, "right"
            to_feature[node] = <int32_t>feature[i] if 0 <= feature[i] <= INT32_MAX else -1
            to_threshold[node] = threshold[i]
            to_left[node], to_right[node] = number[start + left[i]], number[start + right[i]]
            to_routing[node] = routing[i]
            node += 1
    return arrays | {"n_nodes": n_nodes, "n_leaves": n_leaves}
