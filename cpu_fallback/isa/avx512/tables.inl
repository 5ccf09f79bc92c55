// Tables of words: 16-bit words of up to 64 leaves, 32-bit words of up to 32.
#pragma once
#include <immintrin.h>

#include <cstdint>

#include "registers.inl"

namespace gpuqs {
namespace {

constexpr int table_word_bytes(int n_leaves, int) { return n_leaves <= 32 ? 4 : 2; }
constexpr int kDocumentsInRegisters = 64;  // those whose sums stay there

template <int word, int n_leaves, int n_words> struct Tree {
    static_assert(word * n_leaves == 128, "a table is two registers");
    Register low[n_words], high[n_words];

    explicit Tree(const uint8_t* tables) {
        for (int p = 0; p < n_words; p++) {
            low[p] = _mm512_load_si512(tables + 64 * word * p);
            high[p] = _mm512_load_si512(tables + 64 * word * p + 64);
        }
    }
    // A look-up asks only for the low bits of a word: every word-th leaf is shifted there, none is widened.
    static Register index(const uint8_t* leaf, int first) {
        const Register leaves = _mm512_load_si512(leaf);
        return word == 2 ? _mm512_srli_epi16(leaves, 8 * first) : _mm512_srli_epi32(leaves, 8 * first);
    }
    Register look_up(int p, Register index) const {
        return word == 2 ? _mm512_permutex2var_epi16(low[p], index, high[p]) : _mm512_permutex2var_epi32(low[p], index, high[p]);
    }
};

}  // namespace
}  // namespace gpuqs

#include "generic/value_tables.inl"  // which looks values up in these trees
