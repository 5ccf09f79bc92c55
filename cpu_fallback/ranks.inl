// Rank coding: documents to bit planes, planes[column's first + bit][document].
//
//   for each run of 16 or 128 documents:
//       x[column][document] = documents, feature-major
//       for each column: for each level: answer = not (x <= table[level][answers so far])
//           the answers of level l are bit n_bits - 1 - l of the ranks: store them as plane bits
//
// `Search::levels<n>` is the instruction set's; it searches the first n <= 8 levels in registers.

// Levels beyond the eighth are looked up one document at a time.
static void search_deep(const float* levels, int n_bits, const float* x, int n, uint8_t* planes, int64_t plane_bytes) {
    const float* table = levels;
    for (int level = 0; level < 8; level++) table += level < 4 ? 16 : 1 << level;
    for (int d = 0; d < n; d += 8) {
        int answers[8] = {0};
        for (int level = 0; level < 8; level++)
            for (int k = 0; k < 8; k++) answers[k] |= (planes[(n_bits - 1 - level) * plane_bytes + d / 8] >> k & 1) << level;
        const float* of_level = table;
        for (int level = 8; level < n_bits; of_level += 1 << level, level++) {
            uint8_t bits = 0;
            for (int k = 0; k < 8; k++) {
                const int answer = !(x[d + k] <= of_level[answers[k]]);
                answers[k] |= answer << level;
                bits |= answer << k;
            }
            planes[(n_bits - 1 - level) * plane_bytes + d / 8] = bits;
        }
    }
}

// Ranks of x[0 ... block) to planes[bit * plane_bytes + document / 8].
static void search(const float* levels, int n_bits, const float* x, int block, uint8_t* planes, int64_t plane_bytes) {
    uint8_t* top = planes + (n_bits - 1) * plane_bytes;
    switch (n_bits) {
        case 0: return;
        case 1: return Search::levels<1>(levels, x, block, top, plane_bytes);
        case 2: return Search::levels<2>(levels, x, block, top, plane_bytes);
        case 3: return Search::levels<3>(levels, x, block, top, plane_bytes);
        case 4: return Search::levels<4>(levels, x, block, top, plane_bytes);
        case 5: return Search::levels<5>(levels, x, block, top, plane_bytes);
        case 6: return Search::levels<6>(levels, x, block, top, plane_bytes);
        case 7: return Search::levels<7>(levels, x, block, top, plane_bytes);
        case 8: return Search::levels<8>(levels, x, block, top, plane_bytes);
        default:
            Search::levels<8>(levels, x, block, top, plane_bytes);
            return search_deep(levels, n_bits, x, block, planes, plane_bytes);
    }
}

static inline float next_float(float x, int direction) {  // of finite x, never past zero's sign
    int32_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    bits += (bits < 0) == (direction < 0) ? 1 : -1;
    __builtin_memcpy(&x, &bits, sizeof bits);
    return x;
}

// float64 documents: rank the float32 above x and the one below. Where they differ, thresholds share x's gap between
// two float32 and the float64 themselves decide.
static void search_double(const RankModel& model, int column, const double* x, int block, uint8_t* planes, int64_t plane_bytes) {
    const float* levels = model.levels + model.level_offsets[column];
    const int n_bits = model.n_bits[column];
    alignas(64) float above[kRankBlock], below[kRankBlock];
    bool exact = true;
    for (int d = 0; d < block; d++) {
        const float near = static_cast<float>(x[d]);
        const double back = near;
        above[d] = back < x[d] ? (near == 0 ? 0x1p-149f : next_float(near, 1)) : near;
        below[d] = back > x[d] ? (near == 0 ? -0x1p-149f : next_float(near, -1)) : near;
        exact &= back == x[d] || x[d] != x[d];
    }
    search(levels, n_bits, above, block, planes, plane_bytes);
    if (exact) return;
    alignas(64) uint8_t other[16 * kRankBlock / 8];
    search(levels, n_bits, below, block, other, kRankBlock / 8);
    const double* threshold = model.threshold + model.offsets[column];
    for (int byte = 0; byte < block / 8; byte++) {
        uint8_t differ = 0;
        for (int bit = 0; bit < n_bits; bit++) differ |= planes[bit * plane_bytes + byte] ^ other[bit * (kRankBlock / 8) + byte];
        for (; differ; differ &= differ - 1) {
            const int k = __builtin_ctz(differ);
            int rank = 0;
            for (int bit = 0; bit < n_bits; bit++) rank |= (planes[bit * plane_bytes + byte] >> k & 1) << bit;
            while (rank > 0 && x[byte * 8 + k] <= threshold[rank - 1]) rank--;
            for (int bit = 0; bit < n_bits; bit++) {
                uint8_t& at = planes[bit * plane_bytes + byte];
                at = static_cast<uint8_t>((at & ~(1 << k)) | (rank >> bit & 1) << k);
            }
        }
    }
}

static void mark_missing(const double* x, int block, uint8_t* plane) {
    for (int d = 0; d < block; d += 8) {
        uint8_t bits = 0;
        for (int k = 0; k < 8; k++) bits |= static_cast<uint8_t>(x[d + k] != x[d + k]) << k;
        plane[d / 8] = bits;
    }
}

// Ranks of documents [first, first + n) to planes[plane][plane_bytes]; x is scratch, [columns][rank_block(n)] of double.
static void rank(const RankModel& model, const Documents& documents, int64_t first, int n, void* x, uint8_t* planes,
                 int64_t plane_bytes) {
    const bool is_double = documents.is_double && !model.single;
    const int block = rank_block(n);
    for (int d = 0; d < n; d += block) {
        const int rows = n - d < block ? n - d : block;
        if (is_double)
            load(documents, first + d, rows, model.columns, block, static_cast<double*>(x));
        else
            load(documents, first + d, rows, model.columns, block, static_cast<float*>(x));
        for (int c = 0; c < model.columns.n; c++) {
            uint8_t* to = planes + model.plane_offsets[c] * plane_bytes + d / 8;
            uint8_t* mark = to + model.n_bits[c] * plane_bytes;
            if (is_double) {
                const double* values = static_cast<double*>(x) + c * block;
                search_double(model, c, values, block, to, plane_bytes);
                if (model.marks_missing[c]) mark_missing(values, block, mark);
            } else {
                const float* values = static_cast<float*>(x) + c * block;
                search(model.levels + model.level_offsets[c], model.n_bits[c], values, block, to, plane_bytes);
                if (model.marks_missing[c]) Search::missing(values, block, mark);
            }
        }
    }
}
