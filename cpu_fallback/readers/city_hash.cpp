#include "readers/city_hash.hpp"

#include <cstring>

namespace gpuqs {
namespace {

// Named as in CityHash, to be compared with it: hash_len_16 is its HashLen16.
constexpr uint64_t k0 = 0xc3a5c85c97cb3127, k1 = 0xb492b66fbe98f273, k2 = 0x9ae16a3b2f90404f, k3 = 0xc949d7c7509e6557;

template <class Word>
uint64_t fetch(const char* at) {  // little-endian, at any alignment
    Word value;
    std::memcpy(&value, at, sizeof value);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    value = sizeof value == 8 ? __builtin_bswap64(value) : __builtin_bswap32(static_cast<uint32_t>(value));
#endif
    return value;
}
uint64_t fetch64(const char* at) { return fetch<uint64_t>(at); }
uint64_t fetch32(const char* at) { return fetch<uint32_t>(at); }

uint64_t rotate(uint64_t value, uint64_t by) { return by == 0 ? value : value >> by | value << (64 - by); }
uint64_t shift_mix(uint64_t value) { return value ^ value >> 47; }

uint64_t hash_len_16(uint64_t u, uint64_t v) {
    constexpr uint64_t kMul = 0x9ddfea08eb382d69;
    const uint64_t a = shift_mix((u ^ v) * kMul);
    return shift_mix((v ^ a) * kMul) * kMul;
}

struct Pair { uint64_t first, second; };

// WeakHashLen32WithSeeds.
Pair weak_hash_len_32(const char* text, uint64_t a, uint64_t b) {
    const uint64_t x = fetch64(text + 8), y = fetch64(text + 16), z = fetch64(text + 24);
    a += fetch64(text);
    b = rotate(b + a + z, 21);
    const uint64_t c = a;
    a += x + y;
    return {a + z, b + rotate(a, 44) + c};
}

uint64_t hash_len_0_to_16(const char* text, uint64_t n) {
    if (n > 8) {
        const uint64_t a = fetch64(text), b = fetch64(text + n - 8);
        return hash_len_16(a, rotate(b + n, n)) ^ b;
    }
    if (n >= 4) return hash_len_16(n + (fetch32(text) << 3), fetch32(text + n - 4));
    if (n == 0) return k2;
    const auto byte = [text](uint64_t at) { return static_cast<uint64_t>(static_cast<unsigned char>(text[at])); };
    const uint64_t y = byte(0) + (byte(n >> 1) << 8), z = n + (byte(n - 1) << 2);
    return shift_mix(y * k2 ^ z * k3) * k2;
}

uint64_t hash_len_17_to_32(const char* text, uint64_t n) {
    const uint64_t a = fetch64(text) * k1, b = fetch64(text + 8), c = fetch64(text + n - 8) * k2, d = fetch64(text + n - 16) * k0;
    return hash_len_16(rotate(a - b, 43) + rotate(c, 30) + d, a + rotate(b ^ k3, 20) - c + n);
}

// What HashLen33to64 does twice.
Pair of_half(uint64_t a, const char* from, const char* to, uint64_t z) {
    const uint64_t b = rotate(a + z, 52);
    uint64_t c = rotate(a, 37);
    a += fetch64(from);
    c += rotate(a, 7);
    a += fetch64(to);
    return {a + z, b + rotate(a, 31) + c};
}

uint64_t hash_len_33_to_64(const char* text, uint64_t n) {
    const Pair v = of_half(fetch64(text) + (n + fetch64(text + n - 16)) * k0, text + 8, text + 16, fetch64(text + 24));
    const Pair w = of_half(fetch64(text + 16) + fetch64(text + n - 32), text + n - 24, text + n - 16, fetch64(text + n - 8));
    return shift_mix(shift_mix((v.first + w.second) * k2 + (w.first + v.second) * k0) * k0 + v.second) * k2;
}

// What CityHash64 does itself.
uint64_t hash_len_over_64(const char* text, uint64_t n) {
    uint64_t x = fetch64(text), y = fetch64(text + n - 16) ^ k1, z = fetch64(text + n - 56) ^ k0;
    Pair v = weak_hash_len_32(text + n - 64, n, y), w = weak_hash_len_32(text + n - 32, n * k1, k0);
    z += shift_mix(v.second) * k1;
    x = rotate(z + x, 39) * k1;
    y = rotate(y, 33) * k1;
    for (const char *at = text, *end = text + (n - 1) / 64 * 64; at < end; at += 64) {
        x = rotate(x + y + v.first + fetch64(at + 16), 37) * k1 ^ w.second;
        y = rotate(y + v.second + fetch64(at + 48), 42) * k1 ^ v.first;
        z = rotate(z ^ w.first, 33);
        v = weak_hash_len_32(at, v.second * k1, x + w.first);
        w = weak_hash_len_32(at + 32, z + w.second, y);
        const uint64_t last = x;
        x = z, z = last;
    }
    return hash_len_16(hash_len_16(v.first, w.first) + shift_mix(y) * k1 + z, hash_len_16(v.second, w.second) + x);
}

}  // namespace

uint64_t city_hash_64(const char* text, uint64_t n) {
    if (n <= 16) return hash_len_0_to_16(text, n);
    if (n <= 32) return hash_len_17_to_32(text, n);
    return n <= 64 ? hash_len_33_to_64(text, n) : hash_len_over_64(text, n);
}

}  // namespace gpuqs
