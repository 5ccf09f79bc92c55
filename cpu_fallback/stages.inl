// Stages that every engine shares, compiled once per instruction set inside its namespace.

static constexpr int kFixedBatch = 128;  // of fixed-point leaves below 2^23 in magnitude: sums below 2^31
static constexpr double zero_threshold = 1e-35f;  // gpuqs.forest.ZERO_THRESHOLD

// load: for each row: for each column: x[column][row] = row[feature], read as the column says
template <class In, class Out>
static void load_column(const char* at, int64_t row_stride, int n, Out* to) {
    for (int d = 0; d < n; d++, at += row_stride) to[d] = static_cast<Out>(*reinterpret_cast<const In*>(at));
}

// Row-major floats: neighbouring columns in tiles, as far as whole tiles go. ahead: asks memory for what is loaded next.
template <bool ahead>
static int load_tile(const Documents& documents, const char* rows, int n, const Columns& columns, int c, int stride, float* x) {
    if (documents.column_stride != sizeof(float) || c + kTile > columns.n) return 0;
    for (int k = 1; k < kTile; k++)
        if (columns.feature[c + k] != columns.feature[c] + k) return 0;
    const char* at = rows + columns.feature[c] * documents.column_stride;
    const int whole = n / kTile * kTile;
    for (int d = 0; d < whole; d += kTile) {
        transpose_tile(at + d * documents.row_stride, documents.row_stride, x + d, stride);
        // The same columns of the next rows; beyond the last row a prefetch does nothing.
        for (int i = 0; ahead && i < kTile; i++) __builtin_prefetch(at + (d + i + stride) * documents.row_stride);
    }
    for (int k = 0; k < kTile; k++)
        load_column<float>(at + whole * documents.row_stride + k * documents.column_stride, documents.row_stride, n - whole,
                           x + static_cast<int64_t>(k) * stride + whole);
    return kTile;
}

template <class Out> static void zeros_to_nan(int n, Out* x) {
    for (int d = 0; d < n; d++)
        if (x[d] <= zero_threshold && x[d] >= -zero_threshold) x[d] = static_cast<Out>(__builtin_nan(""));
}

// Categories that go left become 0, those that go right 1; missing values stay NaN.
template <class Out> static void categories_to_sides(const Columns& columns, int c, int n, Out* x) {
    const uint32_t* words = columns.set_words + columns.set_offsets[c];
    const Out end = static_cast<Out>(32 * (columns.set_offsets[c + 1] - columns.set_offsets[c]));
    const bool right = columns.routing[c] & kSetRight, whole = columns.routing[c] & kWholeCodes;
    const bool fraction = columns.routing[c] & kNegativeFractionIsZero;
    for (int d = 0; d < n; d++) {
        if (x[d] != x[d]) continue;
        bool in_set = (fraction ? x[d] > -1 : x[d] >= 0) && x[d] < end && end > 0;
        if (in_set) {
            const int64_t code = static_cast<int64_t>(x[d]);
            in_set = (words[code / 32] >> (code % 32) & 1) && !(whole && static_cast<Out>(code) != x[d]);
        }
        x[d] = in_set == right;
    }
}

template <class Out, bool ahead = true>
static void load(const Documents& documents, int64_t first, int n, const Columns& columns, int stride, Out* x) {
    const char* rows = static_cast<const char*>(documents.data) + first * documents.row_stride;
    for (int c = 0; c < columns.n;) {
        Out* to = x + static_cast<int64_t>(c) * stride;
        int loaded = 0;
        if constexpr (sizeof(Out) == sizeof(float)) {
            if (!documents.is_double) loaded = load_tile<ahead>(documents, rows, n, columns, c, stride, to);
        }
        if (loaded == 0) {
            const char* at = rows + columns.feature[c] * documents.column_stride;
            if (documents.is_double)
                load_column<double>(at, documents.row_stride, n, to);
            else
                load_column<float>(at, documents.row_stride, n, to);
            loaded = 1;
        }
        c += loaded;
    }
    for (int c = 0; c < columns.n; c++) {
        Out* to = x + static_cast<int64_t>(c) * stride;
        if (columns.routing[c] & kCategorical)
            categories_to_sides(columns, c, n, to);
        else if (columns.routing[c] & kZeroMissing)
            zeros_to_nan(n, to);
        for (int d = n; d < stride; d++) to[d] = Out(0);
    }
}

// load_rows: as load, x[row][column]; block is scratch, [columns][kRowBlock]. Returns whether some value is missing.
template <class Out>
static bool load_rows(const Documents& documents, int64_t first, int n, const Columns& columns, Out* block, Out* x) {
    int missing = 0;
    for (int d = 0; d < n; d += kRowBlock) {
        const int rows = n - d < kRowBlock ? n - d : kRowBlock;
        load(documents, first + d, rows, columns, kRowBlock, block);
        for (int i = 0; i < columns.n * kRowBlock; i++) missing |= block[i] != block[i];
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < columns.n; c++) *x++ = block[static_cast<int64_t>(c) * kRowBlock + r];
    }
    return missing;
}

