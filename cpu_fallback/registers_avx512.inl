// AVX-512's registers of table words: 16-bit words of up to 64 leaves, 32-bit words of up to 32.
using Register = __m512i;
static constexpr int table_word_bytes(int n_leaves, int) { return n_leaves <= 32 ? 4 : 2; }
static constexpr int kBlock = 64;               // documents whose sums stay in registers

static inline Register load_register(const void* at) { return _mm512_load_si512(at); }
static inline void store_register(void* at, Register r) { _mm512_store_si512(at, r); }

template <int w> static inline Register unpack_low(Register a, Register b) {
    return w == 2 ? _mm512_unpacklo_epi16(a, b) : _mm512_unpacklo_epi32(a, b);
}
template <int w> static inline Register unpack_high(Register a, Register b) {
    return w == 2 ? _mm512_unpackhi_epi16(a, b) : _mm512_unpackhi_epi32(a, b);
}

static inline Register add(double, Register a, Register b) { return _mm512_castpd_si512(_mm512_add_pd(_mm512_castsi512_pd(a), _mm512_castsi512_pd(b))); }
static inline Register add(float, Register a, Register b) { return _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b))); }
static inline Register add(int32_t, Register a, Register b) { return _mm512_add_epi32(a, b); }

template <int word, int n_leaves, int n_words> struct Tree {
    static_assert(word * n_leaves == 128, "a table is two registers");
    Register low[n_words], high[n_words];

    explicit Tree(const uint8_t* tables) {
        for (int p = 0; p < n_words; p++) {
            low[p] = _mm512_load_si512(tables + 64 * word * p);
            high[p] = _mm512_load_si512(tables + 64 * word * p + 64);
        }
    }
    // A look-up asks only for the low bits of a word: every word-th leaf is shifted there, none is widened.
    static Register index(const uint8_t* leaf, int first) {
        const Register leaves = _mm512_load_si512(leaf);
        return word == 2 ? _mm512_srli_epi16(leaves, 8 * first) : _mm512_srli_epi32(leaves, 8 * first);
    }
    Register look_up(int p, Register index) const {
        return word == 2 ? _mm512_permutex2var_epi16(low[p], index, high[p]) : _mm512_permutex2var_epi32(low[p], index, high[p]);
    }
};
