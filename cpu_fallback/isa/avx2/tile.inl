// Reads four values at each of two places, as float32.
#pragma once
#include <immintrin.h>

#include <cstdint>

#include "generic/readings.inl"

namespace gpuqs {
namespace {

// Bits are set in lanes where a value differs from the float32 that it becomes.
using Lossy = __m256d;
inline bool any(Lossy lossy) { return !_mm256_testz_si256(_mm256_castpd_si256(lossy), _mm256_castpd_si256(lossy)); }

// While this object lives, conversions in its thread round down: AVX2 conversions have no rounding mode of their own.
class RoundDown {
public:
    RoundDown() : before_(_mm_getcsr()) { _mm_setcsr((before_ & ~_MM_ROUND_MASK) | _MM_ROUND_DOWN); }
    ~RoundDown() { _mm_setcsr(before_); }
    RoundDown(const RoundDown&) = delete;
    RoundDown& operator=(const RoundDown&) = delete;

private:
    const unsigned before_;
};

inline __m128 read_four(const char* at) { return _mm256_cvtpd_ps(_mm256_loadu_pd(reinterpret_cast<const double*>(at))); }

inline __m256 read_fours(Nearest, const char* low, const char* high, Lossy&) {
    return _mm256_set_m128(read_four(high), read_four(low));
}

inline __m256 read_fours(BelowUnchecked, const char* low, const char* high, Lossy& lossy) {
    return read_fours(Nearest(), low, high, lossy);
}

inline __m256 read_fours(Below, const char* at_low, const char* at_high, Lossy& lossy) {
    const __m256d low = _mm256_loadu_pd(reinterpret_cast<const double*>(at_low));
    const __m256d high = _mm256_loadu_pd(reinterpret_cast<const double*>(at_high));
    const __m128 below_low = _mm256_cvtpd_ps(low), below_high = _mm256_cvtpd_ps(high);
    lossy = _mm256_or_pd(lossy, _mm256_xor_pd(low, _mm256_cvtps_pd(below_low)));
    lossy = _mm256_or_pd(lossy, _mm256_xor_pd(high, _mm256_cvtps_pd(below_high)));
    return _mm256_set_m128(below_high, below_low);
}

}  // namespace
}  // namespace gpuqs

#include "isa/avx2/transposed_tiles.inl"
