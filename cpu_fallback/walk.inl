// walk: from the root to a leaf, eight documents side by side so that their cache misses overlap.
//
//   node[document] = root
//   repeat until no document moves (a leaf is its own child):
//       for each document: node = child[x[column of node] > threshold of node]   (NaN: its own side)
//   leaf[tree] = position of node

template <class Value> static const WalkNode<Value>* nodes_of(const WalkModel& model);
template <> const WalkNode<float>* nodes_of<float>(const WalkModel& model) { return model.node32; }
template <> const WalkNode<double>* nodes_of<double>(const WalkModel& model) { return model.node64; }

template <class Value>
static void walk(const WalkModel& model, int block, const Value* x, int n, int stride, int32_t* leaf) {
    const int first = model.block_offsets[block], end = model.block_offsets[block + 1];
    for (int t = first; t < end; t++, leaf += stride) {
        const WalkNode<Value>* nodes = nodes_of<Value>(model) + model.tree_offsets[t];
        const int32_t* position = model.leaf + model.tree_offsets[t];
        for (int d = 0; d < n; d += 8) {
            int32_t at[8] = {0, 0, 0, 0, 0, 0, 0, 0};
            int32_t moved;
            do {
                moved = 0;
                for (int k = 0; k < 8; k++) {
                    const WalkNode<Value>& node = nodes[at[k]];
                    const Value value = x[static_cast<int64_t>(node.column & ~kNanLeft) * stride + d + k];
                    const bool right = value > node.threshold || (value != value && node.column >= 0);
                    const int32_t next = node.child[right];
                    moved |= next ^ at[k];
                    at[k] = next;
                }
            } while (moved);
            for (int k = 0; k < 8; k++) leaf[d + k] = position[at[k]];
        }
    }
}
