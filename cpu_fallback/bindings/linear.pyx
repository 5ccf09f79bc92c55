# cython: language_level=3, boundscheck=False, wraparound=False
"""Outputs of leaves with linear models, tree by tree, without the GIL. Scorers compute their sums without this."""

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int32_t, int64_t

from gpuqs.cpu_fallback.scorer cimport CLeafValues, Documents, Values

from gpuqs.cpu_fallback.scorer import SHARE_OUT


cdef extern from "driver/threads.hpp" namespace "gpuqs":
    void share_out_by(void* other)

share_out_by(PyCapsule_GetPointer(SHARE_OUT, NULL))

cdef extern from "driver/linear.hpp" namespace "gpuqs" nogil:
    void c_linear_outputs "gpuqs::linear_outputs"(const CLeafValues& values, const Documents& documents, const int32_t* leaves,
                                                  double* out, int n_threads) except +

ctypedef fused real:
    float
    double


def linear_outputs(Values values not None, const real[:, :] documents, const int32_t[:, ::1] leaves, double[:, ::1] out,
                   int n_threads=1):
    """Write the outputs of trees with linear leaves to ``out`` [D, T].

    Parameters
    ----------
    values : Values
        In the order of the forest's leaves.
    documents : float32 or float64 [D, n_features]
    leaves : int32 [D, T]
        Positions of the exit leaves in their trees. Neither they nor the features are checked.
    """
    cdef Documents docs
    cdef int64_t n = documents.shape[0], n_trees = values.c.n_trees
    if values.c.linear.bounds == NULL or leaves.shape[0] != n or leaves.shape[1] != n_trees:
        raise ValueError("leaves do not fit the documents, or have no linear models")
    if out.shape[0] != n or out.shape[1] != n_trees:
        raise ValueError("outputs do not fit the documents")
    if n == 0 or n_trees == 0:
        return
    docs.data = &documents[0, 0]
    docs.n = n
    docs.planes = NULL
    docs.tiny_is_zero = False  # documents already hold zeros where LightGBM takes numbers for zero
    docs.row_stride, docs.column_stride, docs.is_double = documents.strides[0], documents.strides[1], real is double
    with nogil:
        c_linear_outputs(values.c, docs, &leaves[0, 0], &out[0, 0], n_threads)
