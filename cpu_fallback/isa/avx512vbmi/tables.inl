// Tables of bytes for trees of up to 64 leaves: one instruction looks up a byte for 64 documents. Trees of up to 32 leaves have
// tables of four-byte parts.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <type_traits>

#include "isa/avx512/paired_tables.inl"

namespace gpuqs {
namespace {

constexpr int table_part_bytes(int n_leaves, int) { return n_leaves <= 32 ? 4 : 1; }
// On many processors unpacking runs only on one port, which look-ups need, too; joining runs on others.
constexpr bool joins_parts(int part_bytes) { return part_bytes == 1; }
constexpr int kDocumentsInRegisters = 64;  // documents whose sums stay in registers

template <int n_parts> struct SingleRegisterTables {
    Register table[n_parts];
    struct Index { Register leaves, exchanged; };  // exchanged: neighbouring leaves have changed places

    explicit SingleRegisterTables(const uint8_t* tables) {
        for (int p = 0; p < n_parts; p++) table[p] = _mm512_load_si512(tables + 64 * p);
    }
    static Index index(const uint8_t* leaf, int) {
        const Register leaves = _mm512_load_si512(leaf);
        return {leaves, _mm512_shldi_epi16(leaves, leaves, 8)};
    }
    Register look_up(int p, const Index& index) const {
        return _mm512_permutexvar_epi8(p % 2 ? index.leaves : index.exchanged, table[p]);
    }
    // Pair the bytes of an even-numbered part with those of the next part: at even places, and at odd places.
    static Register join_even(Register exchanged, Register next) { return _mm512_shldi_epi16(next, exchanged, 8); }
    static Register join_odd(Register exchanged, Register next) { return _mm512_mask_mov_epi8(exchanged, 0xaaaaaaaaaaaaaaaa, next); }
};

template <int part_bytes, int n_leaves, int n_parts>
using LeafTables = std::conditional_t<part_bytes == 1, SingleRegisterTables<n_parts>, PairedTables<part_bytes, n_leaves, n_parts>>;

}  // namespace
}  // namespace gpuqs

#include "generic/value_tables.inl"  // looks values up in these trees
