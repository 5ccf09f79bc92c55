// bitslice: one bit per document, one word per test, a boolean program per tree.
//
//   predicates: for each distinct test of the trees: word = rank > i        (bit d: false for document d)
//   programs:   for each tree: for each node, parents first: S[slot] = S[end] | (S[first] & word)
//               plane[k] = XOR of S_j, j an odd multiple of 2^k              (the exit leaf, in Gray code)
//   leaves:     planes of bits to bytes, leaf[tree][document]
//
// `Word` is the instruction set's register; or_and(a, b, c) = a | (b & c), select(m, a, b) = (a & m) | (b & ~m).

static constexpr int kWordDocuments = static_cast<int>(sizeof(Word)) * 8;

static inline Word constant(uint8_t byte) { return Word{} + 0x0101010101010101u * byte; }

// over[b] = the four bits of low ... low + 3 planes, as a number, are above b; b = 0 ... 15.
static void nibble_above(const Word* bits, int n, Word* over) {
    const Word zero = {};
    const Word p0 = n > 0 ? bits[0] : zero, p1 = n > 1 ? bits[1] : zero;
    const Word p2 = n > 2 ? bits[2] : zero, p3 = n > 3 ? bits[3] : zero;
    const Word low[3] = {p1 | p0, p1, p1 & p0};     // low two bits above 0, 1, 2
    const Word high[3] = {p3 | p2, p3, p3 & p2};    // high two bits above 0, 1, 2
    const Word equal[4] = {~high[0], high[0] & ~high[1], high[1] & ~high[2], high[2]};
    for (int a = 0; a < 4; a++) {
        const Word above = a < 3 ? high[a] : zero;
        for (int b = 0; b < 3; b++) over[4 * a + b] = or_and(above, equal[a], low[b]);
        over[4 * a + 3] = above;
    }
}

static inline Word nibble_equals(const Word* over, int a) { return a ? over[a - 1] & ~over[a] : ~over[0]; }

static void predicates(const BitsliceModel& model, int batch, const void* planes, void* words) {
    const Word* of_columns = static_cast<const Word*>(planes);
    Word* to = static_cast<Word*>(words);
    const uint8_t* low = model.low + model.batch_low[batch];
    Word over[4][16];  // the nibbles of the ranks, lowest first
    Word missing = {};
    int column = -1, n_bits = 0;
    for (int64_t s = model.batch_segments[batch]; s < model.batch_segments[batch + 1]; s++) {
        const Segment segment = model.segments[s];
        if (segment.column != column) {
            column = segment.column;
            n_bits = model.ranks.n_bits[column];
            const Word* bits = of_columns + model.ranks.plane_offsets[column];
            for (int nibble = 0; nibble * 4 < n_bits; nibble++) nibble_above(bits + nibble * 4, n_bits - nibble * 4, over[nibble]);
            if (model.ranks.marks_missing[column]) missing = bits[n_bits];
        }
        // The rank's bits above the lowest four, against the segment's.
        Word above = {}, equal = ~Word{};
        for (int nibble = 1; nibble * 4 < n_bits; nibble++) {
            const int a = segment.high >> (4 * (nibble - 1)) & 15;
            const Word same = nibble_equals(over[nibble], a);
            above = or_and(over[nibble][a], same, above);
            equal &= same;
        }
        if (segment.nan_left) {
            above &= ~missing;
            equal &= ~missing;
        }
        for (int i = 0; i < segment.count; i++) *to++ = or_and(above, equal, over[0][*low++]);
    }
}

static inline Word exit_bit(const Word* s, int n_leaves, int k) {
    Word a = {}, b = {};
    const int step = 2 << k;
    int j = 1 << k;
    for (; j + 3 * step < n_leaves; j += 4 * step) {
        a = xor3(a, s[j], s[j + step]);
        b = xor3(b, s[j + 2 * step], s[j + 3 * step]);
    }
    for (; j < n_leaves; j += step) a ^= s[j];
    return a ^ b;
}

// Byte r * sizeof(Word) + i of the result holds the bits of document 8 i + r: see Bitslice::order.
static inline void exchange(Word& a, Word& b, int shift, Word mask) {
    const Word low = select(mask, a, b << shift), high = select(mask, a >> shift, b);
    a = low;
    b = high;
}

template <int n_bits> static inline void planes_to_bytes(const Word* plane, Word* leaf) {
    Word p[8] = {};
    for (int k = 0; k < n_bits; k++) p[k] = plane[k];
    const Word m1 = constant(0x55), m2 = constant(0x33), m4 = constant(0x0f);
    for (int k = 0; k < n_bits; k += 2) exchange(p[k], p[k + 1], 1, m1);
    for (int k = 0; k < n_bits; k += 4)
        for (int i = 0; i < 2; i++) exchange(p[k + i], p[k + 2 + i], 2, m2);
    for (int i = 0; i < 4; i++) exchange(p[i], p[4 + i], 4, m4);
    // p[b0 + 2 b1 + 4 b2] holds the documents 8 i + b0 + 2 b1 + 4 b2.
    for (int r = 0; r < 8; r++) leaf[r] = p[r];
}

static void to_bytes(const Word* plane, int n_bits, Word* leaf) {
    if (n_bits <= 4)
        planes_to_bytes<4>(plane, leaf);
    else if (n_bits <= 6)
        planes_to_bytes<6>(plane, leaf);
    else
        planes_to_bytes<8>(plane, leaf);
}

static void run_group(const Node* node, const Node* end, const Word* words, Word* s) {
    for (; node != end; node++) s[node->slot] = or_and(s[node->end], s[node->first], words[node->predicate]);
}

static void programs(const BitsliceModel& model, int batch, const void* words, void* slots, void* leaves) {
    Word* s = static_cast<Word*>(slots);
    char* leaf = static_cast<char*>(leaves);
    s[0] = Word{};
    const int last = model.batch_offsets[batch + 1];
    for (int t = model.batch_offsets[batch]; t < last; t += model.trees_merged) {
        const int end = t + model.trees_merged < last ? t + model.trees_merged : last;
        for (int i = t; i < end; i++) s[model.tree_slot[i]] = ~Word{};
        const int64_t* nodes = model.group_nodes + t / model.trees_merged;
        run_group(model.nodes + nodes[0], model.nodes + nodes[1], static_cast<const Word*>(words), s);
        for (int i = t; i < end; i++, leaf += model.leaf_bytes * kWordDocuments) {
            const int n_leaves = model.tree_leaves[i];
            Word plane[16] = {};
            int n_bits = 0;
            for (; 1 << n_bits < n_leaves; n_bits++) plane[n_bits] = exit_bit(s + model.tree_slot[i], n_leaves, n_bits);
            if (model.leaf_bytes == 1) {
                to_bytes(plane, n_bits, reinterpret_cast<Word*>(leaf));
            } else {
                Word low[8], high[8];
                to_bytes(plane, 8, low);
                to_bytes(plane + 8, 8, high);
                uint16_t* to = reinterpret_cast<uint16_t*>(leaf);
                for (int d = 0; d < kWordDocuments; d++)
                    to[d] = static_cast<uint16_t>(reinterpret_cast<uint8_t*>(low)[d] | reinterpret_cast<uint8_t*>(high)[d] << 8);
            }
        }
    }
}