// add_values, one output, no tables: for some documents at a time: for each tree: sum += value[leaf]
template <int width, class Value, class Sum, class Leaf>
static void add_side_by_side(const Value* value, const int64_t* offsets, int n_trees, const Leaf* leaf, int stride, Sum* sums) {
    Sum s[width];
    for (int k = 0; k < width; k++) s[k] = sums[k];
    for (int t = 0; t < n_trees; t++, leaf += stride) {
        const Value* of_tree = value + offsets[t];
        if constexpr (sizeof(Leaf) * width == 8) {
            uint64_t leaves;  // one load for all: the load ports are what is short here
            __builtin_memcpy(&leaves, leaf, sizeof leaves);
            for (int k = 0; k < width; k++) s[k] += of_tree[static_cast<Leaf>(leaves >> 8 * sizeof(Leaf) * k)];
        } else {
            for (int k = 0; k < width; k++) s[k] += of_tree[leaf[k]];
        }
    }
    for (int k = 0; k < width; k++) sums[k] = s[k];
}

template <class Value, class Sum, class Leaf>
static void add_scalar_leaves(const Value* value, const int64_t* offsets, int n_trees, const Leaf* leaf, int n, int stride,
                              Sum* sums) {
    int d = 0;
    for (; d + 8 <= n; d += 8) add_side_by_side<8>(value, offsets, n_trees, leaf + d, stride, sums + d);
    if (n - d >= 4) add_side_by_side<4>(value, offsets, n_trees, leaf + d, stride, sums + d), d += 4;
    for (; d < n; d++) add_side_by_side<1>(value, offsets, n_trees, leaf + d, stride, sums + d);
}

// add_values, any number of outputs: each tree adds to its output, or its leaves' vectors to all
template <class Value, class Sum, class Leaf>
static void add_leaves(const LeafValues& values, int first, int n_trees, const Leaf* leaf, int n, int stride, Sum* sums) {
    const Value* value = static_cast<const Value*>(values.value);
    const int64_t* offsets = values.offsets + first;
    if (values.n_outputs == 1) {
        for (int t = 0; t < n_trees; t += kTrees, leaf += static_cast<int64_t>(kTrees) * stride)
            add_scalar_leaves(value, offsets + t, n_trees - t < kTrees ? n_trees - t : kTrees, leaf, n, stride, sums);
        return;
    }
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

// add_values by tables, where the instruction set has them; sums stand where sum_place says
template <class Value, class Sum>
static void add_by_tables(const LeafValues& values, int first, int n_trees, const uint8_t* leaf, int n, int stride, Sum* sums) {
    if constexpr (sizeof(Value) == sizeof(Sum)) {
        Tables::add_trees<Value>(values, first, n_trees, leaf, n, stride, sums);
    } else {  // fixed point: a batch of trees fits 32 bits
        alignas(64) Value batch[512];
        for (int d = 0; d < n; d += 512) {
            const int documents = n - d < 512 ? n - d : 512;
            for (int t = 0; t < n_trees; t += kFixedBatch) {
                const int trees = n_trees - t < kFixedBatch ? n_trees - t : kFixedBatch;
                for (int i = 0; i < documents; i++) batch[i] = 0;
                Tables::add_trees<Value>(values, first + t, trees, leaf + static_cast<int64_t>(t) * stride + d, documents, stride, batch);
                for (int i = 0; i < documents; i++) sums[d + i] += batch[i];
            }
        }
    }
}

template <class Value, class Sum, class Leaf>
static void add_any(const LeafValues& values, int first, int n_trees, const Leaf* leaf, int n, int stride, Sum* sums) {
    if constexpr (Tables::available && sizeof(Leaf) == 1) {
        if (values.tables) return add_by_tables<Value>(values, first, n_trees, leaf, n, stride, sums);
    }
    add_leaves<Value>(values, first, n_trees, leaf, n, stride, sums);
}

static int table_word(int n_leaves, int value_bytes) { return Tables::word_bytes(n_leaves, value_bytes); }

static int sum_place(const LeafValues& values, int d) {
    const int value_bytes = values.kind == ValueKind::float64 ? 8 : 4;
    return values.tables ? Tables::sum_place(Tables::word_bytes(values.table_leaves, value_bytes), value_bytes, d) : d;
}

template <class Leaf>
static void add_kind(const LeafValues& values, int first, int n_trees, const Leaf* leaf, int n, int stride, void* sums) {
    switch (values.kind) {
        case ValueKind::float64: return add_any<double>(values, first, n_trees, leaf, n, stride, static_cast<double*>(sums));
        case ValueKind::float32: return add_any<float>(values, first, n_trees, leaf, n, stride, static_cast<float*>(sums));
        case ValueKind::fixed: return add_any<int32_t>(values, first, n_trees, leaf, n, stride, static_cast<int64_t*>(sums));
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
