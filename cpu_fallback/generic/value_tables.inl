// add_values by tables in registers: leaf values are split into parts, and one shuffle looks up a part for many documents.
//
//   for each tree:
//       for each register full of documents:
//           for each part of a value: part = the tree's table of that part [leaf]
//           interleave the parts into values, a few documents per register
//           sums += values                                  (in tree order: bit for bit as by one addition after another)
//
// isa/*/tables.inl define `LeafTables<part_bytes, n_leaves, n_parts>`, the tables of a tree of up to n_leaves leaves, before they
// include this file. If `joins_parts(part_bytes)`, the first interleaving uses their `join_even` and `join_odd`; others unpack.
#pragma once
#include <cstdint>

#include "layout/leaves.hpp"
#include "registers.inl"

namespace gpuqs {
namespace {

// Interleaves n parts of w bytes.
template <class TreeTables, int w, int n, bool joined> inline void interleave(const Register* part, Register* value) {
    if constexpr (n == 1) {
        value[0] = part[0];
    } else {
        Register low[n / 2], high[n / 2];
        for (int p = 0; p < n / 2; p++) {
            const Register a = part[2 * p], b = part[2 * p + 1];
            if constexpr (joined) {
                low[p] = TreeTables::join_even(a, b);
                high[p] = TreeTables::join_odd(a, b);
            } else {
                low[p] = unpack_low<w>(a, b);
                high[p] = unpack_high<w>(a, b);
            }
        }
        interleave<TreeTables, 2 * w, n / 2, false>(low, value);
        interleave<TreeTables, 2 * w, n / 2, false>(high, value + n / 2);
    }
}

struct Tables {
    static constexpr bool available = true;
    static constexpr int bytes_of_part(int n_leaves, int value_bytes) { return table_part_bytes(n_leaves, value_bytes); }

    // The place of a document's sum, from its place in `leaf`. A look-up takes every part_bytes-th document of a register of leaves;
    // joining takes every other one of these; unpacking works within 128-bit lanes.
    template <unsigned part_bytes, unsigned value> static unsigned sum_place(unsigned d) {
        constexpr unsigned bytes = sizeof(Register), documents = bytes / part_bytes, values = 16 / value;  // the last: per lane
        constexpr bool joins = joins_parts(part_bytes);
        unsigned first = d / bytes * bytes + d % part_bytes * documents, i = d % bytes / part_bytes;
        if (joins) first += i % 2 * documents / 2, i /= 2;
        constexpr unsigned of_lane = 16 / (joins ? 2 * part_bytes : part_bytes);
        const unsigned lane = i / of_lane, in_lane = i % of_lane;
        return first + in_lane / values * (bytes / value) + lane * values + in_lane % values;
    }

    // Replaces n documents' places in `leaf` with those of their sums. Sizes are template parameters: otherwise, in a call with few
    // trees, the divisions for each document would take longer than the trees.
    static void sum_places(const LeafValues& values, int n, int32_t* places) {
        const bool is_double = values.kind == ValueKind::float64;
        if (values.table_leaves <= 32)
            is_double ? turn_places<32, 8>(n, places) : turn_places<32, 4>(n, places);
        else
            is_double ? turn_places<64, 8>(n, places) : turn_places<64, 4>(n, places);
    }
    template <int n_leaves, int value> static void turn_places(int n, int32_t* places) {
        constexpr int part_bytes = bytes_of_part(n_leaves, value);
        if constexpr (part_bytes != 0)  // else no tables are made
            for (int d = 0; d < n; d++) places[d] = static_cast<int32_t>(sum_place<part_bytes, value>(places[d]));
    }

    // From one tree to the next, tables are table_step bytes apart, and leaves leaf_step. ahead: how many bytes ahead are the tables
    // that come next, which are prefetched; 0: the pass over other documents prefetches them.
    template <class Value, int part_bytes, int n_leaves>
    static void add_block(const uint8_t* tables, int64_t table_step, int n_trees, const uint8_t* leaf, int64_t leaf_step, Value* sums,
                          int64_t ahead) {
        constexpr int n_parts = sizeof(Value) / part_bytes, documents = sizeof(Register) / part_bytes,
                      n_blocks = kDocumentsInRegisters / documents;
        using TreeTables = LeafTables<part_bytes, n_leaves, n_parts>;
        Register sum[n_blocks][n_parts];  // in registers, because the loops over it are unrolled
        Register* at = reinterpret_cast<Register*>(sums);
#pragma GCC unroll 8
        for (int r = 0; r < n_blocks * n_parts; r++) sum[r / n_parts][r % n_parts] = load_register(at + r);
        for (int t = 0; t < n_trees; t++, tables += table_step, leaf += leaf_step) {
            const TreeTables tree(tables);
            if (ahead)
                for (size_t line = 0; line < sizeof(Value); line++) prefetch(tables + ahead + 64 * line);
#pragma GCC unroll 8
            for (int b = 0; b < n_blocks; b++) {
                const auto index = tree.index(leaf + b / part_bytes * sizeof(Register), b % part_bytes);
                Register looked_up[n_parts], value[n_parts];
#pragma GCC unroll 8
                for (int p = 0; p < n_parts; p++) looked_up[p] = tree.look_up(p, index);
                interleave<TreeTables, part_bytes, n_parts, joins_parts(part_bytes)>(looked_up, value);
#pragma GCC unroll 8
                for (int r = 0; r < n_parts; r++) sum[b][r] = add(Value(), sum[b][r], value[r]);
            }
        }
#pragma GCC unroll 8
        for (int r = 0; r < n_blocks * n_parts; r++) store_register(at + r, sum[r / n_parts][r % n_parts]);
    }

    template <class Value, int n_leaves>
    static void add_blocks(const uint8_t* tables, int64_t table_step, int n_trees, const uint8_t* leaf, int64_t leaf_step, int n,
                           Value* sums) {
        constexpr int part_bytes = bytes_of_part(n_leaves, sizeof(Value));
        if constexpr (part_bytes != 0) {  // else no tables are made
            for (int t = 0; t < n_trees; t += kTrees, tables += kTrees * table_step, leaf += kTrees * leaf_step)
                for (int d = 0; d < n; d += kDocumentsInRegisters)
                    add_block<Value, part_bytes, n_leaves>(tables, table_step, n_trees - t < kTrees ? n_trees - t : kTrees, leaf + d,
                                                           leaf_step, sums + d,
                                                           d + kDocumentsInRegisters < n ? 0 : kTrees * table_step);
        }
    }

    // Adds column k of the leaf values of a run of trees, see add_values.inl. n: whole blocks of documents.
    template <class Value>
    static void add_trees(const LeafValues& values, int first, int n_trees, int step, int k, const uint8_t* leaf, int n, int stride,
                          Value* sums) {
        constexpr int64_t table = 64 * sizeof(Value);
        const uint8_t* tables = static_cast<const uint8_t*>(values.tables) + table * (static_cast<int64_t>(first) * values.width + k);
        const int64_t table_step = table * values.width * step, leaf_step = static_cast<int64_t>(stride) * step;
        if (values.table_leaves <= 32)
            add_blocks<Value, 32>(tables, table_step, n_trees, leaf, leaf_step, n, sums);
        else
            add_blocks<Value, 64>(tables, table_step, n_trees, leaf, leaf_step, n, sums);
    }
};

}  // namespace
}  // namespace gpuqs
