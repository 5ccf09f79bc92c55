// add_values: adds each tree's leaf value to the sum of its output, in tree order.
//
//   for each output: for each run of the trees that add to it:          (with one output, all trees are a run)
//       for every few trees, whose values fit in the L1 cache:
//           for each document: for each of these trees: sum[document] += value[tree][leaf[tree][document]]
//   leaf vectors: with tables, as above for each column; without tables,
//       for some trees and documents: find the row of each leaf's vector; for some columns: sums[document] += vector[row]
#pragma once
#include <cstdint>
#include <utility>

#include "generic/scalar_leaves.inl"
#include "layout/leaves.hpp"
#include "registers.inl"
#include "tables.inl"

namespace gpuqs {
namespace {

constexpr int kFewestInRuns = 4;     // documents: with fewer, finding runs takes longer than it saves
constexpr int kTreesIn32Bits = 128;  // fixed-point leaves are below 2^23 in magnitude, so that sums stay below 2^31
constexpr int kColumns = 16;         // upper limit of vector columns that are added together
constexpr int kRowTrees = 16, kRowDocuments = 128;  // trees and documents whose leaves are turned into rows at a time

// Calls add(tree, n, step, output) for runs of trees: n trees, every step-th one from `tree` on, that add to the same output. The
// runs cover trees [first, end), those of an output in tree order.
template <class Add> void for_runs(const LeafValues& values, int first, int end, Add add) {
    if (values.n_outputs == 1) return add(first, end - first, 1, 0);
    for (int t = first; t < end; t++) {
        if (values.before[t] >= first) continue;  // it was handled after that tree
        for (int from = t, last; from < end; from = values.after[last]) {
            const int step = values.after[from] - from;
            int n = 1;
            for (last = from; values.after[last] < end && values.after[last] - last == step; n++) last += step;
            add(from, n, step, values.tree_output[from]);
        }
    }
}

// The largest power of two that is neither more than n nor than most.
constexpr int power_within(int n, int most) {
    int power = 1;
    while (2 * power <= n && 2 * power <= most) power *= 2;
    return power;
}

// Sums of `width` neighbouring outputs, in as few registers as possible.
template <int width, class Sum> struct Sums {
    static constexpr int kHead = power_within(width, kRegisterBytes / sizeof(Sum));
    static constexpr int kRegisters = 1 + Sums<width - kHead, Sum>::kRegisters;
    typedef Sum Head __attribute__((vector_size(kHead * sizeof(Sum))));  // GCC drops the attribute from a `using`
    Head head;
    Sums<width - kHead, Sum> rest;

    void load(const Sum* sums) {
        __builtin_memcpy(&head, sums, sizeof head);
        rest.load(sums + kHead);
    }
    void store(Sum* sums) const {
        __builtin_memcpy(sums, &head, sizeof head);
        rest.store(sums + kHead);
    }
    template <class Value> void add(const Value* value) {
        typedef Value Values __attribute__((vector_size(kHead * sizeof(Value))));
        Values values;
        __builtin_memcpy(&values, value, sizeof values);
        head += __builtin_convertvector(values, Head);
        rest.add(value + kHead);
    }
};
template <class Sum> struct Sums<1, Sum> {  // compilers keep vectors of one element in memory
    static constexpr int kRegisters = 1;
    Sum sum;
    void load(const Sum* sums) { sum = *sums; }
    void store(Sum* sums) const { *sums = sum; }
    template <class Value> void add(const Value* value) { sum += *value; }
};
template <class Sum> struct Sums<0, Sum> {
    static constexpr int kRegisters = 0;
    void load(const Sum*) {}
    void store(Sum*) const {}
    template <class Value> void add(const Value*) {}
};

// For `width` columns of vectors[rows][n_columns] and `together` documents: for each tree: sums[document] += vector of its row
template <int together, int width, class Value, class Sum>
void add_vectors_of(const Value* value, int n_columns, int n_trees, const int32_t* row, Sum* sums) {
    Sums<width, Sum> s[together];
#pragma GCC unroll 4
    for (int d = 0; d < together; d++) s[d].load(sums + static_cast<int64_t>(d) * n_columns);
    for (int t = 0; t < n_trees; t++, row += kRowDocuments) {
#pragma GCC unroll 4
        for (int d = 0; d < together; d++) s[d].add(value + static_cast<int64_t>(row[d]) * n_columns);
    }
#pragma GCC unroll 4
    for (int d = 0; d < together; d++) s[d].store(sums + static_cast<int64_t>(d) * n_columns);
}
template <int width, class Value, class Sum>
void add_vectors(const Value* value, int n_columns, int n_trees, const int32_t* row, int n, Sum* sums) {
    constexpr int registers = Sums<width, Sum>::kRegisters, together = registers <= 3 ? 4 : registers <= 6 ? 2 : 1;
    int d = 0;
    for (; d + together <= n; d += together, sums += static_cast<int64_t>(together) * n_columns)
        add_vectors_of<together, width>(value, n_columns, n_trees, row + d, sums);
    for (; d < n; d++, sums += n_columns) add_vectors_of<1, width>(value, n_columns, n_trees, row + d, sums);
}

template <class Value, class Sum, int... widths>
void add_all_columns(const Value* value, int n_columns, int n_trees, const int32_t* row, int n, Sum* sums,
                     std::integer_sequence<int, widths...>) {
    using Add = decltype(&add_vectors<1, Value, Sum>);
    constexpr Add add[] = {add_vectors<widths + 1, Value, Sum>...};
    for (int k = 0, width; k < n_columns; k += width) {
        width = n_columns - k < kColumns ? n_columns - k : kColumns;
        add[width - 1](value + k, n_columns, n_trees, row, n, sums + k);
    }
}

// row[tree][document]: the row of the leaf's vector. It is shared_row's if leaves share vectors, else counted from the first tree's
// first row.
template <class Leaf>
inline __attribute__((always_inline)) void find_rows(const int32_t* shared_row, const int64_t* offsets, int n_trees, const Leaf* leaf,
                                                     int n, int stride, int32_t* row) {
    for (int t = 0; t < n_trees; t++, leaf += stride, row += kRowDocuments) {
        const int32_t offset = static_cast<int32_t>(offsets[t] - offsets[0]);
        if (shared_row)
            for (int d = 0; d < n; d++) row[d] = shared_row[offsets[t] + leaf[d]];
        else
            for (int d = 0; d < n; d++) row[d] = offset + static_cast<int32_t>(leaf[d]);
    }
}

// Adds leaf vectors. Unless leaves share them, rows are counted from the first tree's first row.
template <class Value, class Sum, class Leaf>
void add_leaf_vectors(const LeafValues& values, int first, int n_trees, const Leaf* leaf, int n, int stride, Sum* sums) {
    int32_t row[kRowTrees * kRowDocuments];
    for (int t = 0; t < n_trees; t += kRowTrees) {
        const int trees = n_trees - t < kRowTrees ? n_trees - t : kRowTrees;
        const int64_t* const offsets = values.offsets + first + t;
        const Value* const value = static_cast<const Value*>(values.value) + (values.row ? 0 : offsets[0] * values.width);
        for (int d = 0; d < n; d += kRowDocuments) {
            const int documents = n - d < kRowDocuments ? n - d : kRowDocuments;
            const Leaf* const of_trees = leaf + static_cast<int64_t>(t) * stride + d;
            if (documents == 1)  // a constant to the compiler, which then needs no inner loops
                find_rows(values.row, offsets, trees, of_trees, 1, stride, row);
            else
                find_rows(values.row, offsets, trees, of_trees, documents, stride, row);
            add_all_columns(value, values.width, trees, row, documents, sums + static_cast<int64_t>(d) * values.width,
                            std::make_integer_sequence<int, kColumns>());
        }
    }
}

// add_values without tables: each tree adds a value to its output, or a leaf vector to all outputs
template <class Value, class Sum, class Leaf>
void add_leaves(const LeafValues& values, int first, int n_trees, const Leaf* leaf, int n, int stride, Sum* sums) {
    const Value* value = static_cast<const Value*>(values.value);
    if (values.width == 1 && values.n_outputs > 1 && n < kFewestInRuns) {
        for (int t = first; t < first + n_trees; t++, leaf += stride) {
            Sum* to = sums + static_cast<int64_t>(values.tree_output[t]) * stride;
            for (int d = 0; d < n; d++) to[d] += value[values.offsets[t] + leaf[d]];
        }
        return;
    }
    if (values.width == 1) {
        for_runs(values, first, first + n_trees, [&](int tree, int n_run, int step, int output) {
            for (int t = 0; t < n_run; t += kTrees, tree += kTrees * step)
                add_scalar_leaves(value, values.offsets + tree, n_run - t < kTrees ? n_run - t : kTrees, step,
                                  leaf + static_cast<int64_t>(tree - first) * stride, n, stride,
                                  sums + static_cast<int64_t>(output) * stride);
        });
        return;
    }
    add_leaf_vectors<Value>(values, first, n_trees, leaf, n, stride, sums);
}

// Adds column k of the leaf values of a run of trees by tables. leaf: the first tree's; sums: in the order that sum_places gives.
template <class Value, class Sum>
void add_run_by_tables(const LeafValues& values, int first, int n_trees, int step, int k, const uint8_t* leaf, int n, int stride,
                       Sum* sums) {
    if constexpr (sizeof(Value) == sizeof(Sum)) {
        Tables::add_trees<Value>(values, first, n_trees, step, k, leaf, n, stride, sums);
    } else {  // fixed point: sums of kTreesIn32Bits trees fit in 32 bits
        alignas(64) Value partial[512];
        for (int d = 0; d < n; d += 512) {
            const int documents = n - d < 512 ? n - d : 512;
            for (int t = 0; t < n_trees; t += kTreesIn32Bits) {
                const int trees = n_trees - t < kTreesIn32Bits ? n_trees - t : kTreesIn32Bits;
                for (int i = 0; i < documents; i++) partial[i] = 0;
                Tables::add_trees<Value>(values, first + t * step, trees, step, k, leaf + static_cast<int64_t>(t) * step * stride + d,
                                         documents, stride, partial);
                for (int i = 0; i < documents; i++) sums[d + i] += partial[i];
            }
        }
    }
}

// add_values by tables, if the instruction set has them; for each column of vectors, all trees are a run
template <class Value, class Sum>
void add_by_tables(const LeafValues& values, int first, int n_trees, const uint8_t* leaf, int n, int stride, Sum* sums) {
    const auto add = [&](int tree, int n_run, int step, int output, int k) {
        add_run_by_tables<Value>(values, tree, n_run, step, k, leaf + static_cast<int64_t>(tree - first) * stride, n, stride,
                                 sums + static_cast<int64_t>(output) * stride);
    };
    if (values.width == 1)
        for_runs(values, first, first + n_trees, [&](int tree, int n_run, int step, int output) { add(tree, n_run, step, output, 0); });
    else
        for (int k = 0; k < values.width; k++) add(first, n_trees, 1, k, k);
}

template <class Value, class Sum, class Leaf>
void add_any(const LeafValues& values, int first, int n_trees, const Leaf* leaf, int n, int stride, Sum* sums) {
    if constexpr (Tables::available && sizeof(Leaf) == 1) {
        if (values.tables) return add_by_tables<Value>(values, first, n_trees, leaf, n, stride, sums);
    }
    add_leaves<Value>(values, first, n_trees, leaf, n, stride, sums);
}

int table_part(int n_leaves, int value_bytes) { return Tables::bytes_of_part(n_leaves, value_bytes); }

void sum_places(const LeafValues& values, const uint16_t* order, int n, int32_t* places) {
    for (int d = 0; d < n; d++) places[d] = order ? order[d] : d;
    if (values.tables) Tables::sum_places(values, n, places);
}

template <class Leaf>
void add_kind(const LeafValues& values, int first, int n_trees, const Leaf* leaf, int n, int stride, void* sums) {
    switch (values.kind) {
        case ValueKind::float64: return add_any<double>(values, first, n_trees, leaf, n, stride, static_cast<double*>(sums));
        case ValueKind::float32: return add_any<float>(values, first, n_trees, leaf, n, stride, static_cast<float*>(sums));
        case ValueKind::fixed: return add_any<int32_t>(values, first, n_trees, leaf, n, stride, static_cast<int64_t*>(sums));
    }
}

void add_values(const LeafValues& values, int first, int n_trees, int leaf_bytes, const void* leaf, int n, int stride, void* sums) {
    switch (leaf_bytes) {
        case 1: return add_kind(values, first, n_trees, static_cast<const uint8_t*>(leaf), n, stride, sums);
        case 2: return add_kind(values, first, n_trees, static_cast<const uint16_t*>(leaf), n, stride, sums);
        default: return add_kind(values, first, n_trees, static_cast<const uint32_t*>(leaf), n, stride, sums);
    }
}

}  // namespace
}  // namespace gpuqs
