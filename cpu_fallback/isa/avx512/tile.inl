// Reads four values at each of two places, as float32: a register holds eight doubles, and one instruction rounds them down.
#pragma once
#include <immintrin.h>

#include <cstdint>

#include "generic/readings.inl"

namespace gpuqs {
namespace {

// Bits are set in lanes where a value differs from the float32 that it becomes.
using Lossy = __m512i;
inline bool any(Lossy lossy) { return _mm512_test_epi64_mask(lossy, lossy) != 0; }

struct RoundDown {
    RoundDown() {}  // each conversion states its own rounding
};

inline __m512d both(const char* low, const char* high) {
    const __m512d first = _mm512_castpd256_pd512(_mm256_loadu_pd(reinterpret_cast<const double*>(low)));
    return _mm512_insertf64x4(first, _mm256_loadu_pd(reinterpret_cast<const double*>(high)), 1);
}

inline __m256 read_fours(Nearest, const char* low, const char* high, Lossy&) { return _mm512_cvtpd_ps(both(low, high)); }

inline __m256 round_down(__m512d x) { return _mm512_cvt_roundpd_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); }

inline __m256 read_fours(BelowUnchecked, const char* low, const char* high, Lossy&) { return round_down(both(low, high)); }

inline __m256 read_fours(Below, const char* low, const char* high, Lossy& lossy) {
    const __m512d x = both(low, high);
    const __m256 below = round_down(x);
    const __m512i back = _mm512_castpd_si512(_mm512_cvtps_pd(below));
    lossy = _mm512_ternarylogic_epi64(lossy, back, _mm512_castpd_si512(x), 0xf6);  // lossy | (back ^ x)
    return below;
}

}  // namespace
}  // namespace gpuqs

#include "isa/avx2/transposed_tiles.inl"
