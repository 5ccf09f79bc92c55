// All kernels of one instruction set, as a table. Each isa/*/kernels.cpp makes one.
//
// This file is compiled once for each instruction set. The compiler searches that set's folder first, for registers.inl,
// gathers.inl, jumps.inl, lanes.inl, rows.inl, scalar_sums.inl, search.inl, tables.inl and tile.inl. Names have internal linkage,
// so that the code of one set does not mix with that of another.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>

#include "gathers.inl"
#include "generic/add_values.inl"
#include "generic/bitslice.inl"
#include "generic/kernels.hpp"
#include "generic/load.inl"
#include "generic/rank_jumps.inl"
#include "generic/rank_tests.inl"
#include "generic/ranks.inl"
#include "generic/rankwalk.inl"
#include "generic/walk.inl"
#include "generic/walk_nodes.inl"
#include "lanes.inl"
#ifdef GPUQS_QUICKSCORER
#include "generic/qs.inl"
#include "generic/vqs.inl"
#endif

namespace gpuqs {
namespace {

template <class Word, int... n_bits> constexpr BitsliceKernels width(std::integer_sequence<int, n_bits...>) {
    return {sizeof(Word),
            predicates<Word>,
            programs<Word>,
            {{spread_planes<Word, uint8_t, n_bits>...}, {spread_planes<Word, uint16_t, n_bits>...}}};
}
template <class Word> constexpr BitsliceKernels width() { return width<Word>(std::make_integer_sequence<int, kPlanes + 1>()); }

template <class Value, int lanes> constexpr ValueKernels<Value> value_kernels() {
    ValueKernels<Value> of = {};
    of.load = load<Value>;
    of.load_rows = load_rows<Value>;
#ifdef GPUQS_QUICKSCORER
    of.qs = qs<Value>;
    of.vqs = vqs<Value>;
#endif
    of.to_keys = to_keys<Value>;
    of.walk = walk<Value>;
    of.walk_nodes = walk_nodes_kernel<Gathers, Value>();
    of.rank_codes = rank_codes<Value>;
    of.jump_codes = jump_codes<Value>;
    of.rank_bytes = rank_bytes<lanes, Value>;
    return of;
}

// Words: the words that bitslice works on, the narrowest first.
template <class... Words> constexpr Kernels kernel_table(const char* name, Encoding encoding) {
    static_assert(sizeof...(Words) <= kMaxWidths);
    constexpr int lanes = std::min(std::max({static_cast<int>(sizeof(Words))...}), kMaxRankLanes);
    // clang-format off
    return {name, encoding,
            value_kernels<float, lanes>(), value_kernels<double, lanes>(),
            add_values, table_part, sum_places,
            Lanes::n,
            rankwalk, jumps_kernel<Jumps>(), lanes, rank_tests<lanes>,
            rank, sizeof...(Words), {width<Words>()...}};
    // clang-format on
}

}  // namespace
}  // namespace gpuqs
