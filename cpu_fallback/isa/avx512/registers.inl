// AVX-512's registers: words of 512 documents with three-input logic, and parts of table values.
#pragma once
#include <immintrin.h>

#include <cstdint>

#include "generic/words.inl"

namespace gpuqs {
namespace {

using Word32 = uint64_t __attribute__((vector_size(32)));
using Word64 = uint64_t __attribute__((vector_size(64)));

// Truth tables of three-input logic: bit 4 a + 2 b + c is the result.
constexpr int kOrAnd = 0xf8, kSelect = 0xca, kXor3 = 0x96;
inline Word64 or_and(Word64 a, Word64 b, Word64 c) {
    return (Word64)_mm512_ternarylogic_epi64((__m512i)a, (__m512i)b, (__m512i)c, kOrAnd);
}
inline Word64 select(Word64 m, Word64 a, Word64 b) {
    return (Word64)_mm512_ternarylogic_epi64((__m512i)m, (__m512i)a, (__m512i)b, kSelect);
}
inline Word64 xor3(Word64 a, Word64 b, Word64 c) {
    return (Word64)_mm512_ternarylogic_epi64((__m512i)a, (__m512i)b, (__m512i)c, kXor3);
}

using Register = __m512i;
constexpr int kRegisterBytes = sizeof(Register);

inline Register load_register(const void* at) { return _mm512_load_si512(at); }
inline void store_register(void* at, Register r) { _mm512_store_si512(at, r); }

template <int w> inline Register unpack_low(Register a, Register b) {
    return w == 2 ? _mm512_unpacklo_epi16(a, b) : _mm512_unpacklo_epi32(a, b);
}
template <int w> inline Register unpack_high(Register a, Register b) {
    return w == 2 ? _mm512_unpackhi_epi16(a, b) : _mm512_unpackhi_epi32(a, b);
}

inline Register add(double, Register a, Register b) {
    return _mm512_castpd_si512(_mm512_add_pd(_mm512_castsi512_pd(a), _mm512_castsi512_pd(b)));
}
inline Register add(float, Register a, Register b) {
    return _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b)));
}
inline Register add(int32_t, Register a, Register b) { return _mm512_add_epi32(a, b); }

}  // namespace
}  // namespace gpuqs
