// qs: QuickScorer (paper 002, Algorithm 2), one document at a time, thresholds tested in strides of four.
//
//   bits[tree] = ones
//   for each column: for each test, thresholds ascending, while x > threshold:
//       bits[tree of test] &= mask of test
//   for each tree: leaf[tree] = leftmost set bit of bits[tree]
#pragma once
#include <cstdint>

#include "generic/leftmost.inl"
#include "generic/tests_of.inl"

namespace gpuqs {
namespace {

template <class Value, class Mask>
void qs_document(const TestsOf<Value, Mask>& tests, const Value* x, int stride, Mask* bits) {
    for (int c = 0; c < tests.n_columns; c++) {
        const Value value = x[static_cast<int64_t>(c) * stride];
        int64_t i = tests.offsets[c];
        const int64_t end = tests.offsets[c + 1];
        if (value != value) {
            for (int64_t m = tests.missing_offsets[c]; m < tests.missing_offsets[c + 1]; m++)
                bits[tests.missing_tree[m]] &= tests.missing_mask[m];
            continue;
        }
        // If the last of four ascending thresholds is exceeded, so are the others.
        for (; i + 4 <= end && value > tests.threshold[i + 3]; i += 4)
            for (int k = 0; k < 4; k++) bits[tests.tree[i + k]] &= tests.mask[i + k];
        for (; i < end && value > tests.threshold[i]; i++) bits[tests.tree[i]] &= tests.mask[i];
    }
}

template <class Value, class Mask>
void qs_block(const QuickScorerLayout& layout, int block, const Value* x, int n, int stride, void* scratch, uint8_t* leaf) {
    const auto tests = tests_of<Value, Mask>(layout, block);
    Mask* bits = static_cast<Mask*>(scratch);
    for (int d = 0; d < n; d++) {
        for (int t = 0; t < tests.n_trees; t++) bits[t] = static_cast<Mask>(~Mask(0));
        qs_document(tests, x + d, stride, bits);
        for (int t = 0; t < tests.n_trees; t++) leaf[static_cast<int64_t>(t) * stride + d] = leftmost(bits[t]);
    }
}

template <class Value>
void qs(const QuickScorerLayout& layout, int block, const Value* x, int n, int stride, void* bits, uint8_t* leaf) {
    switch (layout.mask_bits) {
        case 8: return qs_block<Value, uint8_t>(layout, block, x, n, stride, bits, leaf);
        case 16: return qs_block<Value, uint16_t>(layout, block, x, n, stride, bits, leaf);
        case 32: return qs_block<Value, uint32_t>(layout, block, x, n, stride, bits, leaf);
        default: return qs_block<Value, uint64_t>(layout, block, x, n, stride, bits, leaf);
    }
}

}  // namespace
}  // namespace gpuqs
