// add_values by tables in registers: a leaf value is two or four 16-bit words, each looked up by one permute for
// thirty-two documents; interleaving the words gives the values, which are added tree by tree.
struct Tables {
    // The words of one tree: table[plane][leaf].
    template <int n_planes, int n_leaves> struct Tree {
        __m512i low[n_planes], high[n_planes];

        explicit Tree(const uint16_t* table) {
            for (int p = 0; p < n_planes; p++) {
                low[p] = _mm512_loadu_si512(table + 64 * p);
                if (n_leaves > 32) high[p] = _mm512_loadu_si512(table + 64 * p + 32);
            }
        }
        __m512i look_up(int p, __m512i leaf) const {
            return n_leaves > 32 ? _mm512_permutex2var_epi16(low[p], leaf, high[p]) : _mm512_permutexvar_epi16(leaf, low[p]);
        }
    };

    static __m512i add(double, __m512i a, __m512i b) { return _mm512_castpd_si512(_mm512_add_pd(_mm512_castsi512_pd(a), _mm512_castsi512_pd(b))); }
    static __m512i add(float, __m512i a, __m512i b) { return _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b))); }
    static __m512i add(int32_t, __m512i a, __m512i b) { return _mm512_add_epi32(a, b); }

    // Interleaving works in lanes of 128 bits: where document d of thirty-two ends up among the values.
    template <class Value> static int place(int d) {
        constexpr int lane = 16 / sizeof(Value);  // values a lane
        return d % 8 / lane * (64 / sizeof(Value)) + d / 8 * lane + d % lane;
    }

    template <class Value, int n_leaves>
    static void add_block(const uint16_t* tables, int n_trees, const uint8_t* leaf, int stride, Value* sums) {
        constexpr int n_planes = sizeof(Value) / 2, n_registers = n_planes;
        alignas(64) Value placed[64];
        __m512i sum[2][n_registers];
        for (int d = 0; d < 64; d++) placed[d / 32 * 32 + place<Value>(d % 32)] = sums[d];
        for (int r = 0; r < 2 * n_registers; r++) sum[r / n_registers][r % n_registers] = _mm512_load_si512(reinterpret_cast<__m512i*>(placed) + r);
        for (int t = 0; t < n_trees; t++, tables += 64 * n_planes, leaf += stride) {
            const Tree<n_planes, n_leaves> tree(tables);
            for (int half = 0; half < 2; half++) {
                const __m512i at = _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(leaf + 32 * half)));
                __m512i word[4], pair[4];
                for (int p = 0; p < n_planes; p++) word[p] = tree.look_up(p, at);
                for (int p = 0; p < n_planes; p += 2) {
                    pair[p] = _mm512_unpacklo_epi16(word[p], word[p + 1]);
                    pair[p + 1] = _mm512_unpackhi_epi16(word[p], word[p + 1]);
                }
                for (int r = 0; r < n_registers; r++) {
                    __m512i value = pair[r];
                    if (n_planes == 4)
                        value = r % 2 ? _mm512_unpackhi_epi32(pair[r / 2], pair[r / 2 + 2]) : _mm512_unpacklo_epi32(pair[r / 2], pair[r / 2 + 2]);
                    sum[half][r] = add(Value(), sum[half][r], value);
                }
            }
        }
        for (int r = 0; r < 2 * n_registers; r++) _mm512_store_si512(reinterpret_cast<__m512i*>(placed) + r, sum[r / n_registers][r % n_registers]);
        for (int d = 0; d < 64; d++) sums[d] = placed[d / 32 * 32 + place<Value>(d % 32)];
    }

    static constexpr bool available = true;

    template <class Value> static void add_trees(const LeafValues& values, int first, int n_trees, const uint8_t* leaf, int n, int stride, Value* sums) {
        const uint16_t* tables = values.tables + static_cast<int64_t>(first) * 64 * (sizeof(Value) / 2);
        for (int d = 0; d < n; d += 64)
            if (values.table_leaves <= 32)
                add_block<Value, 32>(tables, n_trees, leaf + d, stride, sums + d);
            else
                add_block<Value, 64>(tables, n_trees, leaf + d, stride, sums + d);
    }
};
