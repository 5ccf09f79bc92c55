// SSE4.2's registers of bytes, for sixteen documents.
#pragma once
#include <nmmintrin.h>

#include <cstdint>

#include "generic/words.inl"

namespace gpuqs {
namespace {

using Register = __m128i;
constexpr int kRegisterBytes = sizeof(Register);

inline Register load_register(const void* at) { return _mm_load_si128(static_cast<const Register*>(at)); }
inline void store_register(void* at, Register r) { _mm_store_si128(static_cast<Register*>(at), r); }
inline Register all_bytes(int byte) { return _mm_set1_epi8(static_cast<char>(byte)); }
inline Register all_lanes(const void* at) { return load_register(at); }
inline Register shuffle(Register table, Register index) { return _mm_shuffle_epi8(table, index); }
inline Register add_saturated(Register a, Register b) { return _mm_adds_epu8(a, b); }
inline Register exclusive_or(Register a, Register b) { return _mm_xor_si128(a, b); }
inline Register either(Register a, Register b) { return _mm_or_si128(a, b); }

template <int w> inline Register unpack_low(Register a, Register b) {
    return w == 1 ? _mm_unpacklo_epi8(a, b) : w == 2 ? _mm_unpacklo_epi16(a, b) : _mm_unpacklo_epi32(a, b);
}
template <int w> inline Register unpack_high(Register a, Register b) {
    return w == 1 ? _mm_unpackhi_epi8(a, b) : w == 2 ? _mm_unpackhi_epi16(a, b) : _mm_unpackhi_epi32(a, b);
}

inline Register add(double, Register a, Register b) { return _mm_castpd_si128(_mm_add_pd(_mm_castsi128_pd(a), _mm_castsi128_pd(b))); }
inline Register add(float, Register a, Register b) { return _mm_castps_si128(_mm_add_ps(_mm_castsi128_ps(a), _mm_castsi128_ps(b))); }
inline Register add(int32_t, Register a, Register b) { return _mm_add_epi32(a, b); }

}  // namespace
}  // namespace gpuqs
