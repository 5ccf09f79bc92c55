// Stages that every engine shares, compiled once per instruction set inside its namespace.

static constexpr double zero_threshold = 1e-35f;  // gpuqs.forest.ZERO_THRESHOLD

// load: for each row: for each column: x[column][row] = row[feature], zeros to NaN where they are missing
template <class In, class Out>
static void load_as(const Documents& documents, int64_t first, int n, const Columns& columns, int stride, Out* x) {
    const char* rows = static_cast<const char*>(documents.data) + first * documents.row_stride;
    for (int c = 0; c < columns.n; c++) {
        const char* at = rows + columns.feature[c] * documents.column_stride;
        Out* to = x + static_cast<int64_t>(c) * stride;
        for (int d = 0; d < n; d++, at += documents.row_stride) to[d] = static_cast<Out>(*reinterpret_cast<const In*>(at));
        if (columns.zero_missing[c])
            for (int d = 0; d < n; d++)
                if (to[d] <= zero_threshold && to[d] >= -zero_threshold) to[d] = static_cast<Out>(__builtin_nan(""));
        for (int d = n; d < stride; d++) to[d] = Out(0);
    }
}

template <class Out>
static void load(const Documents& documents, int64_t first, int n, const Columns& columns, int stride, Out* x) {
    if (documents.is_double)
        load_as<double>(documents, first, n, columns, stride, x);
    else
        load_as<float>(documents, first, n, columns, stride, x);
}

// add_values, one output: for eight documents at a time: for each tree: sum += value[leaf]
template <class Value, class Sum, class Leaf>
static void add_scalar_leaves(const Value* value, const int64_t* offsets, int n_trees, const Leaf* leaf, int n, int stride,
                              Sum* sums) {
    for (int d = 0; d < n; d += 8) {
        Sum s[8];
        for (int k = 0; k < 8; k++) s[k] = sums[d + k];
        for (int t = 0; t < n_trees; t++) {
            const Value* of_tree = value + offsets[t];
            const Leaf* at = leaf + static_cast<int64_t>(t) * stride + d;
            for (int k = 0; k < 8; k++) s[k] += of_tree[at[k]];
        }
        for (int k = 0; k < 8; k++) sums[d + k] = s[k];
    }
}

// add_values, any number of outputs: each tree adds to its output, or its leaves' vectors to all
template <class Value, class Sum, class Leaf>
static void add_leaves(const LeafValues& values, int first, int n_trees, const Leaf* leaf, int n, int stride, Sum* sums) {
    const Value* value = static_cast<const Value*>(values.value);
    const int64_t* offsets = values.offsets + first;
    if (values.n_outputs == 1) return add_scalar_leaves(value, offsets, n_trees, leaf, n, stride, sums);
    for (int t = 0; t < n_trees; t++, leaf += stride) {
        const Value* of_tree = value + offsets[t] * values.width;
        if (values.width == 1) {
            Sum* to = sums + static_cast<int64_t>(values.tree_output[first + t]) * stride;
            for (int d = 0; d < n; d++) to[d] += of_tree[leaf[d]];
        } else {
            for (int d = 0; d < n; d++)
                for (int k = 0; k < values.width; k++)
                    sums[static_cast<int64_t>(k) * stride + d] += of_tree[static_cast<int64_t>(leaf[d]) * values.width + k];
        }
    }
}

template <class Leaf>
static void add_kind(const LeafValues& values, int first, int n_trees, const Leaf* leaf, int n, int stride, void* sums) {
    switch (values.kind) {
        case ValueKind::float64: return add_leaves<double>(values, first, n_trees, leaf, n, stride, static_cast<double*>(sums));
        case ValueKind::float32: return add_leaves<float>(values, first, n_trees, leaf, n, stride, static_cast<float*>(sums));
        case ValueKind::fixed: return add_leaves<int32_t>(values, first, n_trees, leaf, n, stride, static_cast<int64_t*>(sums));
    }
}

static void add_values(const LeafValues& values, int first, int n_trees, int leaf_bytes, const void* leaf, int n, int stride,
                       void* sums) {
    switch (leaf_bytes) {
        case 1: return add_kind(values, first, n_trees, static_cast<const uint8_t*>(leaf), n, stride, sums);
        case 2: return add_kind(values, first, n_trees, static_cast<const uint16_t*>(leaf), n, stride, sums);
        default: return add_kind(values, first, n_trees, static_cast<const uint32_t*>(leaf), n, stride, sums);
    }
}
