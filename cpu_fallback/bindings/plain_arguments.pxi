# What the arguments of `Model.predict` ask for: part of plain_calls.pyx.

cdef enum:  # What an argument of `Model.predict` asks for.
    NOTHING = 0  # its default, or a value that means the same
    RAW = 1  # raw scores
    FAST = 2  # precision "fast"
    N_THREADS = 4  # a number of threads
    OUT = 8  # the answer in a given NumPy array
    N_ITERATIONS = 16  # a number of iterations, which may be that of all trees
    PART = 32  # a range of iterations or trees
    LEAF = 64  # the leaves' numbers
    NOT_PLAIN = 128  # what makes a call not plain


#: Names of the argument for the number of threads: here, and in LightGBM, XGBoost and CatBoost.
NAMES_OF_THREADS = "n_threads", "num_threads", "num_thread", "nthreads", "nthread", "n_jobs", "thread_count"


cdef bint is_end(value) noexcept:
    return value is None or type(value) is int


cdef int asked_by(name, value) except -1:
    """What an argument of `Model.predict` besides ``X`` and ``output`` asks for."""
    if value is None:
        if name in ("n_threads", "out", "trees", "base_margin", "device", "num_iteration", "iteration_range"):
            return NOTHING
        if name in NAMES_OF_THREADS:
            return NOTHING
    elif value is False:
        if name in ("raw_score", "output_margin", "pred_leaf", "pred_contrib"):
            return NOTHING
    elif value is True:
        if name in ("raw_score", "output_margin"):
            return RAW
        if name == "pred_leaf":
            return LEAF
    elif type(value) is int:
        if value > 0 and (name == "n_threads" or name in NAMES_OF_THREADS):
            return N_THREADS
        if name == "num_iteration":
            return N_ITERATIONS
        if name == "start_iteration":
            return NOTHING if value == 0 else PART
    elif type(value) is tuple:
        if name == "iteration_range" and len(value) == 2 and type(value[0]) is int and type(value[1]) is int:
            return PART
    elif type(value) is slice:
        if name == "trees" and is_end(value.start) and is_end(value.stop) and is_end(value.step):
            return PART
    elif type(value) is cnp.ndarray:
        if name == "out":
            return OUT
    elif type(value) is str:
        if name == "precision" and value == "fast":
            return FAST
        if (name == "precision" and value == "exact") or (name == "engine" and value == "auto") \
                or (name == "device" and value == "cpu"):
            return NOTHING
    return NOT_PLAIN


cdef int asked_by_all(output, dict keywords) except -1:
    """What a call of `Model.predict` asks for, as the bits above."""
    cdef int asked = NOT_PLAIN
    if type(output) is str:
        asked = NOTHING if output == "value" else RAW if output == "raw" else LEAF if output == "leaf" else NOT_PLAIN
    if likely(not keywords):
        return asked
    for name, value in keywords.items():
        if asked & NOT_PLAIN:
            return asked
        by_this = asked_by(name, value)
        asked |= NOT_PLAIN if by_this & asked & (N_THREADS | PART) else by_this  # they may be asked for twice
    return NOT_PLAIN if asked & LEAF and asked & (RAW | FAST) else asked


# A function of its own, because `next` makes a closure of the keywords, even where no threads are asked for.
cdef int named_threads(dict keywords) except -1:
    """The number of threads that one of the keywords asks for."""
    n_threads = keywords.get("n_threads")
    if n_threads is None:
        n_threads = next(keywords[name] for name in NAMES_OF_THREADS if keywords.get(name) is not None)
    return min(n_threads, max_threads())


cdef int threads_of(int asked, dict keywords) except -1:
    """The number of threads that is asked for, or 0."""
    return named_threads(keywords) if asked & N_THREADS else 0
