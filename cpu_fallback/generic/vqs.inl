// vqs: V-QuickScorer (paper 001, Algorithm 2; paper 000, section 4), Lanes::n documents at a time.
//
//   bits[tree][document] = ones
//   for each column: for each test, thresholds ascending:
//       false = x > threshold, for all documents at once; stop at the first test that is false for no document
//       bits[tree of test] &= mask of test where false
//   leaf[tree] = leftmost set bit of bits[tree]
//
// Each instruction set defines its `Lanes`: see isa/*/lanes.inl.
#pragma once
#include <cstdint>

#include "generic/tests_of.inl"
#include "lanes.inl"

namespace gpuqs {
namespace {

template <class Value, class Mask>
void vqs_block(const QuickScorerLayout& layout, int block, const Value* x, int n, int stride, void* scratch, uint8_t* leaf) {
    const auto tests = tests_of<Value, Mask>(layout, layout.straight, block);
    Mask* bits = static_cast<Mask*>(scratch);
    constexpr int lanes = Lanes::n;
    for (int d = 0; d < n; d += lanes) {
        for (int i = 0; i < tests.n_trees * lanes; i++) bits[i] = static_cast<Mask>(~Mask(0));
        for (int c = 0; c < tests.n_columns; c++) {
            const auto values = Lanes::load(x + static_cast<int64_t>(c) * stride + d);
            const int64_t end = tests.offsets[c + 1];
            const auto rule_out = [&](int64_t i) {
                Lanes::and_where(Lanes::greater(values, tests.threshold[i]), bits + static_cast<int64_t>(tests.tree[i]) * lanes,
                                 tests.mask[i]);
            };
            // As in qs, the last of four ascending thresholds decides for all four: one branch for four tests.
            int64_t i = tests.offsets[c];
            for (; i + 4 <= end && Lanes::any(Lanes::greater(values, tests.threshold[i + 3])); i += 4)
                for (int k = 0; k < 4; k++) rule_out(i + k);
            for (; i < end && Lanes::any(Lanes::greater(values, tests.threshold[i])); i++) rule_out(i);
            if (tests.missing_offsets[c] == tests.missing_offsets[c + 1]) continue;
            const auto is_missing = Lanes::is_nan(values);
            if (!Lanes::any(is_missing)) continue;
            for (int64_t m = tests.missing_offsets[c]; m < tests.missing_offsets[c + 1]; m++)
                Lanes::and_where(is_missing, bits + static_cast<int64_t>(tests.missing_tree[m]) * lanes, tests.missing_mask[m]);
        }
        for (int t = 0; t < tests.n_trees; t++) Lanes::leftmost(bits + t * lanes, leaf + static_cast<int64_t>(t) * stride + d);
    }
}

template <class Value>
void vqs(const QuickScorerLayout& layout, int block, const Value* x, int n, int stride, void* bits, uint8_t* leaf) {
    if (layout.mask_bits == 32)
        vqs_block<Value, uint32_t>(layout, block, x, n, stride, bits, leaf);
    else
        vqs_block<Value, uint64_t>(layout, block, x, n, stride, bits, leaf);
}

}  // namespace
}  // namespace gpuqs
