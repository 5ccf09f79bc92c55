// Folding (Gopal and others, "Fast CRC computation for generic polynomials using PCLMULQDQ", Intel 2009), bit-reflected:
//
//   lanes = the first four blocks of 16 bytes, the CRC register added to the first
//   for each 64 bytes more: lane k = low(lane k) * x^(512 + 32) + high(lane k) * x^(512 - 32) + block k   (modulo the polynomial)
//   then: lane 1 += lane 0 * x^128, lane 2 += lane 1 * x^128, lane 3 += lane 2 * x^128
#include "readers/crc32.hpp"

#include "driver/threads.hpp"

#ifdef GPUQS_X86
#include <immintrin.h>
#endif

namespace gpuqs {

#ifdef GPUQS_X86

namespace {

constexpr int64_t kBlock = 64;

// Moves a lane by the distance for which `by` holds the two powers of x, and adds a block.
__attribute__((target("pclmul,sse4.1"))) inline __m128i moved(__m128i lane, __m128i by, __m128i block) {
    const __m128i low = _mm_clmulepi64_si128(lane, by, 0x00), high = _mm_clmulepi64_si128(lane, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), block);
}

__attribute__((target("pclmul,sse4.1"))) int64_t fold(const uint8_t* data, int64_t n, uint32_t crc, uint8_t* folded) {
    const __m128i by_512 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4), by_128 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    const auto block = [&](int64_t at, int k) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(data + at) + k); };
    __m128i lane[4];
    for (int k = 0; k < 4; k++) lane[k] = block(0, k);
    lane[0] = _mm_xor_si128(lane[0], _mm_cvtsi32_si128(static_cast<int>(crc)));
    int64_t at = kBlock;
    for (; at + kBlock <= n; at += kBlock)
        for (int k = 0; k < 4; k++) lane[k] = moved(lane[k], by_512, block(at, k));
    for (int k = 1; k < 4; k++) lane[k] = moved(lane[k - 1], by_128, lane[k]);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(folded), lane[3]);
    return at;
}

}  // namespace

int64_t fold_crc32(const uint8_t* data, int64_t n, uint32_t crc, uint8_t* folded) {
    const bool can = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    return can && n >= kBlock ? fold(data, n, crc, folded) : 0;
}

#else

int64_t fold_crc32(const uint8_t*, int64_t, uint32_t, uint8_t*) { return 0; }

#endif

void fold_parts(const uint8_t* data, const int64_t* ends, int64_t n_parts, uint32_t crc, FoldedPart* parts, int n_threads) {
    share_out(n_parts, n_threads, [&](int, int64_t p) {
        const int64_t start = p ? ends[p - 1] : 0;
        parts[p].done = fold_crc32(data + start, ends[p] - start, p ? ~uint32_t{0} : crc, parts[p].folded);
    });
}

// A product modulo the polynomial, bit-reflected: the highest bit is x^0.
static uint32_t times(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (; a; a <<= 1, b = b >> 1 ^ (b & 1 ? 0xedb88320 : 0)) product ^= a >> 31 ? b : 0;
    return product;
}

uint32_t crc32_of_both(uint32_t first, uint32_t second, int64_t n) {
    uint32_t moved = first;  // by x^(8 n)
    for (uint32_t power = 1u << (31 - 8); n; n >>= 1, power = times(power, power))
        if (n & 1) moved = times(moved, power);
    return moved ^ second;
}

}  // namespace gpuqs
