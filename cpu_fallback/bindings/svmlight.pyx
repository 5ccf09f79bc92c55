# cython: language_level=3
"""Documents from svmlight / LETOR text, parsed without the GIL."""

from libc.stdint cimport INT64_MAX, int64_t

import numpy as np


cdef extern from "readers/svmlight.hpp" namespace "gpuqs" nogil:
    cdef cppclass SvmlightRows[Value]:
        int64_t capacity
        int64_t n_features
        int64_t first_id
        Value absent
        Value* values
        double* labels
        int64_t* queries

    cdef cppclass SvmlightResult:
        int64_t rows
        int64_t lines
        int64_t n_labels
        int64_t n_queries
        int64_t lowest_id
        int problem
        int64_t id
        const char* token
        int64_t token_size

    SvmlightResult parse_svmlight(const char* text, const char* end, const SvmlightRows[float]& rows) except +
    SvmlightResult parse_svmlight(const char* text, const char* end, const SvmlightRows[double]& rows) except +
    const char* cut_lines(const char* text, const char* end, int64_t max_lines)
    int64_t count_lines(const char* text, const char* end)

    int _LABEL "gpuqs::SVMLIGHT_LABEL"
    int _FEATURE "gpuqs::SVMLIGHT_FEATURE"
    int _VALUE "gpuqs::SVMLIGHT_VALUE"
    int _OUTSIDE "gpuqs::SVMLIGHT_OUTSIDE"
    int _TWICE "gpuqs::SVMLIGHT_TWICE"
    int _QUERY "gpuqs::SVMLIGHT_QUERY"

LABEL = _LABEL
FEATURE = _FEATURE
VALUE = _VALUE
OUTSIDE = _OUTSIDE
TWICE = _TWICE
QUERY = _QUERY

ctypedef fused value_t:
    float
    double


cdef _parse(const char* begin, const char* end, value_t[:, ::1] values, double[::1] labels,
           int64_t[::1] queries, int64_t first_id, value_t absent):
    cdef SvmlightRows[value_t] rows
    cdef SvmlightResult result
    rows.capacity = values.shape[0]
    rows.n_features = values.shape[1]
    rows.first_id = first_id
    rows.absent = absent
    rows.values = &values[0, 0] if values.shape[0] and values.shape[1] else NULL
    rows.labels = &labels[0] if labels.shape[0] else NULL
    rows.queries = &queries[0] if queries.shape[0] else NULL
    with nogil:
        result = parse_svmlight(begin, end, rows)
    problem = None
    if result.problem:
        problem = (result.problem, result.token[:min(result.token_size, 80)], result.id)
    lowest = None if result.lowest_id == INT64_MAX else result.lowest_id
    return result.rows, result.lines, result.n_labels, result.n_queries, lowest, problem


def parse(const unsigned char[::1] text, int64_t n_features, dtype, int64_t first_id, double absent):
    """Parse the lines of a text.

    Parameters
    ----------
    text : bytes-like
        Whole lines; the last one may lack its line feed.
    n_features : int
        Columns of the result.
    dtype : numpy.dtype
        float32 or float64; each value is rounded once, to this type.
    first_id : int
        The feature id of column 0.
    absent : float
        Value of features that a line does not give.

    Returns
    -------
    values : float32 or float64 [rows, n_features]
    labels : float64 [rows]
        NaN where a line has none.
    queries : int64 [rows]
        0 where a line has none.
    lines : int
        Lines read; with a problem, the number of its line, from 1.
    n_labels, n_queries : int
        Rows that have a label, a qid.
    lowest_id : int or None
        The lowest feature id.
    problem : tuple or None
        Problem number (`LABEL` to `QUERY`), token (bytes, cut to 80), feature id.
    """
    cdef const char* begin = <const char*>&text[0] if text.shape[0] else NULL
    cdef const char* end = begin + text.shape[0]
    cdef int64_t capacity = count_lines(begin, end)
    values = np.empty((capacity, n_features), dtype)
    labels = np.empty(capacity, np.float64)
    queries = np.empty(capacity, np.int64)
    cdef double[::1] label_view = labels
    cdef int64_t[::1] query_view = queries
    cdef float[:, ::1] singles
    cdef double[:, ::1] doubles
    if values.dtype == np.float32:
        singles = values
        found = _parse(begin, end, singles, label_view, query_view, first_id, <float>absent)
    else:
        doubles = values
        found = _parse(begin, end, doubles, label_view, query_view, first_id, absent)
    rows, lines, n_labels, n_queries, lowest_id, problem = found
    return values[:rows], labels[:rows], queries[:rows], lines, n_labels, n_queries, lowest_id, problem


def cut(const unsigned char[::1] text, int64_t start, int64_t max_lines):
    """The end of the first ``max_lines`` whole lines from ``start``, or of all whole lines if those are fewer."""
    if not 0 <= start <= text.shape[0]:
        raise ValueError(f"start {start} is outside a text of {text.shape[0]} bytes")
    if text.shape[0] == 0:
        return 0
    cdef const char* begin = <const char*>&text[0]
    return cut_lines(begin + start, begin + text.shape[0], max_lines) - begin
