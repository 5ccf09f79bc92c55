#include "readers/city_hash.hpp"

#include <cstring>

namespace gpuqs {
namespace {

// The algorithm's own constants.
constexpr uint64_t K0 = 0xc3a5c85c97cb3127, K1 = 0xb492b66fbe98f273, K2 = 0x9ae16a3b2f90404f, K3 = 0xc949d7c7509e6557;

template <class Word = uint64_t>
uint64_t word(const char* at) {  // little-endian, at any alignment
    Word value;
    std::memcpy(&value, at, sizeof value);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    value = sizeof value == 8 ? __builtin_bswap64(value) : __builtin_bswap32(static_cast<uint32_t>(value));
#endif
    return value;
}

uint64_t turned(uint64_t value, uint64_t by) { return by == 0 ? value : value >> by | value << (64 - by); }
uint64_t mixed(uint64_t value) { return value ^ value >> 47; }

uint64_t of_two(uint64_t u, uint64_t v) {
    constexpr uint64_t FACTOR = 0x9ddfea08eb382d69;
    const uint64_t a = mixed((u ^ v) * FACTOR);
    return mixed((v ^ a) * FACTOR) * FACTOR;
}

struct Pair { uint64_t first, second; };

// A weak hash of 32 bytes with two seeds.
Pair of_32(const char* text, uint64_t a, uint64_t b) {
    const uint64_t x = word(text + 8), y = word(text + 16), z = word(text + 24);
    a += word(text);
    b = turned(b + a + z, 21);
    const uint64_t c = a;
    a += x + y;
    return {a + z, b + turned(a, 44) + c};
}

uint64_t up_to_16(const char* text, uint64_t n) {
    if (n > 8) {
        const uint64_t a = word(text), b = word(text + n - 8);
        return of_two(a, turned(b + n, n)) ^ b;
    }
    if (n >= 4) return of_two(n + (word<uint32_t>(text) << 3), word<uint32_t>(text + n - 4));
    if (n == 0) return K2;
    const auto byte = [text](uint64_t at) { return static_cast<uint64_t>(static_cast<unsigned char>(text[at])); };
    const uint64_t y = byte(0) + (byte(n >> 1) << 8), z = n + (byte(n - 1) << 2);
    return mixed(y * K2 ^ z * K3) * K2;
}

uint64_t up_to_32(const char* text, uint64_t n) {
    const uint64_t a = word(text) * K1, b = word(text + 8), c = word(text + n - 8) * K2, d = word(text + n - 16) * K0;
    return of_two(turned(a - b, 43) + turned(c, 30) + d, a + turned(b ^ K3, 20) - c + n);
}

Pair of_half(uint64_t a, const char* from, const char* to, uint64_t z) {
    const uint64_t b = turned(a + z, 52);
    uint64_t c = turned(a, 37);
    a += word(from);
    c += turned(a, 7);
    a += word(to);
    return {a + z, b + turned(a, 31) + c};
}

uint64_t up_to_64(const char* text, uint64_t n) {
    const Pair v = of_half(word(text) + (n + word(text + n - 16)) * K0, text + 8, text + 16, word(text + 24));
    const Pair w = of_half(word(text + 16) + word(text + n - 32), text + n - 24, text + n - 16, word(text + n - 8));
    return mixed(mixed((v.first + w.second) * K2 + (w.first + v.second) * K0) * K0 + v.second) * K2;
}

uint64_t longer(const char* text, uint64_t n) {
    uint64_t x = word(text), y = word(text + n - 16) ^ K1, z = word(text + n - 56) ^ K0;
    Pair v = of_32(text + n - 64, n, y), w = of_32(text + n - 32, n * K1, K0);
    z += mixed(v.second) * K1;
    x = turned(z + x, 39) * K1;
    y = turned(y, 33) * K1;
    for (const char *at = text, *end = text + (n - 1) / 64 * 64; at < end; at += 64) {
        x = turned(x + y + v.first + word(at + 16), 37) * K1 ^ w.second;
        y = turned(y + v.second + word(at + 48), 42) * K1 ^ v.first;
        z = turned(z ^ w.first, 33);
        v = of_32(at, v.second * K1, x + w.first);
        w = of_32(at + 32, z + w.second, y);
        const uint64_t last = x;
        x = z, z = last;
    }
    return of_two(of_two(v.first, w.first) + mixed(y) * K1 + z, of_two(v.second, w.second) + x);
}

}  // namespace

uint64_t city_hash_64(const char* text, uint64_t n) {
    if (n <= 16) return up_to_16(text, n);
    if (n <= 32) return up_to_32(text, n);
    return n <= 64 ? up_to_64(text, n) : longer(text, n);
}

}  // namespace gpuqs
