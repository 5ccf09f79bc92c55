// Tables of bytes: sixteen leaves a shuffle. Of `leaf ^ 16 q` only leaves 16 q ... 16 q + 15 stay below 16; adding 0x70
// takes the others above 0x7f, which shuffles to zero.
// Four look-ups a value beat memory, eight do not.
#pragma once
#include <cstdint>

#include "registers.inl"

namespace gpuqs {
namespace {

constexpr int table_word_bytes(int, int value_bytes) { return value_bytes == 4; }
constexpr int kDocumentsInRegisters = sizeof(Register);  // those whose sums stay there

template <int word, int n_leaves, int n_words> struct Tree {
    const uint8_t* tables;
    struct Index { Register at[n_leaves / 16]; };

    explicit Tree(const uint8_t* of_tree) : tables(of_tree) {}
    static Index index(const uint8_t* leaf, int) {
        const Register leaves = load_register(leaf);
        Index index;
        for (int q = 0; q < n_leaves / 16; q++) index.at[q] = add_saturated(exclusive_or(leaves, all_bytes(16 * q)), all_bytes(0x70));
        return index;
    }
    Register look_up(int p, const Index& index) const {
        Register value = shuffle(all_lanes(tables + 64 * p), index.at[0]);
        for (int q = 1; q < n_leaves / 16; q++) value = either(value, shuffle(all_lanes(tables + 64 * p + 16 * q), index.at[q]));
        return value;
    }
};

}  // namespace
}  // namespace gpuqs
