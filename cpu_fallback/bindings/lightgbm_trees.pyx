# cython: language_level=3
"""The trees of LightGBM's text that test numbers alone, read without the GIL."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy
from libcpp.vector cimport vector

import numpy as np


cdef extern from "readers/lightgbm_trees.hpp" namespace "gpuqs" nogil:
    cdef cppclass PlainTrees:
        vector[int64_t] starts, n_leaves
        vector[int32_t] feature, left, right
        vector[double] threshold, leaf_value
        vector[uint8_t] decision
        int64_t next

    PlainTrees read_plain_trees(const char* text, int64_t at, int64_t end, int64_t tree, int64_t bytes, int largest_decision) except +


cdef array_of(const void* values, size_t n, dtype):
    array = np.empty(n, dtype)
    cdef uint8_t[::1] to = array.view(np.uint8)
    if n:
        memcpy(&to[0], values, len(to))
    return array


def read(bytes text, int64_t at, int64_t end, int64_t tree, int64_t n_bytes, int largest_decision):
    """Read trees that are written plainly, as LightGBM does, up to one that is not, or about so many bytes of text.

    Parameters
    ----------
    text : bytes
    at, end : int
        The text of the first tree, with the line feed before it, and the end of the last one's.
    tree : int
        The number of the first.
    n_bytes : int
    largest_decision : int
        Of the decision types.

    Returns
    -------
    dict of str to array
        "starts" and "n_leaves" of the trees that were read, and their fields, by name.
    int
        Where the next tree's text starts; -1 where that was the last.
    """
    cdef PlainTrees found
    if not 0 <= at < end <= len(text):
        raise ValueError(f"no trees from {at} to {end} in a text of {len(text)} bytes")
    cdef const char* begin = text
    with nogil:
        found = read_plain_trees(begin, at, end, tree, n_bytes, largest_decision)
    arrays = {
        "starts": array_of(found.starts.data(), found.starts.size(), np.int64),
        "n_leaves": array_of(found.n_leaves.data(), found.n_leaves.size(), np.int64),
        "split_feature": array_of(found.feature.data(), found.feature.size(), np.int32),
        "left_child": array_of(found.left.data(), found.left.size(), np.int32),
        "right_child": array_of(found.right.data(), found.right.size(), np.int32),
        "threshold": array_of(found.threshold.data(), found.threshold.size(), np.float64),
        "leaf_value": array_of(found.leaf_value.data(), found.leaf_value.size(), np.float64),
        "decision_type": array_of(found.decision.data(), found.decision.size(), np.uint8),
    }
    return arrays, found.next
