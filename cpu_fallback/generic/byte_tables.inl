// Tables of bytes: a shuffle looks up among sixteen leaves. `leaf ^ 16 q` is below 16 only for leaves 16 q ... 16 q + 15; adding
// 0x70 brings all others above 0x7f, where a shuffle gives zero.
// Four look-ups per value are faster than reading it from memory; eight are not.
#pragma once
#include <cstdint>

#include "registers.inl"

namespace gpuqs {
namespace {

constexpr int table_part_bytes(int, int value_bytes) { return value_bytes == 4; }
constexpr bool joins_parts(int) { return false; }
constexpr int kDocumentsInRegisters = sizeof(Register);  // documents whose sums stay in registers

template <int part_bytes, int n_leaves, int n_parts> struct LeafTables {
    const uint8_t* tables;
    struct Index { Register at[n_leaves / 16]; };

    explicit LeafTables(const uint8_t* of_tree) : tables(of_tree) {}
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
