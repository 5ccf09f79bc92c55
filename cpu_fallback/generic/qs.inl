// qs: QuickScorer (paper 002, Algorithm 2), one or four documents at a time, thresholds tested in strides of four.
//
//   bits[tree][document] = ones
//   for each column, for each test, thresholds ascending, while x > threshold for any document:
//       bits[tree of test] &= mask of test where x > threshold; while that holds for all documents, one AND serves all
//   the same for reversed trees, thresholds descending, while x <= threshold
//   for each tree: leaf[tree][document] = leftmost set bit of bits[tree][document]
//
// qs scores one document at a time; bwqs (section 6) scores four, and supports reversed trees; in qs_oblivious (Algorithm 3) each
// mask clears one bit, and the inverted bits are the leaf index.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "generic/leftmost.inl"
#include "generic/tests_of.inl"

namespace gpuqs {
namespace {

// When a test is false, and which of two values has fewer false tests.
struct Above {
    static constexpr bool kAbove = true;
    template <class Value> static bool is_false(Value x, Value threshold) { return x > threshold; }
    template <class Value> static bool fewer(Value a, Value b) { return a < b; }
};
struct NotAbove {
    static constexpr bool kAbove = false;
    template <class Value> static bool is_false(Value x, Value threshold) { return x <= threshold; }
    template <class Value> static bool fewer(Value a, Value b) { return a > b; }
};

// The exit leaf, from a tree's bits.
struct Leftmost {
    template <class Mask> static uint8_t leaf(Mask bits) { return leftmost(bits); }
};
struct Inverted {
    template <class Mask> static Mask leaf(Mask bits) { return static_cast<Mask>(~bits); }
};

// Applies a column's tests to one document.
template <class Test, class Value, class Mask>
void rule_out(const TestsOf<Value, Mask>& tests, int64_t i, int64_t end, Value value, Mask* bits) {
    const auto clear = [&](int64_t at) { bits[tests.tree[at]] &= tests.mask[at]; };
    // If the last of four tests is false, so are the three before it.
    for (; i + 4 <= end && Test::is_false(value, tests.threshold[i + 3]); i += 4)
        for (int k = 0; k < 4; k++) clear(i + k);
    for (; i < end && Test::is_false(value, tests.threshold[i]); i++) clear(i);
}

// Applies a column's tests to a few documents: unmasked ANDs while tests are false for all, then masked ones. No test is false
// for NaN.
template <class Test, int together, class Value, class Mask>
void rule_out_together(const TestsOf<Value, Mask>& tests, int64_t i, int64_t end, const Value* x, bool missing, Mask* bits) {
    typedef Value Values __attribute__((vector_size(together * sizeof(Value))));  // GCC drops the attribute from a `using`
    typedef Mask Masks __attribute__((vector_size(together * sizeof(Mask))));
    typedef std::make_signed_t<Mask> Lanes __attribute__((vector_size(together * sizeof(Mask))));
    Values values;
    std::memcpy(&values, x, sizeof(values));
    Value all = x[0], any = x[0];
    for (int r = 1; r < together; r++) {
        all = Test::fewer(x[r], all) ? x[r] : all;
        any = x[r] != x[r] || Test::fewer(x[r], any) ? any : x[r];
    }
    const auto clear = [&](int64_t at, const Masks& keep) {
        Masks of_tree;
        Mask* at_tree = bits + static_cast<int64_t>(tests.tree[at]) * together;
        std::memcpy(&of_tree, at_tree, sizeof(of_tree));
        of_tree &= tests.mask[at] | keep;
        std::memcpy(at_tree, &of_tree, sizeof(of_tree));
    };
    for (; !missing && i + 4 <= end && Test::is_false(all, tests.threshold[i + 3]); i += 4)
        for (int k = 0; k < 4; k++) clear(i + k, Masks{});
    const auto clear_some = [&](int64_t at) {
        const auto is_false = Test::kAbove ? values > tests.threshold[at] : values <= tests.threshold[at];
        clear(at, (Masks) __builtin_convertvector(~is_false, Lanes));
    };
    for (; i + 4 <= end && Test::is_false(any, tests.threshold[i]); i += 4)
        for (int k = 0; k < 4; k++) clear_some(i + k);
    for (; i < end && Test::is_false(any, tests.threshold[i]); i++) clear_some(i);
}

template <class Test, int together, class Value, class Mask>
void qs_column(const TestsOf<Value, Mask>& tests, int c, const Value* values, Mask* bits) {
    bool missing = false;
    for (int r = 0; r < together; r++) missing |= values[r] != values[r];
    if constexpr (together > 1) {
        rule_out_together<Test, together>(tests, tests.offsets[c], tests.offsets[c + 1], values, missing, bits);
    } else if (!missing) {
        rule_out<Test>(tests, tests.offsets[c], tests.offsets[c + 1], values[0], bits);
    }
    for (int r = 0; missing && r < together; r++) {
        if (values[r] == values[r]) continue;
        for (int64_t m = tests.missing_offsets[c]; m < tests.missing_offsets[c + 1]; m++)
            bits[static_cast<int64_t>(tests.missing_tree[m]) * together + r] &= tests.missing_mask[m];
    }
}

template <class Test, int together, class Value, class Mask>
void qs_columns(const TestsOf<Value, Mask>& tests, const Value* x, int stride, Mask* bits) {
    for (int c = 0; c < tests.n_columns; c++) qs_column<Test, together>(tests, c, x + static_cast<int64_t>(c) * stride, bits);
}

// The last group of a block may have fewer than `together` documents: its other places hold anything. A single one is scored alone.
template <class Exit, int together, class Value, class Mask>
void qs_block(const QuickScorerLayout& layout, int block, const Value* x, int n, int stride, Mask* bits, void* leaf) {
    const auto straight = tests_of<Value, Mask>(layout, layout.straight, block);
    const auto reversed = layout.has_reversed ? tests_of<Value, Mask>(layout, layout.reversed, block) : straight;
    auto* to = static_cast<decltype(Exit::leaf(Mask()))*>(leaf);
    for (int d = 0; d < n; d += together) {
        if (together > 1 && n - d == 1) return qs_block<Exit, 1>(layout, block, x + d, 1, stride, bits, to + d);
        std::fill_n(bits, static_cast<int64_t>(straight.n_trees) * together, static_cast<Mask>(~Mask(0)));
        qs_columns<Above, together>(straight, x + d, stride, bits);
        if (layout.has_reversed) qs_columns<NotAbove, together>(reversed, x + d, stride, bits);
        for (int64_t t = 0; t < straight.n_trees; t++)
            for (int r = 0; r < together; r++) to[t * stride + d + r] = Exit::leaf(bits[t * together + r]);
    }
}

// A leaf index has one byte, or mask_bits bits if trees are oblivious. `together` is 1 or 4.
template <class Value>
void qs(const QuickScorerLayout& layout, int block, const Value* x, int n, int stride, int together, void* bits, void* leaf) {
    const auto find = [&](auto exit, auto mask) {
        using Mask = decltype(mask);
        const auto kernel = together == 4 ? qs_block<decltype(exit), 4, Value, Mask> : qs_block<decltype(exit), 1, Value, Mask>;
        kernel(layout, block, x, n, stride, static_cast<Mask*>(bits), leaf);
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
