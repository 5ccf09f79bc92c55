// Tables of wide parts: two bytes for trees of up to 64 leaves, four for up to 32.
#pragma once
#include "isa/avx512/paired_tables.inl"

namespace gpuqs {
namespace {

constexpr int table_part_bytes(int n_leaves, int) { return n_leaves <= 32 ? 4 : 2; }
constexpr bool joins_parts(int) { return false; }
constexpr int kDocumentsInRegisters = 64;  // documents whose sums stay in registers

template <int part_bytes, int n_leaves, int n_parts> using LeafTables = PairedTables<part_bytes, n_leaves, n_parts>;

}  // namespace
}  // namespace gpuqs

#include "generic/value_tables.inl"  // looks values up in these trees
