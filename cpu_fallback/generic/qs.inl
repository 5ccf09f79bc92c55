// qs: QuickScorer (paper 002, Algorithm 2), one or two documents at a time, thresholds tested in strides of four.
//
//   bits[tree][document] = ones
//   for each column, for each test, thresholds ascending, while x > threshold:
//       bits[tree of test] &= mask of test; as long as it is false for both documents, one AND serves both
//   the same for reversed trees, thresholds descending, while x <= threshold
//   for each tree: leaf[tree][document] = leftmost set bit of bits[tree][document]
//
// qs takes one document; bwqs (section 6) takes two, and reversed trees; qs_oblivious (Algorithm 3) reads leaves as the
// inverted bits, of which each mask clears one.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>

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

// Tests [i, end) for one document of some that go together.
template <class Test, int together, class Value, class Mask>
void rule_out(const TestsOf<Value, Mask>& tests, int64_t i, int64_t end, Value value, Mask* bits) {
    const auto clear = [&](int64_t at) { bits[static_cast<int64_t>(tests.tree[at]) * together] &= tests.mask[at]; };
    // If the last of four tests is false, so are those before it.
    for (; i + 4 <= end && Test::is_false(value, tests.threshold[i + 3]); i += 4)
        for (int k = 0; k < 4; k++) clear(i + k);
    for (; i < end && Test::is_false(value, tests.threshold[i]); i++) clear(i);
}

// The tests that are false for both of two documents, with one AND for both; returns the first that is not.
template <class Test, class Value, class Mask>
int64_t rule_out_for_both(const TestsOf<Value, Mask>& tests, int64_t i, int64_t end, const Value* values, Mask* bits) {
    typedef Mask Pair __attribute__((vector_size(2 * sizeof(Mask))));  // GCC drops the attribute from a `using`
    static_assert(sizeof(Pair) == 2 * sizeof(Mask));
    const auto false_for_both = [&](int64_t at) {
        return Test::is_false(values[0], tests.threshold[at]) & Test::is_false(values[1], tests.threshold[at]);
    };
    const auto clear = [&](int64_t at) {
        Pair pair;
        Mask* of_tree = bits + static_cast<int64_t>(tests.tree[at]) * 2;
        std::memcpy(&pair, of_tree, sizeof(pair));
        pair &= tests.mask[at];
        std::memcpy(of_tree, &pair, sizeof(pair));
    };
    for (; i + 4 <= end && false_for_both(i + 3); i += 4)
        for (int k = 0; k < 4; k++) clear(i + k);
    for (; i < end && false_for_both(i); i++) clear(i);
    return i;
}

template <class Test, int together, class Value, class Mask>
void qs_column(const TestsOf<Value, Mask>& tests, int c, const Value* values, Mask* bits) {
    const int64_t begin = tests.offsets[c], end = tests.offsets[c + 1];
    if constexpr (together == 2) {
        if (values[0] == values[0] && values[1] == values[1]) {
            const int64_t i = rule_out_for_both<Test>(tests, begin, end, values, bits);
            const int other = i < end && Test::is_false(values[1], tests.threshold[i]);
            return rule_out<Test, 2>(tests, i, end, values[other], bits + other);
        }
    }
    for (int r = 0; r < together; r++) {
        if (values[r] == values[r]) {
            rule_out<Test, together>(tests, begin, end, values[r], bits + r);
            continue;
        }
        for (int64_t m = tests.missing_offsets[c]; m < tests.missing_offsets[c + 1]; m++)
            bits[static_cast<int64_t>(tests.missing_tree[m]) * together + r] &= tests.missing_mask[m];
    }
}

template <class Test, int together, class Value, class Mask>
void qs_columns(const TestsOf<Value, Mask>& tests, const Value* x, int stride, Mask* bits) {
    for (int c = 0; c < tests.n_columns; c++) qs_column<Test, together>(tests, c, x + static_cast<int64_t>(c) * stride, bits);
}

template <class Exit, int together, class Value, class Mask>
void qs_block(const QuickScorerLayout& layout, int block, const Value* x, int n, int stride, Mask* bits, void* leaf) {
    const auto straight = tests_of<Value, Mask>(layout, layout.straight, block);
    const auto reversed = layout.has_reversed ? tests_of<Value, Mask>(layout, layout.reversed, block) : straight;
    auto* to = static_cast<decltype(Exit::leaf(Mask()))*>(leaf);
    int d = 0;
    for (; d + together <= n; d += together) {
        std::fill_n(bits, static_cast<int64_t>(straight.n_trees) * together, static_cast<Mask>(~Mask(0)));
        qs_columns<Above, together>(straight, x + d, stride, bits);
        if (layout.has_reversed) qs_columns<NotAbove, together>(reversed, x + d, stride, bits);
        for (int64_t t = 0; t < straight.n_trees; t++)
            for (int r = 0; r < together; r++) to[t * stride + d + r] = Exit::leaf(bits[t * together + r]);
    }
    if (d < n) qs_block<Exit, 1>(layout, block, x + d, n - d, stride, bits, to + d);
}

// leaf: one byte each, or mask_bits where trees are oblivious. One or two documents together.
template <class Value>
void qs(const QuickScorerLayout& layout, int block, const Value* x, int n, int stride, int together, void* bits, void* leaf) {
    const auto find = [&](auto exit, auto mask) {
        using Mask = decltype(mask);
        const auto kernel = together == 2 ? qs_block<decltype(exit), 2, Value, Mask> : qs_block<decltype(exit), 1, Value, Mask>;
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
