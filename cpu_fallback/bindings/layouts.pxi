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


cdef const void* structs_of(array, str name, list keep) except? NULL:
    """`data_of` an array of the C++ struct of that name."""
    if array.dtype != STRUCTS[name]:
        raise TypeError(f"the layout has {name} as {array.dtype}, but the kernels read {STRUCTS[name]}: build gpuqs anew")
    return data_of(array, STRUCTS[name], keep)


cdef Columns columns_of(columns, list keep) except *:
    cdef Columns c
    c.n = len(columns)
    c.n_numeric = columns.n_numeric
    c.feature = <const int32_t*>data_of(columns.feature, np.int32, keep)
    c.routing = <const uint8_t*>data_of(columns.routing, np.uint8, keep)
    c.set_offsets = <const int64_t*>data_of(columns.set_offsets, np.int64, keep)
    c.set_words = <const uint32_t*>data_of(columns.set_words, np.uint32, keep)
    tables = columns.tables
    c.n_tables = len(tables.tables)
    c.tables = <const CategoryTable*>structs_of(tables.tables, "CategoryTable", keep)
    c.row_of_code = <const int32_t*>data_of(tables.row_of_code, np.int32, keep)
    c.rows = <const uint64_t*>data_of(tables.rows, np.uint64, keep)
    return c


cdef Tuples tuples_of(tuples, int mask_bits, list keep) except *:
    cdef Tuples c
    c.offsets = <const int64_t*>data_of(tuples.offsets, np.int64, keep)
    c.tree = <const int32_t*>data_of(tuples.tree, np.int32, keep)
    c.mask = data_of(tuples.mask, f"u{mask_bits // 8}", keep)
    return c


cdef TestLists lists_of(lists, int mask_bits, list keep) except *:
    cdef TestLists c
    c.tests = tuples_of(lists.tests, mask_bits, keep)
    c.missing = tuples_of(lists.missing, mask_bits, keep)
    c.threshold32 = <const float*>data_of(lists.threshold32, np.float32, keep)
    c.threshold64 = <const double*>data_of(lists.threshold64, np.float64, keep)
    return c


cdef RankJumps jumps_of(jumps, list keep) except *:
    cdef RankJumps c
    if jumps is None:
        return c
    c.n_words = len(jumps.trees) - 1
    c.words_together = jumps.words_together
    c.words = <const JumpWord*>structs_of(jumps.words, "JumpWord", keep)
    c.trees = <const int32_t*>data_of(jumps.trees, np.int32, keep)
    c.blocks = <const int32_t*>data_of(jumps.blocks, np.int32, keep)
    c.root = <const uint8_t*>data_of(jumps.root, np.uint8, keep)
    c.doublings = <const uint8_t*>data_of(jumps.doublings, np.uint8, keep)
    return c


cdef RankTables ranks_of(ranks, bint single, list keep) except *:
    cdef RankTables c
    c.columns = columns_of(ranks.columns, keep)
    c.single = single
    c.n_bits = <const uint8_t*>data_of(ranks.n_bits, np.uint8, keep)
    c.marks_missing = <const uint8_t*>data_of(ranks.marks_missing, np.uint8, keep)
    c.plane_offsets = <const int32_t*>data_of(ranks.plane_offsets, np.int32, keep)
    c.level_offsets = <const int64_t*>data_of(ranks.level_offsets, np.int64, keep)
    c.levels = <const float*>data_of(ranks.levels, np.float32, keep)
    c.offsets = <const int64_t*>data_of(ranks.offsets, np.int64, keep)
    c.threshold = <const double*>data_of(ranks.threshold, np.float64, keep)
    return c
