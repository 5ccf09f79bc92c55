# Nested lists as documents, as other modules see it.
cpdef rows_of(X, Py_ssize_t n_columns, bint single)
