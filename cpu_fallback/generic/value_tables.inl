// add_values by tables in registers: a leaf value is cut into words that one shuffle looks up for many documents.
//
//   for each tree:
//       for each register full of documents:
//           for each word of a value: word = the tree's table of that word [leaf]
//           interleave the words: values, some documents a register
//           sums += values                                  (in tree order: the bits of one addition after another)
//
// Tree<word, n_leaves, n_words>, the tables of a tree of up to n_leaves leaves, is what isa/*/tables.inl define before.
#pragma once
#include <cstdint>

#include "layout/leaf_values.hpp"
#include "registers.inl"

namespace gpuqs {
namespace {

// Interleaves n words of w bytes.
template <int w, int n> inline void interleave(const Register* word, Register* value) {
    if constexpr (n == 1) {
        value[0] = word[0];
    } else {
        Register low[n / 2], high[n / 2];
        for (int p = 0; p < n / 2; p++) {
            low[p] = unpack_low<w>(word[2 * p], word[2 * p + 1]);
            high[p] = unpack_high<w>(word[2 * p], word[2 * p + 1]);
        }
        interleave<2 * w, n / 2>(low, value);
        interleave<2 * w, n / 2>(high, value + n / 2);
    }
}

struct Tables {
    static constexpr bool available = true;
    static constexpr int word_bytes(int n_leaves, int value_bytes) { return table_word_bytes(n_leaves, value_bytes); }

    // The place of a document's sum, by its place in `leaf`. Registers of leaves take every `word`-th document, and
    // interleaving works in lanes of 128 bits.
    static int sum_place(int word, int value, int d) {
        constexpr int bytes = static_cast<int>(sizeof(Register));
        const int documents = bytes / word, first = d / bytes * bytes + d % word * documents, i = d % bytes / word;
        const int lane = i / (16 / word), in_lane = i % (16 / word), values = 16 / value;  // of a lane
        return first + in_lane / values * (bytes / value) + lane * values + in_lane % values;
    }

    template <class Value, int word, int n_leaves>
    static void add_block(const uint8_t* tables, int n_trees, const uint8_t* leaf, int stride, Value* sums) {
        constexpr int n_words = sizeof(Value) / word, documents = sizeof(Register) / word, n_blocks = kDocumentsInRegisters / documents;
        Register sum[n_blocks][n_words];
        Register* at = reinterpret_cast<Register*>(sums);
        for (int r = 0; r < n_blocks * n_words; r++) sum[r / n_words][r % n_words] = load_register(at + r);
        for (int t = 0; t < n_trees; t++, tables += 64 * sizeof(Value), leaf += stride) {
            const Tree<word, n_leaves, n_words> tree(tables);
            for (int b = 0; b < n_blocks; b++) {
                const auto index = tree.index(leaf + b / word * sizeof(Register), b % word);
                Register looked_up[n_words], value[n_words];
                for (int p = 0; p < n_words; p++) looked_up[p] = tree.look_up(p, index);
                interleave<word, n_words>(looked_up, value);
                for (int r = 0; r < n_words; r++) sum[b][r] = add(Value(), sum[b][r], value[r]);
            }
        }
        for (int r = 0; r < n_blocks * n_words; r++) store_register(at + r, sum[r / n_words][r % n_words]);
    }

    template <class Value, int n_leaves>
    static void add_blocks(const uint8_t* tables, int n_trees, const uint8_t* leaf, int n, int stride, Value* sums) {
        constexpr int word = word_bytes(n_leaves, sizeof(Value));
        if constexpr (word != 0) {  // else no tables are made
            for (int t = 0; t < n_trees; t += kTrees) {
                const int trees = n_trees - t < kTrees ? n_trees - t : kTrees;
                for (int d = 0; d < n; d += kDocumentsInRegisters)
                    add_block<Value, word, n_leaves>(tables + 64 * sizeof(Value) * t, trees,
                                                     leaf + static_cast<int64_t>(t) * stride + d, stride, sums + d);
            }
        }
    }

    // n: whole blocks of documents.
    template <class Value>
    static void add_trees(const LeafValues& values, int first, int n_trees, const uint8_t* leaf, int n, int stride, Value* sums) {
        const uint8_t* tables = static_cast<const uint8_t*>(values.tables) + 64 * sizeof(Value) * first;
        if (values.table_leaves <= 32)
            add_blocks<Value, 32>(tables, n_trees, leaf, n, stride, sums);
        else
            add_blocks<Value, 64>(tables, n_trees, leaf, n, stride, sums);
    }
};

}  // namespace
}  // namespace gpuqs
