// SSE4.2's registers of bytes: sixteen documents.
using Register = __m128i;

static inline Register load_register(const void* at) { return _mm_load_si128(static_cast<const Register*>(at)); }
static inline void store_register(void* at, Register r) { _mm_store_si128(static_cast<Register*>(at), r); }
static inline Register all_bytes(int byte) { return _mm_set1_epi8(static_cast<char>(byte)); }
static inline Register all_lanes(const void* at) { return load_register(at); }
static inline Register shuffle(Register table, Register index) { return _mm_shuffle_epi8(table, index); }
static inline Register add_saturated(Register a, Register b) { return _mm_adds_epu8(a, b); }
static inline Register exclusive_or(Register a, Register b) { return _mm_xor_si128(a, b); }
static inline Register either(Register a, Register b) { return _mm_or_si128(a, b); }

template <int w> static inline Register unpack_low(Register a, Register b) {
    return w == 1 ? _mm_unpacklo_epi8(a, b) : w == 2 ? _mm_unpacklo_epi16(a, b) : _mm_unpacklo_epi32(a, b);
}
template <int w> static inline Register unpack_high(Register a, Register b) {
    return w == 1 ? _mm_unpackhi_epi8(a, b) : w == 2 ? _mm_unpackhi_epi16(a, b) : _mm_unpackhi_epi32(a, b);
}

static inline Register add(double, Register a, Register b) { return _mm_castpd_si128(_mm_add_pd(_mm_castsi128_pd(a), _mm_castsi128_pd(b))); }
static inline Register add(float, Register a, Register b) { return _mm_castps_si128(_mm_add_ps(_mm_castsi128_ps(a), _mm_castsi128_ps(b))); }
static inline Register add(int32_t, Register a, Register b) { return _mm_add_epi32(a, b); }
