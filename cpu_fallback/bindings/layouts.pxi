# Turns layouts' NumPy arrays into the C structs that kernels read: part of scorer.pyx.

cdef const void* data_of(array, dtype, list keep) except? NULL:
    """Address of an array of that dtype in C order, at the start of a cache line, kept alive in `keep`.

    The array is copied if it lies otherwise; large arrays are allocated that way, see `gpuqs.cache_lines`.
    """
    array = np.ascontiguousarray(array)
    if array.dtype != dtype:
        raise TypeError(f"expected {np.dtype(dtype)}, got {array.dtype}")
    cdef size_t data = address_of(array), n_bytes, start
    if data % LINE == 0:
        keep.append(array)
        return <const void*>data
    n_bytes = array.nbytes
    room = np.empty(n_bytes + LINE, np.uint8)
    keep.append(room)
    start = (address_of(room) + LINE - 1) // LINE * LINE
    memcpy(<void*>start, <const void*>data, n_bytes)
    return <const void*>start


cdef size_t address_of(array) except? 0:
    """Address of an array in C order."""
    cdef Py_buffer view
    PyObject_GetBuffer(array, &view, PyBUF_SIMPLE)
    cdef size_t address = <size_t>view.buf
    PyBuffer_Release(&view)
    return address


# `data_of` an array of the type that the name says.
cdef inline const int32_t* int32s(array, list keep) except? NULL:
    return <const int32_t*>data_of(array, np.int32, keep)


cdef inline const int64_t* int64s(array, list keep) except? NULL:
    return <const int64_t*>data_of(array, np.int64, keep)


cdef inline const uint8_t* uint8s(array, list keep) except? NULL:
    return <const uint8_t*>data_of(array, np.uint8, keep)


cdef inline const uint16_t* uint16s(array, list keep) except? NULL:
    return <const uint16_t*>data_of(array, np.uint16, keep)


cdef inline const uint32_t* uint32s(array, list keep) except? NULL:
    return <const uint32_t*>data_of(array, np.uint32, keep)


cdef inline const uint64_t* uint64s(array, list keep) except? NULL:
    return <const uint64_t*>data_of(array, np.uint64, keep)


cdef inline const float* float32s(array, list keep) except? NULL:
    return <const float*>data_of(array, np.float32, keep)


cdef inline const double* float64s(array, list keep) except? NULL:
    return <const double*>data_of(array, np.float64, keep)


cdef const void* structs_of(array, str name, list keep) except? NULL:
    """`data_of` an array of the C++ struct of that name."""
    if array.dtype != STRUCTS[name]:
        raise TypeError(f"the layout has {name} as {array.dtype}, but the kernels read {STRUCTS[name]}: build gpuqs anew")
    return data_of(array, STRUCTS[name], keep)


cdef Columns columns_of(columns, list keep) except *:
    cdef Columns c
    c.n = len(columns)
    c.n_numeric = columns.n_numeric
    c.feature = int32s(columns.feature, keep)
    c.routing = uint8s(columns.routing, keep)
    c.set_offsets = int64s(columns.set_offsets, keep)
    c.set_words = uint32s(columns.set_words, keep)
    tables = columns.tables
    c.n_tables = len(tables.tables)
    c.tables = <const CategoryTable*>structs_of(tables.tables, "CategoryTable", keep)
    c.row_of_code = int32s(tables.row_of_code, keep)
    c.rows = uint64s(tables.rows, keep)
    return c


cdef Tuples tuples_of(tuples, int mask_bits, list keep) except *:
    cdef Tuples c
    c.offsets = int64s(tuples.offsets, keep)
    c.tree = int32s(tuples.tree, keep)
    c.mask = data_of(tuples.mask, f"u{mask_bits // 8}", keep)
    return c


cdef TestLists lists_of(lists, int mask_bits, list keep) except *:
    cdef TestLists c
    c.tests = tuples_of(lists.tests, mask_bits, keep)
    c.missing = tuples_of(lists.missing, mask_bits, keep)
    c.threshold32 = float32s(lists.threshold32, keep)
    c.threshold64 = float64s(lists.threshold64, keep)
    return c


cdef RankJumps jumps_of(jumps, list keep) except *:
    cdef RankJumps c
    if jumps is None:
        return c
    c.n_words = len(jumps.trees) - 1
    c.words_together = jumps.words_together
    c.words = <const JumpWord*>structs_of(jumps.words, "JumpWord", keep)
    c.trees = int32s(jumps.trees, keep)
    c.blocks = int32s(jumps.blocks, keep)
    c.root = uint8s(jumps.root, keep)
    c.doublings = uint8s(jumps.doublings, keep)
    return c


cdef RankTables ranks_of(ranks, bint single, list keep) except *:
    cdef RankTables c
    c.columns = columns_of(ranks.columns, keep)
    c.single = single
    c.n_bits = uint8s(ranks.n_bits, keep)
    c.marks_missing = uint8s(ranks.marks_missing, keep)
    c.plane_offsets = int32s(ranks.plane_offsets, keep)
    c.level_offsets = int64s(ranks.level_offsets, keep)
    c.levels = float32s(ranks.levels, keep)
    c.offsets = int64s(ranks.offsets, keep)
    c.threshold = float64s(ranks.threshold, keep)
    return c
