# Which programs answer plain calls, by the number of documents: part of plain_calls.pyx.

cdef extern from "driver/environment.hpp" namespace "gpuqs" nogil:
    cdef cppclass Environment:
        cbool is_as_before()
        void remember() except +


cdef enum:
    MAX_LARGE_SIZES = 256  # numbers of documents above `most` for which programs are kept


cdef bytes environment(const char* name):
    cdef const char* value = getenv(name)
    return None if value == NULL else value


cdef Py_ssize_t age_of_costs = 0


def costs_age():
    """How often the costs by which engines are chosen have changed in this process. A change voids earlier
    choices."""
    return age_of_costs


def costs_changed():
    """Record that the costs have changed."""
    global age_of_costs
    age_of_costs += 1


cdef class Bound:
    """What scores a number of documents, and the threads that they are worth."""

    cdef Scorer scorer
    cdef Values values
    cdef int worth

    def __cinit__(self, Scorer scorer not None, Values values not None, int worth):
        self.scorer, self.values, self.worth = scorer, values, worth


cdef Bound bound_by(program_of, Py_ssize_t n):
    """What a `PlainCalls`'s ``program_of`` gives."""
    program = program_of(n)
    return None if program is None else Bound(*program)


cdef class Chosen:
    """Programs chosen for numbers of documents. They are valid while costs and the environment stay as they were then.

    Threads that score at the same time share it, and each may choose. So none of its fields is ever reassigned.
    """

    cdef list programs  # by the number of documents; None: not asked for yet
    cdef object larger_programs  # a dict for larger batches; if typed, Cython borrows what other threads may drop
    cdef vector[int16_t] keeps_lock  # by that number; > 0: the GIL is kept, higher after slow calls; < 0: calls to wait
    cdef bytes isa, machine_code
    cdef Environment environment
    cdef Py_ssize_t costs_age

    def __cinit__(self, Py_ssize_t most, Chosen before=None):
        """``before``: what was chosen until now; kept if costs, GPUQS_ISA and GPUQS_MACHINE_CODE are unchanged."""
        self.costs_age = age_of_costs
        self.environment.remember()
        self.isa, self.machine_code = environment("GPUQS_ISA"), environment("GPUQS_MACHINE_CODE")
        self.keeps_lock.resize(most + 1)  # with zeros; `assign`, or a copy, would end the process if memory ran out
        if (before is not None and before.costs_age == self.costs_age and before.isa == self.isa
                and before.machine_code == self.machine_code):
            self.programs, self.larger_programs = before.programs, before.larger_programs
            for n in range(most + 1):
                self.keeps_lock[n] = before.keeps_lock[n]
        else:
            self.programs, self.larger_programs = [None] * (most + 1), {}

    cdef bint is_small(self, Py_ssize_t n) noexcept:
        return n < <Py_ssize_t>self.keeps_lock.size()

    cdef bint hold(self) noexcept:
        return self.costs_age == age_of_costs and self.environment.is_as_before()

    @boundscheck(False)
    @wraparound(False)
    cdef Bound known(self, Py_ssize_t n):
        """What scores ``n`` documents, or None if `choose` has not been asked yet."""
        return <Bound>self.programs[n] if likely(self.is_small(n)) else self.larger_programs.get(n)

    cdef Bound choose(self, Py_ssize_t n, program_of):
        """What scores ``n`` documents, or None."""
        program = bound_by(program_of, n)
        if not self.hold():  # it may be one for another instruction set
            return program
        if self.is_small(n):
            self.programs[n] = program
            return program
        if len(self.larger_programs) >= MAX_LARGE_SIZES:
            self.larger_programs.clear()
        self.larger_programs[n] = program
        return program
