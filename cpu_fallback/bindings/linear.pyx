# cython: language_level=3, boundscheck=False, wraparound=False
"""Leaves with linear models, evaluated without the GIL."""

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int32_t, int64_t
from libcpp cimport bool as cbool

from gpuqs.cpu_fallback.scorer import SHARE_OUT


cdef extern from "driver/threads.hpp" namespace "gpuqs":
    void share_out_by(void* other)

share_out_by(PyCapsule_GetPointer(SHARE_OUT, NULL))

cdef extern from "driver/linear.hpp" namespace "gpuqs" nogil:
    cdef cppclass LinearLeaves:
        const int64_t* leaf_offsets
        const int32_t* tree_output
        const double* value
        const int64_t* offsets
        const int32_t* feature
        const double* coefficient
        int64_t n_trees

    cdef cppclass Rows:
        const char* at
        int64_t row_step
        int64_t column_step
        cbool is_double

    void c_add_linear "gpuqs::add_linear"(const LinearLeaves& trees, const Rows& rows, const int32_t* leaves, int64_t n,
                                          int64_t n_outputs, double* sums, double* out, int n_threads) except +

ctypedef fused real:
    float
    double


def add_linear(forest, const real[:, :] documents, const int32_t[:, ::1] leaves, double[:, ::1] sums=None,
               double[:, ::1] out=None, int n_threads=1):
    """Add the outputs of a forest's trees to ``sums`` [D, K], or write them to ``out`` [D, T].

    Parameters
    ----------
    forest : gpuqs.forest.Forest
        With linear leaves; of float64 sums.
    documents : float32 or float64 [D, n_features]
    leaves : int32 [D, T]
        Positions of the exit leaves in their trees: they are not checked.
    """
    cdef LinearLeaves trees
    cdef Rows rows
    cdef const int64_t[::1] leaf_offsets = forest.leaf_offsets, offsets = forest.linear_offsets
    cdef const int32_t[::1] tree_output = forest.tree_output, feature = forest.linear_feature
    cdef const double[:, ::1] value = forest.leaf_value
    cdef const double[::1] coefficient = forest.linear_coefficient
    cdef int64_t n = documents.shape[0], n_trees = tree_output.shape[0], n_outputs = forest.n_outputs
    cdef double* to_sums = NULL
    cdef double* to_out = NULL
    if documents.shape[1] != forest.n_features or leaves.shape[0] != n or leaves.shape[1] != n_trees or value.shape[1] != 1:
        raise ValueError("documents or leaves do not fit the forest")
    if sums is not None and (sums.shape[0] != n or sums.shape[1] != n_outputs):
        raise ValueError("sums do not fit the documents")
    if (out is not None and (out.shape[0] != n or out.shape[1] != n_trees)) or (sums is None) == (out is None):
        raise ValueError("outputs do not fit the documents")
    if n == 0 or n_trees == 0 or feature.shape[0] == 0:
        if n and n_trees:
            raise ValueError("the forest has no linear leaves")
        return
    trees.leaf_offsets, trees.tree_output, trees.value = &leaf_offsets[0], &tree_output[0], &value[0, 0]
    trees.offsets, trees.feature, trees.coefficient = &offsets[0], &feature[0], &coefficient[0]
    trees.n_trees = n_trees
    rows.at = <const char*>&documents[0, 0]
    rows.row_step, rows.column_step = documents.strides[0], documents.strides[1]
    rows.is_double = real is double
    if sums is not None:
        to_sums = &sums[0, 0]
    else:
        to_out = &out[0, 0]
    with nogil:
        c_add_linear(trees, rows, &leaves[0, 0], n, n_outputs, to_sums, to_out, n_threads)
