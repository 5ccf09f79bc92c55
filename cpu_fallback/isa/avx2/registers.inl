// AVX2's registers of bytes, for thirty-two documents.
#pragma once
#include <immintrin.h>

#include <cstdint>

#include "generic/words.inl"

namespace gpuqs {
namespace {

using Word32 = uint64_t __attribute__((vector_size(32)));

using Register = __m256i;
constexpr int kRegisterBytes = sizeof(Register);

inline Register load_register(const void* at) { return _mm256_load_si256(static_cast<const Register*>(at)); }
inline void store_register(void* at, Register r) { _mm256_store_si256(static_cast<Register*>(at), r); }
inline Register all_bytes(int byte) { return _mm256_set1_epi8(static_cast<char>(byte)); }
inline Register all_lanes(const void* at) { return _mm256_broadcastsi128_si256(_mm_load_si128(static_cast<const __m128i*>(at))); }
inline Register shuffle(Register table, Register index) { return _mm256_shuffle_epi8(table, index); }
inline Register add_saturated(Register a, Register b) { return _mm256_adds_epu8(a, b); }
inline Register exclusive_or(Register a, Register b) { return _mm256_xor_si256(a, b); }
inline Register either(Register a, Register b) { return _mm256_or_si256(a, b); }

template <int w> inline Register unpack_low(Register a, Register b) {
    return w == 1 ? _mm256_unpacklo_epi8(a, b) : w == 2 ? _mm256_unpacklo_epi16(a, b) : _mm256_unpacklo_epi32(a, b);
}
template <int w> inline Register unpack_high(Register a, Register b) {
    return w == 1 ? _mm256_unpackhi_epi8(a, b) : w == 2 ? _mm256_unpackhi_epi16(a, b) : _mm256_unpackhi_epi32(a, b);
}

inline Register add(double, Register a, Register b) {
    return _mm256_castpd_si256(_mm256_add_pd(_mm256_castsi256_pd(a), _mm256_castsi256_pd(b)));
}
inline Register add(float, Register a, Register b) {
    return _mm256_castps_si256(_mm256_add_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b)));
}
inline Register add(int32_t, Register a, Register b) { return _mm256_add_epi32(a, b); }

}  // namespace
}  // namespace gpuqs
