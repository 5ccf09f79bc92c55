// rankwalk, many documents: registers full of them go through all tests of a tree; no step depends on the tree's shape.
//
//   codes: ranks as for walks, byte[entry][document]
//   for each tree: at[document] = 0, the label of the leftmost leaf
//                  for each node, parents first, with labels 1, 2, ...:
//                      at = the node's label where at is its first label and the byte of its entry exceeds its position
//                  leaf[tree] = at
//
// Labels only grow: at is the greater of the old label and the new one.
#pragma once
#include <cstdint>

#include "generic/rankwalk.inl"
#include "layout/rankwalk.hpp"

namespace gpuqs {
namespace {

// Ranks of n values, a multiple of eight, by binary search: all values take the same steps, so that compilers vectorize it.
template <class Value> void search_each(const Value* threshold, int64_t n_thresholds, const Value* x, int n, int32_t* rank) {
    n = n / 8 * 8;  // tells compilers that n is a multiple of eight
    for (int d = 0; d < n; d++) rank[d] = 0;
    for (int64_t left = n_thresholds; left > 0; left /= 2) {
        const int32_t half = static_cast<int32_t>(left - left / 2);
        for (int d = 0; d < n; d++) rank[d] += half & -static_cast<int32_t>(threshold[rank[d] + half - 1] < x[d]);
    }
    for (int d = 0; d < n; d++) rank[d] |= -static_cast<int32_t>(x[d] != x[d]);
}

// Writes the codes of n documents, x[column][stride], to one code[entry][places] after another, each for places_together documents;
// rank is scratch, [columns][stride].
template <int lanes, class Value>
void rank_bytes(const RankWalkLayout& layout, const Value* x, int n, int stride, int32_t* rank, int8_t* code) {
    for (int c = 0; c < layout.columns.n; c++) {
        const int64_t at = static_cast<int64_t>(c) * stride, first = layout.offsets[c];
        search_each(thresholds_of<Value>(layout) + first, layout.offsets[c + 1] - first, x + at, (n + 7) / 8 * 8, rank + at);
    }
    const int places = places_together(n, lanes);
    for (int first = 0; first < n; first += places) {
        code += places;  // no test reads the leaves' entry
        for (int e = 1; e < layout.n_entries; e++, code += places) {
            const RankEntry entry = layout.entries[e];
            const int32_t* of_column = rank + static_cast<int64_t>(entry.column) * stride + first;
            const int rows = n - first < places ? n - first : places;
            for (int d = 0; d < rows; d++) code[d] = static_cast<int8_t>(kSigned - byte_of(entry, of_column[d]));
            for (int d = rows; d < places; d++) code[d] = kSigned;
        }
    }
}

// Compilers accept a template parameter as a vector's size only in this form.
template <class Byte, int lanes> struct RegisterOf { typedef Byte Bytes __attribute__((vector_size(lanes))); };

// Takes `registers` registers of documents through n_together trees, whose steps wait for each other only within a tree.
template <int lanes, int registers, int n_together>
void evaluate_trees(const RankTest* tests, const int64_t* offsets, const int8_t* code, int stride, uint8_t* leaf) {
    using Labels = typename RegisterOf<uint8_t, lanes>::Bytes;
    using Bytes = typename RegisterOf<int8_t, lanes>::Bytes;
    constexpr int64_t places = lanes * registers;
    Labels at[n_together][registers] = {}, label = {};
    const auto evaluate = [&](int t, int64_t i) {
        const RankTest test = tests[offsets[t] + i];
        const Labels first = Labels{} + test.first;
        const Bytes position = Bytes{} + test.position;
        for (int r = 0; r < registers; r++) {
            Bytes byte;
            __builtin_memcpy(&byte, code + test.entry * places + r * lanes, lanes);
            const Labels right = reinterpret_cast<Labels>(position > byte) & reinterpret_cast<Labels>(at[t][r] == first) & label;
            at[t][r] = at[t][r] > right ? at[t][r] : right;
        }
    };
    int64_t common = offsets[1] - offsets[0];
    for (int t = 1; t < n_together; t++) {
        const int64_t n = offsets[t + 1] - offsets[t];
        if (n < common) common = n;
    }
    for (int64_t i = 0; i < common; i++) {
        label += 1;
#pragma GCC unroll 4
        for (int t = 0; t < n_together; t++) evaluate(t, i);
    }
    const Labels evaluated = label;
#pragma GCC unroll 4
    for (int t = 0; t < n_together; t++) {  // the remaining tests of larger trees
        label = evaluated;
        for (int64_t i = common; i < offsets[t + 1] - offsets[t]; i++) {
            label += 1;
            evaluate(t, i);
        }
    }
#pragma GCC unroll 4
    for (int t = 0; t < n_together; t++) __builtin_memcpy(leaf + static_cast<int64_t>(t) * stride, at[t], places);
}

template <int lanes, int registers>
void evaluate_block(const RankWalkLayout& layout, int block, const int8_t* code, const LeafRecords& records, int stride,
                    uint8_t* leaf) {
    constexpr int kTreesTogether = registers == 1 ? 4 : 2;  // as many as registers hold
    const int first = layout.block_offsets[block], end = layout.block_offsets[block + 1];
    int t = first;
    for (; t + kTreesTogether <= end; t += kTreesTogether) {
        for (int i = 0; i < kTreesTogether; i++) prefetch_records(records, t + i);
        evaluate_trees<lanes, registers, kTreesTogether>(layout.tests, layout.node_offsets + t, code, stride,
                                                         leaf + static_cast<int64_t>(t - first) * stride);
    }
    for (; t < end; t++)
        evaluate_trees<lanes, registers, 1>(layout.tests, layout.node_offsets + t, code, stride,
                                            leaf + static_cast<int64_t>(t - first) * stride);
}

// n documents, coded by rank_bytes, to leaf[tree][stride] of a tree block; stride has room for whole registers.
template <int lanes>
void rank_tests(const RankWalkLayout& layout, int block, const int8_t* code, const LeafRecords& records, int n, int stride,
                uint8_t* leaf) {
    const int places = places_together(n, lanes);
    const auto evaluate = places == lanes       ? evaluate_block<lanes, 1>
                          : places == 2 * lanes ? evaluate_block<lanes, 2>
                                                : evaluate_block<lanes, kRegistersTogether>;
    for (int first = 0; first < n; first += places, code += static_cast<int64_t>(places) * layout.n_entries)
        evaluate(layout, block, code, records, stride, leaf + first);
}

}  // namespace
}  // namespace gpuqs
