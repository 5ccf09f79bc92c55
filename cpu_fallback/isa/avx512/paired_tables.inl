// Tables of two AVX-512 registers: one instruction looks up parts of four bytes for sixteen values, or of two bytes for thirty-two.
#pragma once
#include <immintrin.h>

#include <cstdint>

#include "isa/avx512/registers.inl"

namespace gpuqs {
namespace {

template <int part_bytes, int n_leaves, int n_parts> struct PairedTables {
    static_assert(part_bytes * n_leaves == 128, "a table is two registers");
    Register low[n_parts], high[n_parts];

    explicit PairedTables(const uint8_t* tables) {
        for (int p = 0; p < n_parts; p++) {
            low[p] = _mm512_load_si512(tables + 64 * part_bytes * p);
            high[p] = _mm512_load_si512(tables + 64 * part_bytes * p + 64);
        }
    }
    // A look-up reads only the low bits of an index: a shift brings every part_bytes-th leaf there, and no leaf has to be widened.
    static Register index(const uint8_t* leaf, int first) {
        const Register leaves = _mm512_load_si512(leaf);
        return part_bytes == 2 ? _mm512_srli_epi16(leaves, 8 * first) : _mm512_srli_epi32(leaves, 8 * first);
    }
    Register look_up(int p, Register index) const {
        return part_bytes == 2 ? _mm512_permutex2var_epi16(low[p], index, high[p]) : _mm512_permutex2var_epi32(low[p], index, high[p]);
    }
};

}  // namespace
}  // namespace gpuqs
