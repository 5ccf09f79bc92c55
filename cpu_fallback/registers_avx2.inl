// AVX2's registers of bytes: thirty-two documents.
using Register = __m256i;

static inline Register load_register(const void* at) { return _mm256_load_si256(static_cast<const Register*>(at)); }
static inline void store_register(void* at, Register r) { _mm256_store_si256(static_cast<Register*>(at), r); }
static inline Register all_bytes(int byte) { return _mm256_set1_epi8(static_cast<char>(byte)); }
static inline Register all_lanes(const void* at) { return _mm256_broadcastsi128_si256(_mm_load_si128(static_cast<const __m128i*>(at))); }
static inline Register shuffle(Register table, Register index) { return _mm256_shuffle_epi8(table, index); }
static inline Register add_saturated(Register a, Register b) { return _mm256_adds_epu8(a, b); }
static inline Register exclusive_or(Register a, Register b) { return _mm256_xor_si256(a, b); }
static inline Register either(Register a, Register b) { return _mm256_or_si256(a, b); }

template <int w> static inline Register unpack_low(Register a, Register b) {
    return w == 1 ? _mm256_unpacklo_epi8(a, b) : w == 2 ? _mm256_unpacklo_epi16(a, b) : _mm256_unpacklo_epi32(a, b);
}
template <int w> static inline Register unpack_high(Register a, Register b) {
    return w == 1 ? _mm256_unpackhi_epi8(a, b) : w == 2 ? _mm256_unpackhi_epi16(a, b) : _mm256_unpackhi_epi32(a, b);
}

static inline Register add(double, Register a, Register b) { return _mm256_castpd_si256(_mm256_add_pd(_mm256_castsi256_pd(a), _mm256_castsi256_pd(b))); }
static inline Register add(float, Register a, Register b) { return _mm256_castps_si256(_mm256_add_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b))); }
static inline Register add(int32_t, Register a, Register b) { return _mm256_add_epi32(a, b); }
