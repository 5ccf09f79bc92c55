// Tables of bytes: one instruction looks up sixteen leaves in all registers of a table, two or four of them.
#pragma once
#include <arm_neon.h>

#include <cstdint>

#include "registers.inl"

namespace gpuqs {
namespace {

constexpr int table_part_bytes(int, int value_bytes) { return value_bytes == 4; }
constexpr bool joins_parts(int) { return false; }
constexpr int kDocumentsInRegisters = sizeof(Register);  // documents whose sums stay in registers

template <int part_bytes, int n_leaves, int n_parts> struct LeafTables {
    const uint8_t* tables;

    explicit LeafTables(const uint8_t* of_tree) : tables(of_tree) {}
    static Register index(const uint8_t* leaf, int) { return load_register(leaf); }
    Register look_up(int p, Register index) const {
        const uint8_t* table = tables + 64 * p;
        if constexpr (n_leaves == 32)
            return vqtbl2q_u8(vld1q_u8_x2(table), index);
        else
            return vqtbl4q_u8(vld1q_u8_x4(table), index);
    }
};

}  // namespace
}  // namespace gpuqs

#include "generic/value_tables.inl"  // looks values up in these trees
