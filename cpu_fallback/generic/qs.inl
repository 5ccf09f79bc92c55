// qs: QuickScorer (paper 002, Algorithm 2), some documents together, thresholds tested in strides of four.
//
//   bits[document][tree] = ones
//   for each column: for each document:
//       for each test, thresholds ascending, while x > threshold: bits[tree of test] &= mask of test
//       for each test of reversed trees, thresholds descending, while x <= threshold: the same
//   for each tree: leaf[tree][document] = leftmost set bit of bits[document][tree]
//
// qs takes one document; bwqs (section 6) takes more, and reversed trees; qs_oblivious (Algorithm 3) reads leaves as the
// inverted bits, of which each mask clears one.
#pragma once
#include <algorithm>
#include <cstdint>

#include "generic/leftmost.inl"
#include "generic/tests_of.inl"

namespace gpuqs {
namespace {

// When a test is false.
struct Above {
    template <class Value> static bool is_false(Value x, Value threshold) { return x > threshold; }
};
struct NotAbove {
    template <class Value> static bool is_false(Value x, Value threshold) { return x <= threshold; }
};

// The exit leaf by a tree's bits.
struct Leftmost {
    template <class Mask> static uint8_t leaf(Mask bits) { return leftmost(bits); }
};
struct Inverted {
    template <class Mask> static Mask leaf(Mask bits) { return static_cast<Mask>(~bits); }
};

template <class Test, class Value, class Mask>
void qs_column(const TestsOf<Value, Mask>& tests, int c, Value value, Mask* bits) {
    if (value != value) {
        for (int64_t m = tests.missing_offsets[c]; m < tests.missing_offsets[c + 1]; m++)
            bits[tests.missing_tree[m]] &= tests.missing_mask[m];
        return;
    }
    int64_t i = tests.offsets[c];
    const int64_t end = tests.offsets[c + 1];
    // If the last of four tests is false, so are those before it.
    for (; i + 4 <= end && Test::is_false(value, tests.threshold[i + 3]); i += 4)
        for (int k = 0; k < 4; k++) bits[tests.tree[i + k]] &= tests.mask[i + k];
    for (; i < end && Test::is_false(value, tests.threshold[i]); i++) bits[tests.tree[i]] &= tests.mask[i];
}

template <class Exit, class Value, class Mask>
void qs_block(const QuickScorerLayout& layout, int block, const Value* x, int n, int stride, int together, Mask* bits, void* leaf) {
    const auto straight = tests_of<Value, Mask>(layout, layout.straight, block);
    const auto reversed = layout.has_reversed ? tests_of<Value, Mask>(layout, layout.reversed, block) : straight;
    const int64_t n_trees = straight.n_trees;
    auto* to = static_cast<decltype(Exit::leaf(Mask()))*>(leaf);
    for (int d = 0; d < n; d += together) {
        const int rows = std::min(together, n - d);
        std::fill_n(bits, rows * n_trees, static_cast<Mask>(~Mask(0)));
        for (int c = 0; c < straight.n_columns; c++) {
            const Value* values = x + static_cast<int64_t>(c) * stride + d;
            for (int r = 0; r < rows; r++) qs_column<Above>(straight, c, values[r], bits + r * n_trees);
            for (int r = 0; layout.has_reversed && r < rows; r++) qs_column<NotAbove>(reversed, c, values[r], bits + r * n_trees);
        }
        for (int64_t t = 0; t < n_trees; t++)
            for (int r = 0; r < rows; r++) to[t * stride + d + r] = Exit::leaf(bits[r * n_trees + t]);
    }
}

// leaf: one byte each, or mask_bits where trees are oblivious.
template <class Value>
void qs(const QuickScorerLayout& layout, int block, const Value* x, int n, int stride, int together, void* bits, void* leaf) {
    const auto find = [&](auto exit, auto mask) {
        qs_block<decltype(exit)>(layout, block, x, n, stride, together, static_cast<decltype(mask)*>(bits), leaf);
    };
    if (layout.oblivious) return layout.mask_bits == 8 ? find(Inverted(), uint8_t()) : find(Inverted(), uint16_t());
    switch (layout.mask_bits) {
        case 8: return find(Leftmost(), uint8_t());
        case 16: return find(Leftmost(), uint16_t());
        case 32: return find(Leftmost(), uint32_t());
        default: return find(Leftmost(), uint64_t());
    }
}

}  // namespace
}  // namespace gpuqs
