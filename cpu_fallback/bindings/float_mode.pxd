# The floating-point mode of a thread, as other modules see it.
cdef extern from "driver/float_mode.hpp" namespace "gpuqs":
    cdef cppclass CDefaultFloatMode "gpuqs::DefaultFloatMode":
        void hold()
