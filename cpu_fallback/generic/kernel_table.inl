// All kernels of one instruction set, as a table. Each isa/*/kernels.cpp makes one.
//
// This file is compiled once for each instruction set. The compiler searches that set's folder first, for registers.inl,
// gathers.inl, jumps.inl, lanes.inl, rows.inl, search.inl, tables.inl and tile.inl. Names have internal linkage, so that the
// code of one set does not mix with that of another.
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

// The kernels of QuickScorer's engines; null if gpuqs is built without QuickScorer.
constexpr QuickScorerKernels quickscorer_kernels() {
#ifdef GPUQS_QUICKSCORER
    return {qs<float>, qs<double>, vqs<float>, vqs<double>};
#else
    return {};
#endif
}

// Words: the words that bitslice works on, the narrowest first.
template <class... Words> constexpr Kernels kernel_table(const char* name, Encoding encoding) {
    static_assert(sizeof...(Words) <= kMaxWidths);
    constexpr int lanes = std::min(std::max({static_cast<int>(sizeof(Words))...}), kMaxRankLanes);
    // clang-format off
    return {name, encoding,
            load<float>, load<double>, load_rows<float>, load_rows<double>,
            add_values, table_part, sum_places,
            Lanes::n, quickscorer_kernels(),
            walk<float>, walk<double>, walk_nodes_kernel<Gathers, float>(), walk_nodes_kernel<Gathers, double>(),
            rank_codes<float>, rank_codes<double>, rankwalk,
            jump_codes<float>, jump_codes<double>, jumps_kernel<Jumps>(),
            lanes, rank_bytes<lanes, float>, rank_bytes<lanes, double>, rank_tests<lanes>,
            rank, sizeof...(Words), {width<Words>()...}};
    // clang-format on
}

}  // namespace
}  // namespace gpuqs
