# New arrays for the answers of plain calls: part of plain_calls.pyx.

cdef extern from *:
    """
    #include <atomic>
    static std::atomic<unsigned> threads_seen{0};
    static thread_local const unsigned number_of_thread = threads_seen++;
    """
    const unsigned number_of_thread


cdef enum:
    MADE_TOGETHER = 16
    MADE_FOR = 16  # threads; further ones share with these


cdef class Singles:
    """Arrays of one number, some made at a time, because NumPy goes through 69 cache lines for each."""

    cdef PyObject* made[MADE_TOGETHER]  # each holds a reference
    cdef int n

    cdef cnp.ndarray take(self, int number_type):
        cdef cnp.npy_intp one = 1
        cdef cnp.ndarray single
        with critical_section(self):
            if unlikely(self.n == 0):
                for _ in range(MADE_TOGETHER):
                    single = cnp.PyArray_EMPTY(1, &one, number_type, False)
                    if self.n < MADE_TOGETHER:  # without the GIL, another thread may come in while NumPy allocates
                        Py_INCREF(single)
                        self.made[self.n] = <PyObject*>single
                        self.n += 1
            self.n -= 1
            single = <cnp.ndarray>self.made[self.n]
            Py_DECREF(single)
        return single


# By thread, so that memory need not pass from one processor to another between two threads' calls; of doubles and floats.
cdef tuple singles = tuple([Singles() for _ in range(2 * MADE_FOR)])


cdef cnp.ndarray empty_answer(int n_dims, cnp.npy_intp* shape, int type_of_scores):
    if n_dims > 1 or shape[0] > 1 or type_of_scores not in (cnp.NPY_DOUBLE, cnp.NPY_FLOAT):
        return cnp.PyArray_EMPTY(n_dims, shape, type_of_scores, False)
    of_thread = 2 * (number_of_thread % MADE_FOR) + (type_of_scores == cnp.NPY_FLOAT)
    return (<Singles>PyTuple_GET_ITEM(singles, of_thread)).take(type_of_scores)
