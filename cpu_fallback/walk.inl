// walk: from the root to a leaf, eight walks side by side so that their waits overlap.
//
//   at[walk] = root
//   repeat until no walk moves (a leaf is its own left child):
//       for each walk: at += distance to the left child of at, + 1 if x[column of at] > threshold of at
//   leaf[tree] = position of at
//
// Many documents: eight documents through one tree. Few: one document through eight trees.

static constexpr int kWalks = 8;

template <class Value> static const Item<Value>* items_of(const WalkModel& model);
template <> const Item<float>* items_of<float>(const WalkModel& model) { return model.item32; }
template <> const Item<double>* items_of<double>(const WalkModel& model) { return model.item64; }

// x[walk] is the walk's document: its column c lies at x[walk][c * stride].
template <bool has_missing, class Value>
static inline void walk_eight(const WalkModel& model, const Value* const* x, int stride, int64_t* at) {
    const Item<Value>* items = items_of<Value>(model);
    const uint32_t column_mask = (1u << model.column_bits) - 1, nan_left = 1u << model.column_bits;
    const int shift = model.column_bits + 1;
    uint32_t moved;
    do {
        moved = 0;
#pragma GCC unroll 8
        for (int k = 0; k < kWalks; k++) {
            const Item<Value> item = items[at[k]];
            const Value value = x[k][static_cast<int64_t>(item.link & column_mask) * stride];
            uint32_t right = value > item.threshold;
            if (has_missing) right |= (value != value) & !(item.link & nan_left);
            const uint32_t distance = item.link >> shift;
            at[k] += distance + right;
            moved |= distance;
        }
    } while (moved);
}

template <bool has_missing, class Value>
static void walk_documents(const WalkModel& model, int block, const Value* x, int n, int stride, int32_t* leaf) {
    for (int t = model.block_offsets[block]; t < model.block_offsets[block + 1]; t++, leaf += stride)
        for (int d = 0; d < n; d += kWalks) {
            int64_t at[kWalks];
            const Value* of[kWalks];
            for (int k = 0; k < kWalks; k++) at[k] = model.tree_offsets[t], of[k] = x + d + k;
            walk_eight<has_missing>(model, of, stride, at);
            for (int k = 0; k < kWalks; k++) leaf[d + k] = model.leaf[at[k]];
        }
}

template <bool has_missing, class Value>
static void walk_trees(const WalkModel& model, int block, const Value* x, int n, int stride, int32_t* leaf) {
    const int first = model.block_offsets[block], end = model.block_offsets[block + 1];
    for (int t = first; t < end; t += kWalks)
        for (int d = 0; d < n; d++) {
            int64_t at[kWalks];
            const Value* of[kWalks];
            for (int k = 0; k < kWalks; k++) at[k] = model.tree_offsets[t + k < end ? t + k : t], of[k] = x + d;
            walk_eight<has_missing>(model, of, stride, at);
            for (int k = 0; k < kWalks && t + k < end; k++)
                leaf[static_cast<int64_t>(t + k - first) * stride + d] = model.leaf[at[k]];
        }
}

template <class Value>
static void walk(const WalkModel& model, int block, const Value* x, bool has_missing, int n, int stride, int32_t* leaf) {
    if (n < kWalks)
        (has_missing ? walk_trees<true, Value> : walk_trees<false, Value>)(model, block, x, n, stride, leaf);
    else
        (has_missing ? walk_documents<true, Value> : walk_documents<false, Value>)(model, block, x, n, stride, leaf);
}
