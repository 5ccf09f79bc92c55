# cython: language_level=3
"""The trees of LightGBM's model text, exactly as LightGBM writes them, read without the GIL."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy
from libcpp.vector cimport vector

import numpy as np


cdef extern from "readers/lightgbm_trees.hpp" namespace "gpuqs" nogil:
    cdef cppclass PlainTrees:
        vector[int64_t] starts, n_leaves, n_sets, set_size, linear, n_terms
        vector[int32_t] feature, left, right, term_feature
        vector[double] threshold, leaf_value, coefficient
        vector[uint8_t] decision
        vector[uint32_t] words
        int64_t next

    PlainTrees read_plain_trees(const char* text, int64_t at, int64_t end, int64_t tree, int64_t bytes, int largest_decision) except +


cdef array_of(const void* values, size_t n, dtype):
    array = np.empty(n, dtype)
    cdef uint8_t[::1] to = array.view(np.uint8)
    if n:
        memcpy(&to[0], values, len(to))
    return array


def read(bytes text, int64_t at, int64_t end, int64_t tree, int64_t n_bytes, int largest_decision):
    """Read trees until one is not written exactly as LightGBM does, or about ``n_bytes`` of text are read.

    Parameters
    ----------
    text : bytes
    at, end : int
        Where the first tree's text begins, with the line feed before it, and where the last one's ends.
    tree : int
        The number of the first tree.
    n_bytes : int
    largest_decision : int
        The largest decision type that is accepted.

    Returns
    -------
    dict of str to array
        "starts", "n_leaves" and "n_sets" (category sets) of the trees that were read, and their fields, by name. Of
        category sets, "set_size" and "words", one set after another. "linear": the trees that have linear leaves;
        "n_terms" of each of their leaves, and for each term "term_feature" (-1: the constant, which comes first) and
        "coefficient".
    int
        Where the next tree's text starts; -1 if there is none.
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
        "n_sets": array_of(found.n_sets.data(), found.n_sets.size(), np.int64),
        "set_size": array_of(found.set_size.data(), found.set_size.size(), np.int64),
        "words": array_of(found.words.data(), found.words.size(), np.uint32),
        "linear": array_of(found.linear.data(), found.linear.size(), np.int64),
        "n_terms": array_of(found.n_terms.data(), found.n_terms.size(), np.int64),
        "term_feature": array_of(found.term_feature.data(), found.term_feature.size(), np.int32),
        "coefficient": array_of(found.coefficient.data(), found.coefficient.size(), np.float64),
    }
    return arrays, found.next
